"""Budgets of queued bytes and of answers under way: bounded in all, and who has most pays first."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from msgnode.bus.ports import DeliveryResult
from msgnode.sessions.budgets import AnswerBudget, QueueBudget
from msgnode.sessions.outbox import Outbox
from tests.fakes import FakeLink

MINE, THEIRS = ("source 192.0.2.1",), ("source 192.0.2.2",)
FRAME = b"x" * 36  # with what a waiting frame costs besides: 100 bytes


class Queues:
    """Outboxes without sockets."""

    def __init__(self, per_holder: int, total: int) -> None:
        self.told: list[str] = []
        self.budget = QueueBudget(per_holder, total, lambda holder, _: self.told.append(holder))

    def make(self, *holders: str, limit: int = 1_000_000) -> Outbox:
        outbox = Outbox(limit, True, lambda: None)
        outbox.charge_to(self.budget, holders)
        return outbox


def put(outbox: Outbox, frames: int) -> int:
    """How many frames were taken."""
    return sum(outbox.put(FRAME) is DeliveryResult.QUEUED for _ in range(frames))


def test_the_sessions_of_one_source_share_one_budget_and_no_others() -> None:
    queues = Queues(1_000, 100_000)
    crowd = [queues.make(*MINE) for _ in range(5)]
    assert sum(put(outbox, 4) for outbox in crowd) == 10
    assert [outbox.has_gap for outbox in crowd] == [False, False, True, True, True]
    assert queues.told == list(MINE)  # once, however many were refused
    assert put(queues.make(*THEIRS), 10) == 10


def test_the_sessions_of_one_subject_share_one_budget_wherever_they_are() -> None:
    queues = Queues(1_000, 100_000)
    taken = [put(queues.make(f"source {each}", "subject alice"), 4) for each in range(5)]
    assert sum(taken) == 10


def test_where_the_node_is_full_who_holds_most_makes_room() -> None:
    queues = Queues(1_000_000, 10_000)
    crowd = [queues.make(*MINE) for _ in range(10)]
    for outbox in crowd:
        put(outbox, 20)
    assert queues.budget.bytes == 10_000
    bystander = queues.make(*THEIRS)
    assert put(bystander, 10) == 10
    assert not bystander.has_gap
    assert crowd[0].has_gap
    assert crowd[0].waiting_bytes == 0
    assert queues.budget.bytes <= 10_000


class UnderWay:
    """A queue of what cannot be given up yet, such as the keys of requests under way."""

    def __init__(self, *holders: str) -> None:
        self.holders, self.waiting_bytes = holders, 0

    def give_up(self) -> None:
        """Nothing of it can be."""

    def take(self, budget: QueueBudget, size: int) -> bool:
        is_taken = budget.take(self, size)
        self.waiting_bytes += size * is_taken
        return is_taken


def test_what_cannot_be_given_up_leaves_others_without_room_and_keeps_nobody_busy() -> None:
    queues = Queues(10_000, 10_000)
    assert UnderWay(*MINE).take(queues.budget, 6_000)
    waits = queues.make(*THEIRS)
    assert put(waits, 30) == 30
    assert UnderWay("source 192.0.2.3").take(queues.budget, 2_000), "others can make room"
    assert waits.waiting_bytes == 0
    assert not UnderWay("source 192.0.2.4").take(queues.budget, 5_000)


def test_what_has_left_or_is_charged_to_another_leaves_room() -> None:
    queues = Queues(1_000, 100_000)
    outbox = queues.make(*MINE)
    assert put(outbox, 10) == 10
    outbox.charge_to(queues.budget, THEIRS)
    assert put(queues.make(*MINE), 10) == 10
    assert put(outbox, 1) == 0
    outbox.take()
    assert put(outbox, 1) == 1
    outbox.clear()
    assert put(queues.make(*THEIRS), 10) == 10


def test_what_a_full_socket_has_not_sent_counts_until_it_is_sent_or_gone() -> None:
    queues = Queues(1_000, 100_000)
    outbox, link = queues.make(*MINE), FakeLink(room=1)
    outbox.attach(link)
    link.unsent_bytes = 600
    outbox.put(FRAME)
    assert (outbox.waiting_bytes, queues.budget.bytes) == (600, 600)
    other = queues.make(*MINE)
    assert put(other, 10) == 4
    link.drain(room=1)
    assert put(other, 10) == 6
    other.clear()
    outbox.put(FRAME)
    assert queues.budget.bytes == 600
    outbox.detach()
    assert (outbox.waiting_bytes, queues.budget.bytes) == (0, 0)


def test_a_full_socket_that_finds_no_room_is_ended() -> None:
    queues = Queues(1_000, 100_000)
    put(queues.make(*MINE), 9)
    ended: list[str] = []
    outbox, link = Outbox(1_000_000, True, lambda: ended.append("ended")), FakeLink(room=1)
    outbox.charge_to(queues.budget, MINE)
    outbox.attach(link)
    link.unsent_bytes = 600
    outbox.put(FRAME)
    assert ended == ["ended"]
    assert link.closed == (1006, "")  # or what it holds would stay for a while
    assert outbox.has_gap
    assert queues.budget.bytes == 900


def test_sockets_that_are_full_make_room_as_well() -> None:
    queues = Queues(1_000_000, 10_000)
    for _ in range(10):
        outbox, link = queues.make(*MINE), FakeLink(room=1)
        outbox.attach(link)
        link.unsent_bytes = 1_000
        outbox.put(FRAME)
    assert queues.budget.bytes == 10_000
    assert put(queues.make(*THEIRS), 10) == 10
    assert queues.budget.bytes <= 10_000


STEPS = st.tuples(st.integers(0, 5), st.sampled_from(["put", "put", "put", "take", "clear"]))


@given(st.lists(STEPS, max_size=200))
def test_whatever_happens_the_sum_is_right_and_within_the_budget(steps: list[Any]) -> None:
    queues = Queues(1_500, 2_000)
    outboxes = [queues.make(f"source {each % 3}", f"subject {each % 2}") for each in range(6)]
    for number, step in steps:
        outbox = outboxes[number]
        if step == "put":
            outbox.put(FRAME)
        else:
            getattr(outbox, step)()
        assert queues.budget.bytes == sum(each.waiting_bytes for each in outboxes) <= 2_000
    for outbox in outboxes:
        outbox.clear()
    assert not queues.budget._holders


def test_a_source_with_too_much_under_way_waits_until_half_is_answered() -> None:
    answers = AnswerBudget(per_source=4, total=100)
    freed: list[int] = []
    answers.count("a", 4)
    assert answers.is_full("a")
    assert not answers.is_full("b")
    answers.when_less("a", lambda: freed.append(1))
    answers.count("a", -1)
    assert not freed
    answers.count("a", -1)
    assert freed == [1]


def test_where_the_node_is_full_only_who_is_over_an_even_share_waits() -> None:
    answers = AnswerBudget(per_source=1_000, total=100)
    answers.count("flood", 95)
    answers.count("bystander", 5)
    assert answers.is_full("flood")
    assert not answers.is_full("bystander")


@given(
    st.integers(0, 6), st.integers(0, 6), st.lists(st.tuples(st.sampled_from("abc"), st.booleans()))
)
def test_with_fewer_answers_under_way_than_the_least_no_source_is_full(
    per_source: int, total: int, steps: list[tuple[str, bool]]
) -> None:
    answers = AnswerBudget(per_source, total)
    pending = dict.fromkeys("abc", 0)
    for source, is_more in steps:
        if is_more or pending[source]:
            change = 1 if is_more else -1
            pending[source] += change
            answers.count(source, change)
        assert answers.pending >= answers.least or not any(map(answers.is_full, "abc"))
