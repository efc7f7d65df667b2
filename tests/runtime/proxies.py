"""TCP proxies on the loopback: one whose connections a test cuts, one that keeps what passes."""

from __future__ import annotations

import contextlib
import re
import socket
import struct
import threading

_LINGER_NOT = struct.pack("ii", 1, 0)
_UPGRADE = re.compile(rb"^upgrade: *websocket\r$", re.IGNORECASE | re.MULTILINE)


class CuttingProxy:
    """Hands bytes on between its clients and one port; its connections are cut as by a bad line."""

    def __init__(self, target: int = 0) -> None:
        """`target` may be set later, before the first client comes."""
        self.target = target
        self._lock = threading.Lock()
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> int:
        """Reset all connections, whatever is on its way; how many there were."""
        with self._lock:
            pairs, self._pairs = self._pairs, []
        for pair in pairs:
            for each in pair:
                with contextlib.suppress(OSError):
                    each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_NOT)
                    each.shutdown(socket.SHUT_RDWR)
                each.close()
        return len(pairs)

    def close(self) -> None:
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(("127.0.0.1", self.target), timeout=10)
            except OSError:
                client.close()
                continue
            server.settimeout(None)
            with self._lock:
                self._pairs.append((client, server))
            for source, target in ((client, server), (server, client)):
                record = self._record(target is server)
                threading.Thread(
                    target=self._pump, args=(source, target, record), daemon=True
                ).start()

    def _record(self, is_up: bool) -> bytearray | None:
        """Where to keep what passes in one direction of a new connection, if anywhere."""
        return None

    def _pump(self, source: socket.socket, target: socket.socket, record: bytearray | None) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65_536):
                if record is not None:
                    record += data
                target.sendall(data)
        for each in (source, target):  # one direction has ended: so has the connection
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)


class RecordingProxy(CuttingProxy):
    """Keeps what goes through it, WebSocket frames unmasked."""

    def __init__(self) -> None:
        self._up: list[bytearray] = []  # of each connection
        self._down: list[bytearray] = []
        super().__init__()

    def sent(self) -> str:
        """All that clients have sent, frames unmasked."""
        return "\n".join(_read(bytes(each)) for each in self._up)

    def received(self) -> str:
        """All that clients were sent."""
        return "\n".join(_read(bytes(each)) for each in self._down)

    def _record(self, is_up: bool) -> bytearray:
        record = bytearray()
        (self._up if is_up else self._down).append(record)
        return record


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
