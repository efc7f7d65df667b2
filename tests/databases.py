"""Databases of a real PostgreSQL for tests, each dropped after its test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit
from uuid import uuid4

import psycopg
from psycopg import sql


@contextmanager
def database(server: str, copied_from: str = "template1", encoding: str = "") -> Iterator[str]:
    """The URL of a database of its own: empty, or a copy of one that nobody is connected to.

    Args:
        server: The URL of any database of the server.
        copied_from: The URL or the name of the database that it is a copy of.
        encoding: Of an empty one, if it is another than that of the server.
    """
    name = f"t{uuid4().hex[:12]}"
    original = urlsplit(copied_from).path.lstrip("/")
    make = sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(
        sql.Identifier(name), sql.Identifier("template0" if encoding else original)
    )
    if encoding:
        make += sql.SQL(" LOCALE 'C' ENCODING {}").format(sql.Literal(encoding))
    drop = sql.SQL("DROP DATABASE {} WITH (FORCE)")
    with psycopg.connect(server, autocommit=True) as client:
        client.execute(make)
    try:
        yield urlsplit(server)._replace(path=f"/{name}").geturl()
    finally:
        with psycopg.connect(server, autocommit=True) as client:
            client.execute(drop.format(sql.Identifier(name)))
