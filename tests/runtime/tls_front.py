"""TLS in front of a node."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_SAID = b"X-Forwarded-Proto: https\r\nX-Forwarded-For: 127.0.0.1\r\n"


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
