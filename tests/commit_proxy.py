"""A proxy before PostgreSQL that loses the answer to a COMMIT, or freezes the server in one."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit

import psycopg

from tests import waiting

_BYTES = 65_536
_IN_THE_MIDST = 0.01
"""Seconds that a process takes at most from the beginning of a COMMIT to _COMMIT_DELAY."""
_COMMIT_DELAY = 100_000
"""In microseconds; PostgreSQL's largest."""


class CommitProxy:
    """Hands bytes on between clients and a server, except around one COMMIT.

    Args:
        url: of the database.

    Attributes:
        has_caught: set once the COMMIT has come.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._wanted = b""
        self._freezes = False
        self._frozen = 0
        self._sockets: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self.has_caught = threading.Event()
        threading.Thread(target=self._accept, daemon=True).start()

    def lose(self, table: str) -> None:
        """Reset the connection instead of handing on the answer to the next COMMIT after a row was
        inserted into this table."""
        self._freezes = False
        self._want(table)

    def freeze(self, table: str) -> None:
        """Stop the server's process of the connection when it is about to write such a COMMIT."""
        with psycopg.connect(self._url, autocommit=True) as rows:
            name = urlsplit(self._url).path[1:]
            rows.execute(f'ALTER DATABASE "{name}" SET commit_delay = {_COMMIT_DELAY}')
            rows.execute(f'ALTER DATABASE "{name}" SET commit_siblings = 0')
        self.reset()  # so that the settings hold
        self._freezes = True
        self._want(table)

    def thaw(self) -> None:
        """Let the stopped process go on."""
        if self._frozen:
            os.kill(self._frozen, signal.SIGCONT)
            self._frozen = 0

    def reset(self) -> None:
        """Reset all connections."""
        sockets, self._sockets = self._sockets, []
        for each in sockets:
            _reset(each)

    def close(self) -> None:
        self.thaw()
        self._listener.close()
        self.reset()

    def is_wanted(self, data: bytes) -> bool:
        return bool(self._wanted) and self._wanted in data

    def pass_commit(self, data: bytes, server: socket.socket) -> bool:
        """Hand the COMMIT on; whether its answer is to be lost."""
        self._wanted = b""
        if self._freezes:
            with psycopg.connect(self._url, autocommit=True) as rows:
                asked = (
                    "SELECT pid FROM pg_stat_activity WHERE client_port = %s AND query = 'COMMIT'"
                )
                where = [server.getsockname()[1]]
                server.sendall(data)
                (pid,) = waiting.until(lambda: rows.execute(asked, where).fetchone(), 30.0, every=0)
                time.sleep(_IN_THE_MIDST)
                os.kill(pid, signal.SIGSTOP)
            self._frozen = pid
        else:
            server.sendall(data)
        self.has_caught.set()
        return not self._freezes

    def _want(self, table: str) -> None:
        self.has_caught.clear()
        self._wanted = f'INSERT INTO "{table}"'.encode()

    def _accept(self) -> None:
        found = urlsplit(self._url)
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(
                    (found.hostname or "127.0.0.1", found.port or 5432), timeout=10
                )
                server.settimeout(None)
                self._sockets += [client, server]
                link = _Link(self, client, server)
                for job in (link.to_client, link.to_server):
                    threading.Thread(target=job, daemon=True).start()


class _Link:
    """One connection through the proxy."""

    def __init__(self, proxy: CommitProxy, client: socket.socket, server: socket.socket) -> None:
        self._proxy = proxy
        self._client, self._server = client, server
        self._has_written = self._loses = False

    def to_server(self) -> None:
        with suppress(OSError):
            while data := self._client.recv(_BYTES):
                self._has_written |= self._proxy.is_wanted(data)
                if self._has_written and b"COMMIT" in data:
                    self._has_written = False
                    self._loses = True  # before the answer may come
                    self._loses = self._proxy.pass_commit(data, self._server)
                else:
                    self._server.sendall(data)
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_WR)

    def to_client(self) -> None:
        with suppress(OSError):
            while (data := self._server.recv(_BYTES)) and not self._loses:
                self._client.sendall(data)
        _reset(self._client)


def _reset(each: socket.socket) -> None:
    with suppress(OSError):
        each.shutdown(socket.SHUT_RDWR)
    each.close()


@contextmanager
def commit_proxy(url: str) -> Iterator[tuple[CommitProxy, str]]:
    """A proxy before the server of a database, and the database's URL through it."""
    found = urlsplit(url)
    proxy = CommitProxy(url)
    user, at, _ = found.netloc.rpartition("@")
    try:
        yield proxy, found._replace(netloc=f"{user}{at}127.0.0.1:{proxy.port}").geturl()
    finally:
        proxy.close()
