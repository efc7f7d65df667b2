"""Changes of many sessions in one transaction: few statements, and each session's in its order."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from django.db import transaction
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from msgnode import models
from msgnode.bus.writing import Call, Change, Create, Delete, Together, Update
from msgnode.storage import alarms, grouping

pytestmark = pytest.mark.django_db

State = models.Session.State
IDS = [uuid.UUID(int=number).hex for number in range(1, 4)]


def opened(id_: str) -> list[Change]:
    row = {"id": id_, "runtime_url": f"runtime://d/{id_}", "token_hash": "h"}
    return [Create(models.Session, [row])]


def allocated(id_: str, address: str) -> list[Change]:
    row = {"address": address, "scheme": "comm", "session_id": id_}
    return [Create(models.Allocation, [row])]


def subscribed(id_: str, address: str) -> list[Change]:
    return [Create(models.Subscription, [{"address": address, "session_id": id_}])]


def detached(id_: str) -> list[Change]:
    return [Update(id_, {"state": State.DETACHED, "worker": "gone"})]


def resumed(id_: str) -> list[Change]:
    return [Update(id_, {"state": State.OPEN, "worker": "w", "identity": {"said": True}})]


def closed(id_: str) -> list[Change]:
    return [
        Update(id_, {"state": State.CLOSED, "close_reason": "closed"}),
        Delete(models.Allocation, id_),
        Delete(models.Subscription, id_),
    ]


def held(model: Any) -> list[tuple[str, str]]:
    found = model.objects.values_list("address", "session_id")
    return sorted((address, session_id.hex) for address, session_id in found)


def rows() -> list[Any]:
    """All that is stored, without what the database numbers."""
    return [
        sorted(models.Session.objects.values_list("id", "state", "worker", "close_reason")),
        held(models.Allocation),
        held(models.Subscription),
    ]


def test_the_ends_of_a_thousand_sessions_are_a_few_statements(
    django_assert_max_num_queries: Any,
) -> None:
    ids = [uuid.uuid4().hex for _ in range(1000)]
    ends, stays = ids[:500], ids[500:]
    grouping.apply(change for id_ in ids for change in opened(id_))
    grouping.apply(change for id_ in ends for change in allocated(id_, f"comm://d/{id_}"))
    with django_assert_max_num_queries(20):
        grouping.apply(
            change
            for end, stay in zip(ends, stays, strict=True)
            for change in (*opened(uuid.uuid4().hex), *detached(stay), *closed(end))
        )
    assert models.Allocation.objects.count() == 0
    assert models.Session.objects.filter(state=State.CLOSED).count() == 500
    assert models.Session.objects.filter(state=State.DETACHED).count() == 500


@pytest.mark.parametrize("change", [detached, resumed, closed])
def test_a_session_that_an_operator_has_closed_stays_as_he_left_it(change: Any) -> None:
    one, other, _ = IDS
    grouping.apply([*opened(one), *opened(other)])
    models.Session.objects.filter(id=one).update(state=State.CLOSED, close_reason="by hand")
    grouping.apply([*change(one), *change(other)])
    row = models.Session.objects.get(id=one)
    assert (row.state, row.close_reason, row.worker) == (State.CLOSED, "by hand", "")
    assert models.Session.objects.get(id=other).state == change(other)[0].columns["state"]


def test_an_address_that_an_end_frees_is_another_sessions_in_the_same_transaction() -> None:
    one, other, third = IDS
    grouping.apply([*opened(one), *opened(other), *opened(third), *allocated(one, "comm://d/a")])
    grouping.apply([*allocated(third, "comm://d/b"), *closed(one), *allocated(other, "comm://d/a")])
    assert rows()[1] == [("comm://d/a", other), ("comm://d/b", third)]


def test_a_call_sees_what_was_submitted_before_it_and_nothing_later() -> None:
    one, other, _ = IDS
    seen: list[int] = []
    count = Call(lambda: seen.append(models.Session.objects.count()))
    grouping.apply([*opened(one), count, *opened(other), count])
    assert seen == [1, 2]


def test_what_is_done_together_is_done_once_for_all() -> None:
    grouping.apply(
        Together(alarms.raise_alarms, alarms.Raised("gap", subject, text))
        for subject, text in [("a", "1"), ("b", "1"), ("a", "2")]
    )
    grouping.apply([Together(alarms.raise_alarms, alarms.Raised("gap", "b", "3"))])
    found = models.Alarm.objects.order_by("subject").values_list("subject", "text", "count")
    assert list(found) == [("a", "2", 2), ("b", "3", 2)]


STEPS = st.tuples(
    st.sampled_from([allocated, subscribed, detached, resumed, closed]),
    st.sampled_from(IDS),
)


@settings(
    max_examples=settings().max_examples // 2,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
@given(st.lists(STEPS, max_size=14))
def test_grouped_or_one_by_one_the_rows_are_the_same(steps: list[Any]) -> None:
    changes = [opened(id_) for id_ in IDS]
    for number, (step, id_) in enumerate(steps):
        wants_address = step in (allocated, subscribed)
        changes.append(step(id_, f"comm://d/{number}") if wants_address else step(id_))

    found = []
    for grouped in (True, False):
        with transaction.atomic():
            if grouped:
                grouping.apply(change for each in changes for change in each)
            else:
                for each in changes:
                    grouping.apply(each)
            found.append(rows())
            transaction.set_rollback(True)
    assert found[0] == found[1]


def test_addresses_given_back_one_by_one_are_one_statement_in_the_order_of_the_session(
    django_assert_max_num_queries: Any,
) -> None:
    first, second, _ = IDS
    addresses = [f"comm://d/{number}" for number in range(1000)]
    with transaction.atomic():
        grouping.apply(
            [
                *opened(first),
                *opened(second),
                *(each for address in addresses for each in allocated(first, address)),
                *allocated(second, "comm://d/kept"),
            ]
        )
    with transaction.atomic(), django_assert_max_num_queries(4):
        grouping.apply(
            [
                *(Delete(models.Allocation, first, [each]) for each in addresses[:999]),
                Delete(models.Allocation, first, ["comm://d/kept"]),
                *allocated(second, "comm://d/0"),
            ]
        )
    assert held(models.Allocation) == [
        ("comm://d/0", second),
        ("comm://d/999", first),
        ("comm://d/kept", second),
    ]
    with transaction.atomic():
        again = allocated(first, "comm://d/1")
        grouping.apply([*again, Delete(models.Allocation, first, ["comm://d/1"])])
    assert not models.Allocation.objects.filter(address="comm://d/1").exists()
