"""A TCP proxy on the loopback whose connections a test cuts, as a bad line would."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator

_LINGER_NOT = struct.pack("ii", 1, 0)


class CuttingProxy:
    """Hands bytes on between its clients and one port."""

    def __init__(self, target: int) -> None:
        self._target = target
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
                server = socket.create_connection(("127.0.0.1", self._target), timeout=10)
            except OSError:
                client.close()
                continue
            server.settimeout(None)
            with self._lock:
                self._pairs.append((client, server))
            for source, target in ((client, server), (server, client)):
                threading.Thread(target=self._pump, args=(source, target), daemon=True).start()

    def _pump(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65_536):
                target.sendall(data)
        for each in (source, target):  # one direction has ended: so has the connection
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def cutting_proxy(target: int) -> Iterator[CuttingProxy]:
    """A proxy in front of a port, while the block runs."""
    proxy = CuttingProxy(target)
    try:
        yield proxy
    finally:
        proxy.close()
