"""TLS in front of a node, with a certificate that was made for the test."""

from __future__ import annotations

import contextlib
import datetime
import ipaddress
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_SAID = b"X-Forwarded-Proto: https\r\nX-Forwarded-For: 127.0.0.1\r\n"


def certificate(place: Path) -> Path:
    """A certificate of localhost that signs itself, with its key in one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = place / "localhost.pem"
    path.write_bytes(
        made.public_bytes(serialization.Encoding.PEM)
        + key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return path


@contextmanager
def tls_front(port: int, pem: Path) -> Iterator[int]:
    """Takes TLS for a node that believes one proxy; its port. One request to a connection, unless
    it becomes a WebSocket."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(pem)
    listener = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=_accept, args=(listener, context, port), daemon=True).start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.close()


def _accept(listener: socket.socket, context: ssl.SSLContext, port: int) -> None:
    with contextlib.suppress(OSError):
        while True:
            raw, _ = listener.accept()
            threading.Thread(target=_serve, args=(raw, context, port), daemon=True).start()


def _serve(raw: socket.socket, context: ssl.SSLContext, port: int) -> None:
    with (
        contextlib.suppress(OSError),
        context.wrap_socket(raw, server_side=True) as near,
        socket.create_connection(("127.0.0.1", port)) as far,
    ):
        got = b""
        while b"\r\n\r\n" not in got:
            if not (chunk := near.recv(65_536)):
                return
            got += chunk
        head, _, rest = got.partition(b"\r\n\r\n")
        lines = [each for each in head.split(b"\r\n") if each.lower() != b"connection: keep-alive"]
        if b"upgrade:" not in head.lower():
            lines.append(b"Connection: close")
        far.sendall(b"\r\n".join(lines) + b"\r\n" + _SAID + b"\r\n" + rest)
        threading.Thread(target=_copy, args=(near, far), daemon=True).start()
        _copy(far, near)


def _copy(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while chunk := source.recv(65_536):
            target.sendall(chunk)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)
