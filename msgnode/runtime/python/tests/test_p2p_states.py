"""The state tables of P2P connections: cases P20, P26, P33, P58 and P59 where they are rules."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from msgnode.runtime.python.p2p.states import (
    HANDLER,
    REQUESTER,
    Event,
    Invitations,
    Quarantine,
    Redials,
    State,
    after,
    runtime_of_handler,
    status_of,
    stays_requester,
)


def path(table: object, *events: Event) -> list[str]:
    state, states = State.NONE, []
    for event in events:
        state = after(table, state, event)  # type: ignore[arg-type]
        states.append(str(state))
    return states


def test_a_requester_goes_its_way_and_back_and_comes_again() -> None:
    E = Event
    assert path(REQUESTER, E.DEPLOYED, E.ANSWERED, E.OPENED, E.LOST, E.REDIAL, E.ANSWERED) == [
        "created", "in-progress", "live", "disconnected", "created", "in-progress"
    ]  # fmt: skip
    assert path(HANDLER, E.DEPLOYED, E.ANNOUNCED, E.OPENED, E.LOST, E.FORGOTTEN) == [
        "created", "in-progress", "live", "disconnected", "ended"
    ]  # fmt: skip


@pytest.mark.parametrize("event", [Event.REFUSED, Event.TIMED_OUT, Event.BROKEN, Event.FORBIDDEN])
def test_case_p20_what_fails_before_it_is_live_has_failed(event: Event) -> None:
    assert path(REQUESTER, Event.DEPLOYED, event)[-1] == "failed"
    assert path(REQUESTER, Event.DEPLOYED, Event.ANSWERED, event)[-1] == "failed"


def test_case_p26_a_withdrawn_invitation_has_not_failed() -> None:
    assert path(REQUESTER, Event.DEPLOYED, Event.GLARE, Event.OPENED)[-1] == "live"


@pytest.mark.parametrize("table", [REQUESTER, HANDLER])
@given(events=st.lists(st.sampled_from(Event), max_size=30))
def test_no_order_of_events_leads_out_of_the_table(
    table: dict[tuple[State, Event], State], events: list[Event]
) -> None:
    state = State.NONE
    for event in events:
        before, state = state, after(table, state, event)
        assert state is not State.NONE or before is State.NONE
        assert before is not State.ENDED or state is State.ENDED
        if state is State.LIVE and before is not State.LIVE:
            assert event is Event.OPENED


@pytest.mark.parametrize(
    ("word", "state"),
    [
        *((each, State(each)) for each in ("created", "in-progress", "live", "disconnected")),
        *(("failed", State.FAILED), ("create", State.CREATED), ("ended", None), ("", None)),
        *((None, None), (["live"], None)),
    ],
)
def test_case_p59_the_words_on_the_wire(word: object, state: State | None) -> None:
    assert status_of(word) is state


def test_case_p26_of_two_that_invite_each_other_the_smaller_stays_requester() -> None:
    assert stays_requester("runtime://a/1", "runtime://b/2")
    assert not stays_requester("runtime://b/2", "runtime://a/1")
    assert stays_requester("runtime://a/1", "hyperty-runtime://b/2")
    assert not stays_requester("runtime://b/2", "hyperty-runtime://a/1")


@given(st.text(max_size=20), st.text(max_size=20))
def test_case_p26_both_sides_come_to_the_same_end(one: str, other: str) -> None:
    first, second = f"runtime://d/{one}", f"hyperty-runtime://d/{other}"
    if one != other:
        assert stays_requester(first, second) is not stays_requester(second, first)


@pytest.mark.parametrize(
    ("handler", "runtime"),
    [
        ("runtime://b/2/p2phandler/g", "runtime://b/2"),
        ("hyperty-runtime://b/2/p2phandler/g", "hyperty-runtime://b/2"),
        ("runtime://b/p2phandler/g", ""),
        ("comm://b/2/p2phandler/g", ""),
        ("runtime://b/2/p2phandler/", ""),
        ("runtime://b/2", ""),
    ],
)
def test_the_runtime_of_a_handler_is_what_stands_above_it(handler: str, runtime: str) -> None:
    assert runtime_of_handler(handler) == runtime


def test_case_p20_after_failures_a_runtime_is_left_alone_ever_longer() -> None:
    quarantine = Quarantine()
    assert quarantine.until("b") == 0
    assert [quarantine.failed("b", 100.0) - 100 for _ in range(8)] == [
        30, 60, 120, 240, 480, 960, 1800, 1800
    ]  # fmt: skip
    assert quarantine.until("c") == 0
    quarantine.lift("b")
    assert quarantine.failed("b", 0.0) == 30


@given(st.lists(st.floats(0, 1), min_size=6, max_size=6))
def test_case_p33_a_lost_connection_is_dialled_six_times_in_ten_minutes(
    jitters: list[float],
) -> None:
    redials, now = Redials(), 0.0
    for count, jitter in enumerate(jitters):
        delay = redials.next(now, jitter)
        assert delay is not None
        assert 0 <= delay <= (1 if not count else min(60, 2**count))
    assert redials.next(now, 0.5) is None
    assert redials.next(now + 601, 0.5) == 0.5


def test_case_p58_the_eleventh_invitation_and_the_thirty_third_connection_are_too_many() -> None:
    invitations = Invitations()
    assert [invitations.is_too_many("a", 0, 1.0) for _ in range(11)] == [False] * 10 + [True]
    assert not invitations.is_too_many("b", 31, 1.0)
    assert invitations.is_too_many("b", 32, 1.0)
    assert not invitations.is_too_many("a", 0, 62.0)
