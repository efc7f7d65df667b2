"""Visitors of a worker: who is one, how many there may be, and when a visit is over."""

from __future__ import annotations

import time
import uuid
from types import SimpleNamespace
from typing import Any

import pytest

from msgnode.core.digest import digest
from msgnode.core.errors import Forbidden, TooMany
from msgnode.core.identity import Origin, Speaker
from msgnode.sessions.rules import Event, State
from msgnode.sessions.session import LiveSession, SessionLimits
from msgnode.sessions.session_factory import session_of, state_of
from msgnode.sessions.visitors import VisitorLimits, Visitors

HOME, AWAY = "a.example", "b.example"


class Door:
    """Visitors of a worker, whose time the test tells, and what they listen to."""

    def __init__(self, **limits: Any) -> None:
        known = {"total": 5, "per_domain": 3, "per_source": 4, "idle": 60.0, "stay": 0.0}
        self.now = 0.0
        self.heard: set[str] = set()
        self.ended: list[tuple[str, int, str]] = []
        self.refused_domains: set[str] = set()
        self.visitors = Visitors(
            VisitorLimits(**{**known, **limits}),
            HOME,
            lambda url: url.split("/")[2] in self.refused_domains,
            lambda session: self.heard if session.id in self.heard else (),
            self.end,
            lambda: self.now,
        )

    def end(self, session: LiveSession, code: int, text: str) -> None:
        self.ended.append((session.runtime_url, code, text))
        self.visitors.closed(session, text)

    def come(self, domain: str = AWAY, source: str = "192.0.2.1") -> LiveSession:
        url = f"runtime://{domain}/{uuid.uuid4().hex}"
        self.visitors.check(url, Speaker("", url, remote_address=source), True)
        session = visitor(url, source)
        self.visitors.entered(session)
        return session

    def look(self) -> None:
        for visit in self.visitors:
            self.visitors.look_at(visit)


def visitor(url: str, source: str = "192.0.2.1", **speaker: Any) -> LiveSession:
    id_ = uuid.uuid4().hex
    who = Speaker(id_, url, speaker.pop("origin", Origin.FOREIGN), source, **speaker)
    limits = SessionLimits(100_000, stores=True)
    session = LiveSession(who, "ws", digest(id_), limits, State.OPEN)
    session.socket = SimpleNamespace(flow=SimpleNamespace(frames=0))  # type: ignore[assignment]
    return session


def test_case_84_one_more_than_a_limit_is_refused_with_its_name_and_none_before() -> None:
    door = Door()
    first = [door.come() for _ in range(3)]
    with pytest.raises(TooMany, match=r"3 visitors of b\.example \(VISITORS_PER_DOMAIN\)"):
        door.come()
    door.come("c.example")
    with pytest.raises(TooMany, match=r"4 visitors of your address \(VISITORS_PER_SOURCE\)"):
        door.come("c.example")
    door.come("c.example", "192.0.2.2")
    with pytest.raises(TooMany, match=r"5 visitors of other domains \(VISITORS\)"):
        door.come("d.example", "192.0.2.2")
    assert dict(door.visitors.refused) == {
        "visitors_per_domain": 1, "visitors_per_source": 1, "visitors": 1,
    }  # fmt: skip
    door.visitors.closed(first[0], "")
    door.visitors.closed(first[0], "")  # told twice
    door.come()
    assert (len(door.visitors), door.visitors.domains) == (5, 2)


def test_case_84_a_limit_keeps_nobody_out_who_is_here_already_or_at_home() -> None:
    door = Door(total=1)
    session = door.come()
    door.visitors.check(session.runtime_url, session.speaker, False)
    door.visitors.check(f"runtime://{HOME}/x", Speaker("", ""), True)
    door.visitors.check("runtime:/x", Speaker("", ""), True)
    moved = visitor("runtime://c.example/moved")  # from another worker, whatever the limit
    door.visitors.entered(moved)
    assert len(door.visitors) == 2


def test_a_domain_is_told_apart_from_what_looks_like_it() -> None:
    door = Door(per_domain=1)
    door.come("b.example")
    with pytest.raises(TooMany):
        door.come("B.Example")
    with pytest.raises(TooMany):
        door.come("msg-node.b.example")
    door.come("b.example:8443")


def test_many_domains_that_one_source_makes_up_leave_nothing_behind() -> None:
    door = Door(total=10_000, per_source=10_000)
    sessions = [door.come(f"d{number}.example") for number in range(1_000)]
    assert door.visitors.domains == 1_000
    for each in sessions:
        door.visitors.left(each.id)
    assert (len(door.visitors), door.visitors.domains) == (0, 0)


def test_case_88_runtimes_of_a_domain_that_is_refused_get_nothing_but_its_node_is_not_meant() -> (
    None
):
    door = Door()
    kept = door.come()
    door.refused_domains.add(AWAY)
    for is_new in (True, False):
        with pytest.raises(Forbidden, match=AWAY):
            door.visitors.check(kept.runtime_url, kept.speaker, is_new)
    peer = Speaker("", kept.runtime_url, Origin.FOREIGN, peer=AWAY)
    door.visitors.check(kept.runtime_url, peer, True)
    node = visitor(kept.runtime_url, peer=AWAY)
    door.visitors.entered(node)
    assert len(door.visitors) == 1


def test_case_86_a_visit_is_over_when_nothing_has_passed_for_so_long() -> None:
    door = Door(idle=60.0)
    silent, sender, receiver, listener = [door.come(f"d{n}.example") for n in range(4)]
    door.heard.add(listener.id)
    door.now = 59.9
    door.look()
    assert door.ended == []
    sender.socket.flow.frames = 1  # type: ignore[misc,union-attr]
    receiver.outbox.frames += 1
    door.now = 60.0
    door.look()
    assert door.ended == [(silent.runtime_url, 1000, "nothing passed for 60 s")]
    door.heard.clear()
    door.now = 119.9
    door.look()
    assert len(door.ended) == 1
    door.now = 120.0
    door.look()
    assert {url for url, _, _ in door.ended} == {
        each.runtime_url for each in (silent, sender, receiver, listener)
    }
    assert dict(door.visitors.ended) == {"idle": 4}


def test_one_without_a_socket_is_left_to_the_grace_period() -> None:
    door = Door(idle=60.0)
    session = door.come()
    session.step(Event.LOSE)
    door.now = 1_000.0
    door.look()
    assert door.ended == []


def test_zero_means_no_end() -> None:
    door = Door(idle=0.0, stay=0.0)
    session = door.come()
    session.opened_at = 0.0
    door.now = 1e9
    door.look()
    assert door.ended == []


def test_case_87_a_visit_lasts_so_long_and_no_longer_at_another_worker() -> None:
    door = Door(stay=100.0)
    session = door.come()
    door.heard.add(session.id)
    door.now = 99.0
    session.opened_at = 0.0  # as after the clock of the machine was set
    door.look()
    assert door.ended == []
    door.now = 101.0
    door.look()
    assert door.ended == [(session.runtime_url, 1000, "a visit lasts 100 s")]
    elsewhere = Door(stay=100.0)
    session.opened_at = time.time() - 99
    elsewhere.visitors.entered(session)
    elsewhere.look()
    assert elsewhere.ended == []
    elsewhere.now = 2.0
    elsewhere.look()
    assert len(elsewhere.ended) == 1
    moved = session_of(state_of(session), SessionLimits(100_000, stores=True))
    assert moved.opened_at == session.opened_at
