"""What is entered in the routing table, taken out of it, and told to who watches it."""

from __future__ import annotations

import pytest

from msgnode.bus.ports import Layer
from msgnode.bus.table import RoutingTable
from tests.fakes import FakeSession

from .test_table import Watcher

ADDRESS, OTHER = "comm://d/1", "comm://d/2"
URL = "runtime://d/1"


def watched() -> tuple[RoutingTable, Watcher]:
    table, watcher = RoutingTable(), Watcher()
    table.observe(watcher)  # type: ignore[arg-type]
    return table, watcher


def session(url: str = URL, is_here: bool = True, bound_at: float = 0.0) -> FakeSession:
    made = FakeSession(url)
    made.is_here, made.bound_at = is_here, bound_at
    return made


def test_ids_of_a_group_are_made_once_for_as_long_as_it_stays() -> None:
    table = RoutingTable()
    one, two = session(), session()
    for each in (one, two):
        table.subscribe(ADDRESS, each)
        table.subscribe(OTHER, each)
    group = table.listeners(ADDRESS)
    ids = table.ids(ADDRESS, group)
    assert ids == {one.id, two.id}
    assert table.ids(ADDRESS, group) is ids
    assert table.ids(OTHER, table.listeners(OTHER)) is not ids
    stranger = (one,)  # not whom the table knows by this address: nothing is kept of it
    assert table.ids(ADDRESS, stranger) == {one.id}
    assert table.ids(ADDRESS, group) is ids
    table.unsubscribe(ADDRESS, two)
    assert table.ids(ADDRESS, table.listeners(ADDRESS)) == {one.id}
    table.subscribe(ADDRESS, two)
    assert table.ids(ADDRESS, table.listeners(ADDRESS)) == {one.id, two.id}
    assert set(table._ids) == {ADDRESS, OTHER}


def test_ids_are_kept_of_present_groups_alone() -> None:
    table = RoutingTable()
    one = session()
    table.subscribe(ADDRESS, one)
    table.ids(ADDRESS, table.listeners(ADDRESS))
    table.unsubscribe(ADDRESS, one)
    assert (table._ids, table._fan_out, table._subscribers) == ({}, {}, {})
    assert table.listeners(ADDRESS) == ()


def test_runtimes_below_an_address_are_found_in_order_and_no_others() -> None:
    table = RoutingTable()
    for url in ("runtime://d/1/b", "runtime://d/1", "runtime://d/1/a", "runtime://d/10",
                "runtime://d/1/c", "runtime://d/0", "runtime://e/1"):  # fmt: skip
        table.add_runtime(session(url))
    below = ["runtime://d/1/a", "runtime://d/1/b", "runtime://d/1/c"]
    assert list(table.runtimes_below(URL)) == below
    assert list(table.runtimes_below("runtime://e")) == ["runtime://e/1"]
    assert list(table.runtimes_below("runtime://f")) == []
    assert list(RoutingTable().runtimes_below(URL)) == []


@pytest.mark.parametrize("is_here", [True, False])
def test_it_is_known_what_sessions_of_this_worker_hear_hold_and_speak_as(is_here: bool) -> None:
    table, one = RoutingTable(), session(is_here=is_here)
    for ask in (table.is_heard_here, table.is_held_here, table.is_learned_here):
        assert ask(ADDRESS) is False
        assert ask(URL) is False
    table.subscribe(ADDRESS, one)
    assert (table.is_heard_here(ADDRESS), table.is_held_here(ADDRESS)) == (is_here, False)
    table.allocate(OTHER, one)
    assert (table.is_held_here(OTHER), table.is_heard_here(OTHER)) == (is_here, False)
    table.learn("hyperty://d/1", one)
    assert table.is_learned_here("hyperty://d/1") is is_here
    table.add_runtime(one)
    assert (table.is_held_here(URL), table.is_held_here(f"{URL}/x")) == (is_here, False)


def test_one_that_is_here_among_others_that_are_not_counts() -> None:
    table = RoutingTable()
    for is_here in (False, True, False):
        each = session(is_here=is_here)
        table.subscribe(ADDRESS, each)
        table.add_runtime(each)
    assert table.is_heard_here(ADDRESS)
    assert table.is_held_here(URL)


def test_the_sessions_of_a_runtime_stand_in_the_order_of_their_sockets() -> None:
    table = RoutingTable()
    made = {at: session(bound_at=at) for at in (3.0, 1.0, 2.0, 4.0)}
    for each in made.values():
        table.add_runtime(each)
    assert [each.bound_at for each in table.runtimes[URL]] == [1.0, 2.0, 3.0, 4.0]
    assert table.at_runtime(URL) is made[4.0]
    again = session(bound_at=2.0)  # at the same time: whoever came later is the newer
    table.add_runtime(again)
    assert table.runtimes[URL][2] is again


def test_a_runtime_is_shared_as_long_as_it_has_several_sessions() -> None:
    table = RoutingTable()
    one, two, three = (session() for _ in range(3))
    for each, shared in ((one, set()), (two, {URL}), (three, {URL})):
        table.add_runtime(each)
        assert table.shared == shared
    table.remove_runtime(three)
    assert table.shared == {URL}
    table.remove_runtime(two)
    assert table.shared == set()
    table.add_runtime(two)
    assert table.shared == {URL}


def test_who_watches_is_told_of_sessions_of_this_worker_that_come_and_go() -> None:
    table, watcher = watched()
    here, away = session(), session(is_here=False)
    for each in (here, away):
        table.add_runtime(each)
        table.touch(each)
    assert watcher.heard == [("entered", here)] * 2
    watcher.heard.clear()
    table.remove_runtime(away)
    table.remove_runtime(session())  # which never came
    assert watcher.heard == []
    table.remove_runtime(here)
    table.remove_runtime(here)
    assert watcher.heard == [("left", here)]


def test_who_watches_is_told_of_who_speaks_as_an_address_and_who_did_before() -> None:
    table, watcher = watched()
    one, two, away = session(), session(), session(is_here=False)
    table.learn(ADDRESS, one)
    table.learn(ADDRESS, one)
    table.learn(ADDRESS, two)
    table.learn(ADDRESS, away)
    assert watcher.heard == [
        ("changed", Layer.LEARNED, ADDRESS, one, True, None),
        ("changed", Layer.LEARNED, ADDRESS, two, True, one),
    ]
    assert table.learned[ADDRESS] is away


def test_a_session_that_stands_in_for_one_nobody_entered_changes_nothing() -> None:
    table = RoutingTable()
    table.replace(session(), session(), [ADDRESS], [ADDRESS], [ADDRESS])
    assert table.sizes == {
        "allocations": 0, "subscribed_addresses": 0, "runtimes": 0, "learned": 0
    }  # fmt: skip


def test_only_addresses_of_a_peers_domain_go_to_the_peer() -> None:
    table = RoutingTable()
    peer = session("runtime://b.example/node")
    table.add_runtime(peer)
    table.peers = {"b.example": "runtime://b.example/node"}
    assert table.peer_of("hyperty://b.example/1") is peer
    assert table.peer_of("hyperty://c.example/1") is None
    assert table.peer_of("global://b.example/1") is None
    assert table.peer_of("nothing") is None
    assert RoutingTable().peer_of("hyperty://b.example/1") is None
