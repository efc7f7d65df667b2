"""Every search has an index, and finds what it is asked for."""

from __future__ import annotations

import psycopg
import pytest
from django.db import connection
from django.utils import timezone
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pytest_django import DjangoAssertNumQueries

from msgnode.core.errors import BadMessage, TooMany
from registry import api, searches
from registry.api import Kind, Search
from registry.models import DataObject, Hyperty

from .conftest import data_object, hyperty

pytestmark = pytest.mark.django_db

KEYS = ("user", "email", "guid", "url", "runtime", "name", "reporter")
SEARCHES = [
    *(Search.by(Kind.HYPERTY, key, "x") for key in ("url", "user", "email", "guid", "runtime")),
    *(Search.by(Kind.OBJECT, key, "x") for key in ("url", "name", "reporter", "runtime")),
    *(Search.by(Kind.OBJECT, key, "x") for key in ("user", "email", "guid")),
]


@pytest.mark.skipif(connection.vendor != "sqlite", reason="reads the words of SQLite's plans")
@pytest.mark.parametrize("search", SEARCHES, ids=str)
def test_a_search_looks_into_an_index(search: Search) -> None:
    values = {key: "x" for key in KEYS if getattr(search, key)}
    query = searches._query(search.kind, tuple(values), 10, connection.vendor)
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN QUERY PLAN {query.sql}", [query.parameter([values] * 2)])
        plan = [step for *_, step in cursor.fetchall()]
    assert any("USING" in step and "INDEX" in step for step in plan)
    scanned = {step for step in plan if step.startswith("SCAN")}
    assert scanned == {"SCAN one VIRTUAL TABLE INDEX 1:", "SCAN matches"}, plan


def test_every_search_is_one_that_postgresql_understands(migrated_url: str) -> None:
    with psycopg.connect(migrated_url) as server:
        for search in SEARCHES:
            values = {key: "x" for key in KEYS if getattr(search, key)}
            query = searches._query(search.kind, tuple(values), 10, "postgresql")
            found = server.execute(query.sql, [query.parameter([values] * 2)])  # type: ignore[call-overload]
            assert found.fetchall() == [(None,), (None,)]


@pytest.mark.skipif(connection.vendor != "sqlite", reason="reads the words of SQLite's plans")
@pytest.mark.parametrize("model", [Hyperty, DataObject])
def test_what_is_due_is_found_by_an_index(model: type[Hyperty] | type[DataObject]) -> None:
    now = timezone.now()
    for due in (
        model.objects.filter(expires_at__lte=now).order_by("expires_at"),
        model.objects.filter(status="dead", ended_at__lte=now).order_by("ended_at"),
        model.objects.filter(news_at__isnull=False).order_by("news_at"),
    ):
        plan = due[:10].explain()
        assert "USING INDEX" in plan
        assert "B-TREE" not in plan  # nothing is sorted


def test_objects_are_found_through_the_hyperties_that_report_them() -> None:
    api.register(Kind.HYPERTY, "hyperty://d/1", hyperty(guid="g1"), "user://d/alice@d")
    api.register(Kind.OBJECT, "comm://d/1", data_object(reporter="hyperty://d/1"))
    api.register(Kind.OBJECT, "context://d/2", data_object(reporter="hyperty://d/1"))
    api.register(Kind.OBJECT, "comm://d/3", data_object(reporter="hyperty://d/3"))
    for key, value in (("user", "user://d/alice@d"), ("email", "alice@d"), ("guid", "g1")):
        found = api.find(Search.by(Kind.OBJECT, key, value))
        assert {entry.url for entry in found} == {"comm://d/1", "context://d/2"}
        found = api.find(Search.by(Kind.OBJECT, key, value, scheme="comm"))
        assert {entry.url for entry in found} == {"comm://d/1"}


def test_a_search_is_compiled_once_and_asks_for_other_values_each_time() -> None:
    searches._query.cache_clear()
    for name in ("alice", "bob", "nobody"):
        user = f"user://d/{name}@d"
        for number in range(3 if name != "nobody" else 0):
            facts = hyperty(guid=f"g-{name}", resources=["chat"], runtime=f"runtime://d/{name}")
            api.register(Kind.HYPERTY, f"hyperty://d/{name}-{number}", facts, user)
        for keys in (
            {"user": user},
            {"guid": f"user-guid://g-{name}"},
            {"guid": f"g-{name}"},
            {"user": user, "guid": f"g-{name}", "runtime": f"runtime://d/{name}"},
        ):
            found = api.find(Search(Kind.HYPERTY, **keys))
            wanted = Hyperty.objects.filter(user__user_id=user).order_by("-id")
            assert [entry.url for entry in found] == [row.url for row in wanted]
            assert all(entry.resources == ("chat",) for entry in found)
            assert all(
                entry.modified == row.modified_at for entry, row in zip(found, wanted, strict=True)
            )
    assert searches._query.cache_info().misses == 3


def test_searches_with_the_same_keys_share_a_statement_and_each_has_its_own_answer(
    django_assert_num_queries: DjangoAssertNumQueries,
) -> None:
    for number in range(3):
        api.register(Kind.HYPERTY, f"hyperty://d/{number}", hyperty(), "user://d/alice@d")
    api.register(Kind.OBJECT, "comm://d/1", data_object(name='50 % of "it", \\ é'))
    asked = [
        Search(Kind.HYPERTY, user="user://d/nobody"),
        Search(Kind.HYPERTY, user="user://d/alice@d"),
        Search(Kind.HYPERTY),
        Search(Kind.HYPERTY, user="user://d/\x00"),
        Search(Kind.OBJECT, name='50 % of "it", \\ é'),
        Search(Kind.HYPERTY, user="user://d/alice@d", data_schemes=("nothing",)),
    ]
    with django_assert_num_queries(2):
        found = api.find_each(asked)
    assert isinstance(found.pop(2), BadMessage)
    assert [[entry.url for entry in each] for each in found] == [
        [],
        ["hyperty://d/2", "hyperty://d/1", "hyperty://d/0"],
        [],
        ["comm://d/1"],
        [],
    ]


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=20), max_size=8))
@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_is_asked_for_together_is_found_as_if_asked_for_alone(names: list[str]) -> None:
    for name in names:
        if name and "\x00" not in name:
            api.register(Kind.OBJECT, f"comm://d/{name.encode().hex()}", data_object(name=name))
    asked = [Search(Kind.OBJECT, name=name) for name in names if name]
    for search, found in zip(asked, api.find_each(asked), strict=True):
        assert isinstance(found, list)
        assert found == api.find(search)
        assert {entry.name for entry in found} == (
            {search.name} - {n for n in names if "\x00" in n}
        )


def test_of_searches_one_that_matches_too_much_is_refused_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(searches, "MAX_MATCHES", 2)
    for number in range(3):
        api.register(Kind.HYPERTY, f"hyperty://d/{number}", hyperty(guid="g"), "user://d/alice@d")
    api.register(Kind.HYPERTY, "hyperty://d/b", hyperty(), "user://d/bob@d")
    many, one = api.find_each(
        [Search.by(Kind.HYPERTY, "user", f"user://d/{name}@d") for name in ("alice", "bob")]
    )
    assert isinstance(many, TooMany)
    assert isinstance(one, list)
    assert [entry.url for entry in one] == ["hyperty://d/b"]


def test_a_search_without_a_key_is_refused() -> None:
    with pytest.raises(BadMessage):
        api.find(Search(Kind.HYPERTY, resources=("chat",)))
