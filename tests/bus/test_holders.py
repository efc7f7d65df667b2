"""Before a message is routed, it is known who at other workers holds what it is for or about."""

from __future__ import annotations

import json
from collections.abc import Collection, Hashable

import pytest

from msgnode.bus.holders import NoOthers, find_holders
from msgnode.bus.return_paths import ReturnPath
from msgnode.bus.routes import ComponentBook
from msgnode.bus.table import RoutingTable
from msgnode.core import messages
from tests.fakes import DOMAIN, FakeSession

PEER = "runtime://third.example/messaging-node-1"
VISITOR, CAROL = "runtime://third.example/carols-own", "hyperty://third.example/carol"


class Others(NoOthers):
    """Other workers, of which some names are known."""

    def __init__(self, *known: str) -> None:
        self.known = set(known)
        self.asked: list[str] = []

    def hears(self, address: str) -> bool:
        return address in self.known

    def find(self, key: Hashable, addresses: Collection[str]) -> None:
        self.asked += addresses

    require = find


class Registry:
    """A component that asks whose the address is that a message names."""

    addresses = (f"domain://registry.{DOMAIN}",)
    answers_below = False

    def addresses_of(self, message: messages.Message) -> list[str]:
        return [message.fields()["resource"]]


def asked_for(to: str, *known: str, peers: bool = True, about: str = "") -> list[str]:
    table, others = RoutingTable(), Others(*known)
    session = FakeSession(f"runtime://{DOMAIN}/alice")
    table.add_runtime(session)
    if peers:
        table.peers = {"third.example": PEER}
    frame = {"id": 1, "type": "read", "from": session.runtime_url, "to": to}
    frame["body"] = {"resource": about}
    message = messages.parse(json.dumps(frame).encode())
    book = ComponentBook([Registry()])  # type: ignore[list-item]
    find_holders(others, message, session, book, table)  # type: ignore[arg-type]
    return others.asked


@pytest.mark.parametrize("to", ["hyperty://third.example/1", "domain://msg-node.third.example/sm"])
def test_the_session_of_the_peer_is_looked_for_with_the_address(to: str) -> None:
    assert asked_for(to) == [PEER, to]
    assert asked_for(to, to) == [PEER], "the address was heard of before the peer was there"
    assert asked_for(to, to, PEER) == []


@pytest.mark.parametrize(
    ("asker", "missing"), [(VISITOR, [PEER, VISITOR, CAROL]), (PEER, [PEER, CAROL])]
)
def test_a_response_looks_for_the_visitor_who_has_asked_beside_the_node_of_his_domain(
    asker: str, missing: list[str]
) -> None:
    table, others = RoutingTable(), Others()
    session = FakeSession(f"runtime://{DOMAIN}/alice")
    table.add_runtime(session)
    table.peers = {"third.example": PEER}
    table.return_paths.remember(ReturnPath(CAROL, "1", "his session", asker))
    frame = {"id": "1", "type": "response", "from": session.runtime_url, "to": CAROL, "body": {}}
    message = messages.parse(json.dumps(frame).encode())
    find_holders(others, message, session, ComponentBook([]), table)  # type: ignore[arg-type]
    assert others.asked == missing


def test_for_an_address_of_no_peers_nothing_more_is_looked_for() -> None:
    to = f"hyperty://{DOMAIN}/1"
    assert asked_for(to) == [to]
    assert asked_for(to, to) == []
    assert asked_for("hyperty://third.example/1", peers=False) == ["hyperty://third.example/1"]


def test_what_a_component_is_asked_about_is_looked_for_though_its_own_address_is_known() -> None:
    """Or whoever named a component's address once could register what others hold."""
    to, about = Registry.addresses[0], f"hyperty://{DOMAIN}/of-somebody"
    assert asked_for(to, about=about) == [about]
    assert asked_for(to, to, about=about) == [about]
    assert asked_for(to, to, about, about=about) == []


class Keys(NoOthers):
    """Other workers, of whom it is kept what is asked of them in which name."""

    def __init__(self) -> None:
        self.found: list[object] = []
        self.required: list[object] = []

    def hears(self, address: str) -> bool:
        return False

    def find(self, key: Hashable, addresses: Collection[str]) -> None:
        self.found.append((key, list(addresses)))

    def require(self, key: Hashable, addresses: Collection[str]) -> None:
        self.required.append((key, list(addresses)))


def looked_for(table: RoutingTable, session: FakeSession, to: object, about: str = "") -> Keys:
    frame = {"id": 7, "type": "read", "from": session.runtime_url, "to": to}
    message = messages.parse(json.dumps(frame | {"body": {"resource": about}}).encode())
    others = Keys()
    book = ComponentBook([Registry()])  # type: ignore[list-item]
    find_holders(others, message, session, book, table)  # type: ignore[arg-type]
    return others


def test_recipients_are_looked_for_in_the_name_of_the_message() -> None:
    table, session = RoutingTable(), FakeSession(f"runtime://{DOMAIN}/alice")
    here = f"hyperty://{DOMAIN}/here"
    table.allocate(here, session)
    away = FakeSession(f"runtime://{DOMAIN}/away")
    away.is_here = False
    table.allocate(f"hyperty://{DOMAIN}/away", away)
    wanted = [f"hyperty://{DOMAIN}/1", f"hyperty://{DOMAIN}/away"]
    others = looked_for(table, session, [here, *wanted])
    assert others.found == [((session.id, b"7", "to"), wanted)]
    assert others.required == []


def test_what_a_component_is_asked_about_is_required_but_for_ones_own() -> None:
    table, session = RoutingTable(), FakeSession(f"runtime://{DOMAIN}/alice")
    mine, other = f"hyperty://{DOMAIN}/mine", f"hyperty://{DOMAIN}/other"
    table.allocate(mine, session)
    table.allocate(other, FakeSession(f"runtime://{DOMAIN}/bob"))
    (component,) = Registry.addresses
    for about, required in (
        (other, [((session.id, b"7", "about"), [other])]),
        (f"hyperty://{DOMAIN}/free", [((session.id, b"7", "about"), [f"hyperty://{DOMAIN}/free"])]),
        (mine, []),
        (session.runtime_url, []),
    ):
        others = looked_for(table, session, component, about)
        assert (others.required, others.found) == (required, [])


def test_the_one_worker_of_a_node_knows_all() -> None:
    alone = NoOthers()
    assert alone.hears("hyperty://d/1") is True
    assert alone.is_known("hyperty://d/1") is True
