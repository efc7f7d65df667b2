"""Every search has an index, and finds what it is asked for."""

from __future__ import annotations

import pytest
from django.db import connection
from django.utils import timezone

from msgnode.core.errors import BadMessage
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
    plan = searches._newest(search.kind, values, 10).explain()
    assert "USING" in plan
    assert "SCAN" not in plan


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
        for given in (
            {"user": user},
            {"guid": f"user-guid://g-{name}"},
            {"guid": f"g-{name}"},
            {"user": user, "guid": f"g-{name}", "runtime": f"runtime://d/{name}"},
        ):
            found = api.find(Search(Kind.HYPERTY, **given))
            wanted = Hyperty.objects.filter(user__user_id=user).order_by("-id")
            assert [entry.url for entry in found] == [row.url for row in wanted]
            assert all(entry.resources == ("chat",) for entry in found)
            assert all(
                entry.modified == row.modified_at for entry, row in zip(found, wanted, strict=True)
            )
    assert searches._query.cache_info().misses == 3


def test_a_search_without_a_key_is_refused() -> None:
    with pytest.raises(BadMessage):
        api.find(Search(Kind.HYPERTY, resources=("chat",)))
