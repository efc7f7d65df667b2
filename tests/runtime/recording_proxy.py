"""A TCP proxy on the loopback that keeps what goes through it, WebSocket frames unmasked."""

from __future__ import annotations

import contextlib
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_UPGRADE = re.compile(rb"^upgrade: *websocket\r$", re.IGNORECASE | re.MULTILINE)


class RecordingProxy:
    """Hands bytes on between its clients and a port that is set before the first of them comes."""

    def __init__(self) -> None:
        self.target = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._open: list[socket.socket] = []
        self._up: list[bytearray] = []  # of each connection
        self._down: list[bytearray] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def sent(self) -> str:
        """All that clients have sent, frames unmasked."""
        return "\n".join(_read(bytes(each)) for each in self._up)

    def received(self) -> str:
        """All that clients were sent."""
        return "\n".join(_read(bytes(each)) for each in self._down)

    def close(self) -> None:
        """Whoever is connected is cut off."""
        self._listener.close()
        for each in self._open:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self.target), timeout=10)
            server.settimeout(None)
            self._open += [client, server]
            for source, target, kept in ((client, server, self._up), (server, client, self._down)):
                record = bytearray()
                kept.append(record)
                threading.Thread(target=_pump, args=(source, target, record), daemon=True).start()


def _pump(source: socket.socket, target: socket.socket, record: bytearray) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65_536):
            record += data
            target.sendall(data)
    for each in (source, target):
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)


def _read(data: bytes) -> str:
    """HTTP as it is; of a WebSocket what came before it, and the frames' payloads."""
    upgrade = _UPGRADE.search(data)
    if upgrade is None:
        return data.decode(errors="replace")
    end = data.index(b"\r\n\r\n", upgrade.start())
    payloads, rest = [data[:end]], data[end + 4 :]
    while len(rest) >= 2:
        assert not rest[0] & 0x40, "a compressed frame cannot be read"
        length, start = rest[1] & 0x7F, 2
        if length > 125:
            size = 2 if length == 126 else 8
            length, start = int.from_bytes(rest[2 : 2 + size]), 2 + size
        if rest[1] & 0x80:
            mask = rest[start : start + 4]
            start += 4
            payload = bytes(
                byte ^ mask[index % 4] for index, byte in enumerate(rest[start : start + length])
            )
        else:
            payload = rest[start : start + length]
        payloads.append(payload)
        rest = rest[start + length :]
    return b"\n".join(payloads).decode(errors="replace")


@contextmanager
def recording_proxy() -> Iterator[RecordingProxy]:
    """One, closed at the end."""
    proxy = RecordingProxy()
    try:
        yield proxy
    finally:
        proxy.close()
