"""Which alarms about peers stand after an operator has decided."""

from __future__ import annotations

import pytest

from msgnode.federation import store
from msgnode.models import Alarm, Peer
from msgnode.storage.alarms import raise_alarm

pytestmark = pytest.mark.django_db

KINDS = ("peer-pending", "peer-stuck", "stub-failing", "stub-changed", "peer-spoofs")


@pytest.mark.parametrize(
    ("decision", "standing"),
    [
        ("pending", {"peer-pending", "stub-changed"}),
        ("approved", {"peer-stuck", "stub-failing", "stub-changed"}),
        ("paused", {"stub-changed"}),
        ("blocked", {"stub-changed"}),
        ("removed", set()),
    ],
)
def test_an_alarm_stands_while_something_is_left_to_decide_or_to_repair(
    decision: str, standing: set[str]
) -> None:
    """That somebody has spoken in the name of this domain only a person clears."""
    if decision != "removed":
        Peer.objects.create(domain="b.example", decision=decision)
    for kind in KINDS:
        raise_alarm(kind, "b.example", "It is so.")
    store.clear_settled()
    found = Alarm.objects.filter(cleared_at=None).values_list("kind", flat=True)
    assert set(found) == {*standing, "peer-spoofs"}
