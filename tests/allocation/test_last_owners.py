"""Last owners of addresses are written in limited numbers, of one subject and of all."""

from __future__ import annotations

from asyncio import Future
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from msgnode.allocation import store
from msgnode.allocation.store import AllocationStore
from msgnode.bus.writing import Change
from msgnode.models import AddressOwner, ControlMessage
from msgnode.storage import grouping

pytestmark = pytest.mark.django_db

ALICE, BOB = ("https://issuer", "alice"), ("https://issuer", "bob")


class WriterAtOnce:
    """Writes what is submitted before it returns."""

    def submit(self, *changes: Change, result: Any = None) -> Future[Any]:
        grouping.apply(changes)
        return None  # type: ignore[return-value]  # nobody waits here


@pytest.fixture
def owners(monkeypatch: pytest.MonkeyPatch) -> AllocationStore:
    monkeypatch.setattr(store, "_OWNERS_AT_ONCE", 1)
    monkeypatch.setattr(store, "OWNED_PER_SUBJECT", 3)
    monkeypatch.setattr(store, "OWNERS_KEPT", 5)
    return AllocationStore(WriterAtOnce())


def left() -> set[str]:
    return set(AddressOwner.objects.values_list("address", flat=True))


def test_the_oldest_of_the_subject_go_first(owners: AllocationStore) -> None:
    owners.left(["b0", "b1"], BOB)
    for name in ("a", "c", "d"):
        owners.left([f"{name}0", f"{name}1"], ALICE)
    assert {"b0", "b1", "d0", "d1"} < left()
    assert len(left()) == 5


def test_no_more_than_are_kept_of_a_single_session(owners: AllocationStore) -> None:
    owners.left([f"a{each}" for each in range(8)], ALICE)
    assert left() == {"a5", "a6", "a7"}


def test_the_oldest_of_all_go_where_there_are_many_subjects(owners: AllocationStore) -> None:
    for each in range(8):
        owners.left([f"a{each}"], ("https://issuer", str(each)))
    assert left() == {f"a{each}" for each in range(3, 8)}


def test_what_every_worker_has_read_of_them_goes(owners: AllocationStore) -> None:
    old = timezone.now() - timedelta(minutes=2)
    ControlMessage.objects.create(kind=AllocationStore.LEFT, created_at=old)
    ControlMessage.objects.create(kind="bans.changed", created_at=old)
    owners.left(["hyperty://d/1"], ALICE)
    kinds = ControlMessage.objects.values_list("kind", flat=True)
    assert sorted(kinds) == ["bans.changed", AllocationStore.LEFT]
