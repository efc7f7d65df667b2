"""Consoles that are open while something is measured: an operator's log-in and pages' sockets."""

from __future__ import annotations

import http.cookiejar
import re
import threading
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Origin

from .processes import Server
from .servers import manage

PASSWORD = "only measured"  # noqa: S105


class Operator:
    """An operator of a node that runs."""

    def __init__(self, server: Server) -> None:
        self._port = server.port
        environment = {**server.environment, "DJANGO_SUPERUSER_PASSWORD": PASSWORD}
        account = ("--username", "operator", "--email", "o@example.org")
        manage(environment, "createsuperuser", "--noinput", *account)
        self._jar = http.cookiejar.CookieJar()
        self._opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(self._jar))
        self.log_in(self._port)

    def log_in(self, port: int) -> None:
        """At a process of the node: each port has cookies of its own."""
        place = f"http://127.0.0.1:{port}/admin/login/"
        page = self._opener.open(place, timeout=20).read().decode()
        found = re.search(r'name="csrfmiddlewaretoken" value="(\w+)"', page)
        assert found
        form = {"username": "operator", "password": PASSWORD, "csrfmiddlewaretoken": found[1]}
        request = urllib.request.Request(place, urllib.parse.urlencode(form).encode())  # noqa: S310
        request.add_header("Referer", place)
        self._opener.open(request, timeout=20).read()

    @contextmanager
    def watching(self, pages: int, page: str = "") -> Iterator[list[int]]:
        """So many pages, of the overview; gives the number of texts each has been told."""
        cookie = "; ".join(f"{each.name}={each.value}" for each in self._jar)
        told = [0] * pages
        sockets = [
            connect(
                f"ws://127.0.0.1:{self._port}/admin/live/{page}",
                additional_headers={"Cookie": cookie},
                origin=Origin(f"http://127.0.0.1:{self._port}"),
            )
            for _ in range(pages)
        ]
        threads = [
            threading.Thread(target=_read, args=(socket, told, number), daemon=True)
            for number, socket in enumerate(sockets)
        ]
        for thread in threads:
            thread.start()
        try:
            yield told
        finally:
            for socket in sockets:
                socket.close()
            for thread in threads:
                thread.join(10)


def _read(socket: ClientConnection, told: list[int], number: int) -> None:
    try:
        for _ in socket:
            told[number] += 1
            socket.send('{"ack":true}')
    except ConnectionClosed:
        return
