"""Batches of commands: each refused or done by itself, all in one transaction."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from msgnode.core.errors import NotFound, TooMany
from registry import api, store, writer
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
def test_a_batch_has_a_limit() -> None:
    with pytest.raises(ValueError, match="500"):
        store.apply([registration(1)] * 501)


@pytest.mark.django_db(transaction=True)
def test_of_two_users_who_claim_a_url_at_once_one_gets_it() -> None:
    start = Barrier(4)

    def claim(number: int) -> bool:
        start.wait(5)
        try:
            return writer_of[number % 2].submit(registration(1, user=f"user{number}")).result(10)
        except NotFound:
            return False

    writer_of = (writer.Writer(), writer.Writer())
    with ThreadPoolExecutor(4) as pool:
        outcomes = list(pool.map(claim, range(4)))
    assert len([outcome for outcome in outcomes if outcome]) == 1


@pytest.mark.django_db(transaction=True)
def test_submitted_commands_are_committed_when_their_future_is_done() -> None:
    group = writer.Writer()
    futures = [group.submit(registration(number)) for number in range(50)]
    refused = group.submit(registration(1, user="bob"))
    assert {future.result(10).entry.status for future in futures} == {"live"}
    with pytest.raises(NotFound):
        refused.result(10)
    assert Hyperty.objects.count() == 50


@pytest.mark.django_db(transaction=True)
def test_a_command_that_breaks_its_batch_fails_alone(heard: list) -> None:
    def fail_for_two(changes: object) -> None:
        if any(change.url == "hyperty://d/2" for change in changes):
            raise RuntimeError("no room")

    for number in (1, 2):
        api.carry_out(registration(number, status="disconnected"))
    api.on_change(fail_for_two)
    group = writer.Writer()
    futures = [group.submit(KeepAlive(Kind.HYPERTY, f"hyperty://d/{n}")) for n in (1, 2)]
    assert futures[0].result(10).status_changed
    assert futures[1].exception(10) is not None


def test_a_queue_that_is_full_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "MAX_WAITING", 0)
    with pytest.raises(TooMany):
        writer.Writer().submit(KeepAlive(Kind.HYPERTY, "hyperty://d/1"))
