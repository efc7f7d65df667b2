"""An operator's browser without a window: logs in, posts the console's forms, finds rows."""

from __future__ import annotations

import asyncio
import functools
import http.cookiejar
import re
import sqlite3
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path

from django.contrib.auth.hashers import PBKDF2PasswordHasher

from tests.node import Node, running

PASSWORD = "let me in"
OPERATOR = """
INSERT INTO auth_user (username, email, password, first_name, last_name, date_joined,
                       is_superuser, is_staff, is_active)
VALUES ('operator', 'o@example.org', :password, '', '', :now, TRUE, TRUE, TRUE)
"""


class Browser:
    def __init__(self, node: Node) -> None:
        self._root = f"http://127.0.0.1:{node.port}/admin/"
        self._jar = http.cookiejar.CookieJar()
        processor = urllib.request.HTTPCookieProcessor(self._jar)
        self._opener = urllib.request.build_opener(processor)

    async def get(self, path: str) -> str:
        return await asyncio.to_thread(self._ask, path)

    async def post(self, path: str, **form: str) -> str:
        """Post a form as its page would, with the page's token."""
        return await asyncio.to_thread(self.fill_in, path, **form)

    def fill_in(self, path: str, **form: str) -> str:
        """`post` outside of an event loop."""
        found = re.search(r'name="csrfmiddlewaretoken" value="(\w+)"', self._ask(path))
        assert found, path
        data = urllib.parse.urlencode({"csrfmiddlewaretoken": found[1], **form})
        return self._ask(path, data.encode())

    async def key(self, model: str, term: str) -> str:
        """The key of the one row that a search finds."""
        page = await self.get(f"msgnode/{model}/?" + urllib.parse.urlencode({"q": term}))
        keys = set(re.findall(rf"/admin/msgnode/{model}/([\w-]+)/change/", page))
        assert len(keys) == 1, keys
        return keys.pop()

    def _ask(self, path: str, data: bytes | None = None) -> str:
        request = urllib.request.Request(self._root + path, data)  # noqa: S310 (http:, above)
        request.add_header("Referer", self._root)
        try:
            with self._opener.open(request, timeout=20) as response:
                return response.read().decode()
        except urllib.error.HTTPError as refused:
            refused.close()  # it holds the socket
            raise


def log_in(node: Node) -> Browser:
    """Make the operator of a node on SQLite, which may run, and log in."""
    with closing(sqlite3.connect(node.data_dir / "node.sqlite3", timeout=20)) as rows, rows:
        rows.execute(OPERATOR, {"password": _hash(), "now": f"{datetime.now(UTC):%F %T}"})
    browser = Browser(node)
    browser.fill_in("login/", username="operator", password=PASSWORD)
    return browser


@functools.cache
def _hash() -> str:
    """The password as a node keeps it."""
    hasher = PBKDF2PasswordHasher()
    return hasher.encode(PASSWORD, hasher.salt())


@contextmanager
def operated_node(folder: Path, template: Path, **settings: object) -> Iterator[Node]:
    """A running node whose operator has an account."""
    with running(folder, template, **settings) as node:
        log_in(node)
        yield node
