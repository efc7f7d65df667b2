"""A request that the database does not serve: 503 with the reason, a page or a problem."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import DataError, InterfaceError, OperationalError, connection
from django.test import Client

from msgnode.core import database_limit
from msgnode.core.database_errors import PART
from msgnode.core.faults import FAULTS

pytestmark = pytest.mark.django_db


@contextmanager
def failing(error: Callable[[], Exception]) -> Iterator[None]:
    """No statement passes."""

    def refuse(*_: object) -> Any:
        raise error()

    with connection.execute_wrapper(refuse):
        yield


def locked(code: int = sqlite3.SQLITE_BUSY) -> Exception:
    cause = sqlite3.OperationalError("database is locked")
    cause.sqlite_errorcode = code
    error = OperationalError("database is locked")
    error.__cause__ = cause
    return error


@pytest.fixture
def client(django_user_model: Any) -> Client:
    user = django_user_model.objects.create_superuser("operator", password="let me in")
    client = Client(raise_request_exception=False)
    client.force_login(user)
    return client


WORDS = "Another process keeps the database locked; try again later."


@pytest.mark.parametrize("path", ["/admin/", "/admin/msgnode/ban/?q=a%20b"])
def test_an_operator_reads_what_is_wrong_and_may_try_again(client: Client, path: str) -> None:
    before = FAULTS.counts[PART]
    with failing(locked):
        page = client.get(path, headers={"Accept": "text/html,*/*"})
    assert page.status_code == 503
    assert page["Retry-After"] == "5"
    assert "no-store" in page["Cache-Control"]
    text = page.content.decode()
    assert WORDS in text
    assert f'href="{path}"' in text
    assert FAULTS.counts[PART] == before + 1
    assert client.get(path).status_code == 200


def test_who_has_sent_a_form_is_told_to_look_before_he_sends_it_again(client: Client) -> None:
    with failing(locked):
        page = client.post("/admin/msgnode/ban/add/", {}, headers={"Accept": "text/html"})
    assert page.status_code == 503
    assert "Look whether it is there before you send it again" in page.content.decode()
    assert 'href="/admin/msgnode/ban/add/"' not in page.content.decode()


@pytest.mark.parametrize(
    "path",
    [
        *("/api/v1/hyperties", "/api/v1/peers/", "/api/v1/visitors/", "/api/v1/reports/"),
        *("/api/v1/report-runs/", "/api/v1/status", "/admin/"),
    ],
)
def test_a_program_reads_a_problem(client: Client, path: str) -> None:
    with failing(locked):
        answer = client.get(path)
    assert answer.status_code == 503
    assert answer["Content-Type"] == "application/problem+json"
    assert answer["Retry-After"] == "5"
    problem = answer.json()
    assert problem["type"] == "/problems/errors/unavailable"
    assert problem["status"] == 503
    assert problem["detail"] == WORDS


def test_the_trees_of_the_field_keep_their_form(client: Client) -> None:
    with failing(locked):
        domain = client.get("/domain-registry/hyperty/user/x")
        known = client.get("/global-registry/guid/" + "x" * 43)
    assert domain.json() == {"message": WORDS}
    assert (known.json()["Code"], known.json()["Explanation"]) == (503, WORDS)
    for answer in (domain, known):
        assert (answer.status_code, answer["Retry-After"]) == (503, "5")


def test_a_connection_that_is_closed_is_no_fault_of_the_node_either(client: Client) -> None:
    with failing(lambda: InterfaceError("connection already closed")):
        assert client.get("/api/v1/hyperties").status_code == 503


def test_a_wrong_statement_is_a_fault_of_the_node(client: Client) -> None:
    before = FAULTS.counts[PART]
    with failing(lambda: locked(sqlite3.SQLITE_ERROR)):
        page = client.get("/admin/", headers={"Accept": "text/html"})
    assert page.status_code == 500
    assert FAULTS.counts[PART] == before


def test_a_program_reads_a_fault_of_the_node_as_a_problem_too(client: Client) -> None:
    with failing(lambda: locked(sqlite3.SQLITE_ERROR)):
        answer = client.get("/api/v1/hyperties")
        page = client.get("/admin/", headers={"Accept": "text/html"})
    assert (answer.status_code, answer["Content-Type"]) == (500, "application/problem+json")
    assert answer.json()["type"] == "/problems/errors/internal"
    assert "locked" not in answer.content.decode(), "what is wrong is for the log"
    assert "Retry-After" not in answer
    assert (page.status_code, page["Content-Type"]) == (500, "text/html; charset=utf-8")


def test_the_log_is_not_filled_with_traces(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    with failing(locked):
        for _ in range(3):
            client.get("/api/v1/peers/")
            client.get("/admin/")
    of_requests = [each for each in caplog.records if each.name == "django.request"]
    assert len(of_requests) >= 3
    assert not any(each.exc_info for each in of_requests)
    with failing(lambda: locked(sqlite3.SQLITE_ERROR)):
        client.get("/admin/")
    assert caplog.records[-1].exc_info


def test_what_needs_no_database_is_served(client: Client) -> None:
    with failing(locked):
        assert client.get("/api/docs").status_code == 200
        assert client.get("/problems/errors/unavailable").status_code == 200


def test_a_request_waits_no_longer_than_the_setting(client: Client, settings: Any) -> None:
    settings.DATABASE_TIMEOUT = 7.0
    seen: list[float | None] = []

    def note(execute: Any, *arguments: Any) -> Any:
        seen.append(database_limit.seconds())
        return execute(*arguments)

    with connection.execute_wrapper(note):
        client.get("/admin/")
    assert seen
    assert set(seen) == {7.0}
    assert database_limit.seconds() != 7.0


@pytest.mark.parametrize("accepts", ["text/html", "application/json"])
def test_a_value_that_the_database_does_not_store_is_refused(client: Client, accepts: str) -> None:
    said = "value too long for type character varying(255)"
    with failing(lambda: DataError(f"{said}\nLINE 1: secret")):
        answer = client.get("/admin/", headers={"Accept": accepts})
    assert answer.status_code == 400
    assert (said in answer.content.decode()) is (accepts != "text/html")
    assert "secret" not in answer.content.decode()
