"""Whose an address is that sessions of two workers hold for a moment: no loop, no link."""

from __future__ import annotations

import itertools

import pytest

from msgnode.bus.ports import Listener
from msgnode.bus.table import RoutingTable
from msgnode.workers.linked_worker import LinkedWorker
from msgnode.workers.remote_sessions import ContestedAddresses, RemoteSession
from tests.fakes import FakeSession

AT = "hyperty://d/1"
BEAT = {"name": "other", "epoch": "other", "host": "host", "pid": 1, "inbox": ""}


class Settled:
    """A routing table, and what was taken from sessions of this worker."""

    def __init__(self) -> None:
        self.table = RoutingTable()
        self.withdrawn: list[tuple[str, Listener]] = []
        self.contested = ContestedAddresses(self.table)

    def own(self, session: RemoteSession) -> None:
        if (loser := self.contested.own(session, AT)) is not None:
            self.withdrawn.append((AT, loser))

    @property
    def owner(self) -> Listener | None:
        return self.table.owners.get(AT)

    @property
    def learner(self) -> Listener | None:
        return self.table.learned.get(AT)


@pytest.fixture
def settled() -> Settled:
    return Settled()


def remote(id_: str) -> RemoteSession:
    return RemoteSession(id_, LinkedWorker(BEAT, 0))


def own_session(id_: str) -> FakeSession:
    session = FakeSession("runtime://d/own")
    session.id = id_
    return session


def test_what_a_peer_says_it_holds_is_taken_from_a_session_here(settled: Settled) -> None:
    own, other = own_session("1"), remote("2")
    settled.table.allocate(AT, own)
    settled.own(other)
    assert settled.owner is other
    assert settled.withdrawn == [(AT, own)]
    settled.contested.disown(other, AT)
    assert settled.owner is None, "what was taken does not come back by itself"


def test_of_two_that_peers_hold_the_other_is_left_when_one_lets_go(settled: Settled) -> None:
    one, other = remote("1"), remote("2")
    settled.own(one)
    settled.own(other)
    assert set(settled.contested.at(AT)) == {one, other}
    settled.contested.disown(other, AT)
    assert settled.owner is one
    assert not set(settled.contested.at(AT))
    settled.contested.disown(one, AT)
    assert settled.owner is None
    assert one.owned == other.owned == set()


def test_the_one_that_lets_go_first_may_be_the_one_that_did_not_count(settled: Settled) -> None:
    one, other = remote("1"), remote("2")
    settled.own(one)
    settled.own(other)
    settled.contested.disown(one, AT)
    assert settled.owner is other


def test_what_a_session_here_releases_falls_to_a_peer_that_has_it_already(
    settled: Settled,
) -> None:
    one, other, own = remote("1"), remote("2"), own_session("3")
    settled.own(one)
    settled.own(other)
    settled.table.allocate(AT, own)
    settled.table.release(AT, own)
    settled.contested.fall_back(AT)
    assert settled.owner is one


def test_said_twice_nothing_changes(settled: Settled) -> None:
    one = remote("1")
    for _ in range(2):
        settled.own(one)
        settled.contested.learn(one, AT)
    assert settled.owner is settled.learner is one
    assert not set(settled.contested.at(AT))
    assert not settled.withdrawn


@pytest.mark.parametrize("order", list(itertools.permutations("123")))
def test_a_learned_address_is_that_of_the_smallest_id_whatever_the_order(
    settled: Settled, order: tuple[str, ...]
) -> None:
    sessions = {id_: remote(id_) for id_ in order}
    for id_ in order:
        settled.contested.learn(sessions[id_], AT)
    assert settled.learner is sessions["1"]
    settled.contested.unlearn(sessions["1"], AT)
    assert settled.learner is sessions["2"]
    settled.contested.unlearn(sessions["3"], AT)
    settled.contested.unlearn(sessions["2"], AT)
    assert settled.learner is None
    assert not set(settled.contested.at(AT))


def test_a_session_here_that_spoke_as_an_address_gives_in_to_a_smaller_id(
    settled: Settled,
) -> None:
    own, other = own_session("2"), remote("1")
    settled.table.learn(AT, own)
    settled.contested.learn(other, AT)
    assert settled.learner is other
    settled.contested.unlearn(other, AT)
    assert settled.learner is own
