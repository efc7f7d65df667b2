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

SEARCHES = [
    *(Search.by(Kind.HYPERTY, key, "x") for key in ("url", "user", "email", "guid", "runtime")),
    *(Search.by(Kind.OBJECT, key, "x") for key in ("url", "name", "reporter", "runtime")),
    *(Search.by(Kind.OBJECT, key, "x") for key in ("user", "email", "guid")),
]


@pytest.mark.skipif(connection.vendor != "sqlite", reason="reads the words of SQLite's plans")
@pytest.mark.parametrize("search", SEARCHES, ids=str)
def test_a_search_looks_into_an_index(search: Search) -> None:
    plan = searches._keyed(search).order_by("-id")[:10].explain()
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


def test_a_search_without_a_key_is_refused() -> None:
    with pytest.raises(BadMessage):
        api.find(Search(Kind.HYPERTY, resources=("chat",)))
