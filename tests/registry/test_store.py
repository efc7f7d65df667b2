"""Batches of commands: each refused or done by itself, all in one transaction."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from django.db import connection

from msgnode.core.errors import Forbidden, NotFound
from registry import api, store
from registry.api import Disconnect, KeepAlive, Kind, Update
from registry.models import Hyperty

from .conftest import hyperty


def registration(number: int, user: str = "alice", **other: object) -> api.Register:
    return api.registration(Kind.HYPERTY, f"hyperty://d/{number}", hyperty(**other), user)


@pytest.mark.django_db
def test_a_refused_command_leaves_the_others_of_its_batch_alone() -> None:
    outcomes = store.apply([
        registration(1),
        registration(1, user="bob"),
        KeepAlive(Kind.HYPERTY, "hyperty://d/9"),
        registration(2),
    ])  # fmt: skip
    assert [isinstance(outcome, NotFound) for outcome in outcomes] == [False, True, True, False]
    assert Hyperty.objects.count() == 2


@pytest.mark.django_db
def test_commands_of_a_batch_see_those_before_them(heard: list) -> None:
    url = "hyperty://d/1"
    store.apply([
        registration(1, status="created"),
        KeepAlive(Kind.HYPERTY, url),
        Disconnect(Kind.HYPERTY, url),
        Update(Kind.HYPERTY, url, {"status": "live"}),
    ])  # fmt: skip
    assert heard == [(url, "live"), (url, "disconnected"), (url, "live")]
    assert api.get(Kind.HYPERTY, url).status == "live"


@pytest.mark.django_db
def test_who_may_change_every_entry_replaces_one_and_leaves_it_its_owner() -> None:
    store.apply([registration(1)])
    Hyperty.objects.update(owner="subject alice")
    store.apply([registration(1, status="created")])
    assert Hyperty.objects.values_list("owner", "status").get() == ("subject alice", "created")


@pytest.mark.django_db
def test_a_batch_has_a_limit() -> None:
    with pytest.raises(ValueError, match="500"):
        store.apply([registration(1)] * 501)


@pytest.mark.django_db(transaction=True)
def test_of_two_users_who_claim_a_url_at_once_one_gets_it() -> None:
    start = Barrier(4)

    def claim(number: int) -> bool:
        start.wait(5)
        try:
            return not isinstance(store.apply([registration(1, user=f"user{number}")])[0], NotFound)
        finally:
            connection.close()

    with ThreadPoolExecutor(4) as pool:
        outcomes = list(pool.map(claim, range(4)))
    assert outcomes.count(True) == 1


@pytest.mark.django_db
def test_what_a_check_refuses_changes_nothing() -> None:
    def refuse() -> None:
        raise Forbidden("not any more")

    with pytest.raises(Forbidden):
        store.apply([registration(1)], check=refuse)
    assert not Hyperty.objects.exists()
