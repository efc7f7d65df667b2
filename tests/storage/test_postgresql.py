"""A wait for PostgreSQL ends with its limit: by the server where it runs, else by the client."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from typing import Any

import environ
import psycopg
import pytest
from django.db import OperationalError, connections, transaction
from django.db.utils import ConnectionHandler

from msgnode.core.database_errors import in_words
from msgnode.core.database_limit import at_most

pytestmark = pytest.mark.django_db

LIMIT = 1.0


@pytest.fixture
def database(postgres_url: str) -> Iterator[Any]:
    """A connection as the node makes one; nothing is connected yet."""
    named = {**environ.Env.db_url_config(postgres_url), "ENGINE": "msgnode.storage.postgresql"}
    connection = ConnectionHandler({"default": named})["default"]
    connection.inc_thread_sharing()
    yield connection
    connection.close()


def value(database: Any, sql: str) -> Any:
    with database.cursor() as cursor:
        cursor.execute(sql)
        return cursor.fetchone()[0]


def test_a_statement_that_takes_too_long_is_given_up_and_the_connection_stays(
    database: Any,
) -> None:
    with at_most(LIMIT):
        backend = value(database, "SELECT pg_backend_pid()")
        began = time.monotonic()
        with pytest.raises(OperationalError) as refused:
            value(database, "SELECT pg_sleep(20)")
        assert time.monotonic() - began < 10
        assert "took too long" in in_words(refused.value)
        assert value(database, "SELECT pg_backend_pid()") == backend


def test_a_server_that_does_not_answer_is_given_up_and_the_next_connection_serves(
    database: Any,
) -> None:
    with at_most(LIMIT):
        backend = value(database, "SELECT pg_backend_pid()")
        os.kill(backend, signal.SIGSTOP)
        try:
            began = time.monotonic()
            with pytest.raises(OperationalError) as refused:
                value(database, "SELECT 1")
            assert LIMIT < time.monotonic() - began < 10
            assert isinstance(refused.value.__cause__, psycopg.OperationalError)
            assert "does not answer" in in_words(refused.value)
            database.close_if_unusable_or_obsolete()
            assert value(database, "SELECT pg_backend_pid()") != backend
        finally:
            os.kill(backend, signal.SIGCONT)


def test_a_transaction_that_is_given_up_leaves_nothing(database: Any) -> None:
    with database.cursor() as cursor:
        cursor.execute("DROP TABLE IF EXISTS given_up")
        cursor.execute("CREATE TABLE given_up (number integer)")
    connections["given up"] = database
    connections.settings["given up"] = database.settings_dict
    backend = value(database, "SELECT pg_backend_pid()")
    try:
        with (
            pytest.raises(OperationalError),
            at_most(LIMIT),
            transaction.atomic(using="given up"),
        ):
            with database.cursor() as cursor:
                cursor.execute("INSERT INTO given_up VALUES (1)")
            os.kill(backend, signal.SIGSTOP)
            value(database, "SELECT 1")
    finally:
        os.kill(backend, signal.SIGCONT)
        del connections["given up"], connections.settings["given up"]
    assert value(database, "SELECT count(*) FROM given_up") == 0


def test_without_a_limit_a_statement_takes_as_long_as_it_takes(database: Any) -> None:
    assert value(database, "SHOW statement_timeout") == "0"
    value(database, "SELECT pg_sleep(1.2)")


def test_a_database_that_can_only_be_read_counts_as_one_that_is_away(database: Any) -> None:
    value(database, "SELECT set_config('default_transaction_read_only', 'on', false)")
    with pytest.raises(OperationalError) as refused:
        value(database, "CREATE TABLE t ()")
    assert "can only be read" in in_words(refused.value)
