"""Where a message goes, looked up in a table that a test has filled: one line for each rule."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from msgnode.bus.return_paths import ReturnPath
from msgnode.bus.routes import ComponentBook, Nowhere, Route, ToComponent, ToSessions, choose
from msgnode.bus.table import RoutingTable
from msgnode.core import messages
from tests.fakes import DOMAIN, FakeComponent, FakeSession

EXACT = FakeComponent({}, f"domain://msg-node.{DOMAIN}/sm")
BELOW = FakeComponent({}, "mn:/session")
BELOW.answers_below = True
ABOVE = FakeComponent({}, f"domain://registry.{DOMAIN}")
ABOVE.answers_below = True
GATEWAY = FakeComponent({}, "sip:gateway")
BOOK = ComponentBook([EXACT, BELOW, ABOVE, GATEWAY])

ALICE = f"runtime://{DOMAIN}/alice"
BOB = f"runtime://{DOMAIN}/bob"
FOREIGN = "runtime://third.example/carol"


class Place:
    """A routing table, and where messages go in it."""

    def __init__(self) -> None:
        self.table = RoutingTable()
        self.alice = self.enter(ALICE)
        self.bob = self.enter(BOB)

    def enter(self, url: str, token: str = "") -> FakeSession:
        session = FakeSession(url, token)
        self.table.add_runtime(session)
        return session

    def route(
        self, to: str, sender: FakeSession | None = None, type_: str = "create", id_: object = 1
    ) -> Route:
        frame = {"id": id_, "type": type_, "from": BOB, "to": to, "body": {"code": 200}}
        message = messages.parse(json.dumps(frame).encode())
        return choose(message, to, BOOK, self.table, DOMAIN, sender)

    def hearers(self, to: str, sender: FakeSession | None = None) -> tuple[object, ...]:
        route = self.route(to, sender)
        return route.listeners if isinstance(route, ToSessions) else ()


@pytest.fixture
def place() -> Place:
    return Place()


@pytest.mark.parametrize(
    ("to", "component"),
    [
        (f"domain://msg-node.{DOMAIN}/sm", EXACT),
        (f"domain://msg-node.{DOMAIN}/sm/", EXACT),
        (f"DOMAIN://MSG-node.{DOMAIN.upper()}/sm", EXACT),
        (f"domain://msg-node.{DOMAIN}/sm/below", None),
        (f"domain://msg-node.{DOMAIN}/SM", None),
        ("mn:/session", BELOW),
        ("mn:/session/", BELOW),
        ("MN:/session", BELOW),
        ("mn:/session/below/it", BELOW),
        ("mn:/sessions", None),
        (f"domain://registry.{DOMAIN}/user/alice", ABOVE),
        (f"domain://Registry.{DOMAIN}/user/alice", ABOVE),
        (f"domain://other.{DOMAIN}/user/alice", None),
        (f"domain://registry.{DOMAIN}/user:alice/sip:x", ABOVE),
        ("sip:gateway", GATEWAY),
        ("sip:gateway/", None),  # only the node's own schemes are spelled in several ways
        ("SIP:gateway", None),
        (f"hyperty://registry.{DOMAIN}", None),
        (f"hyperty://{DOMAIN}/domain:", None),
        ("", None),
    ],
)
def test_a_component_is_found_by_its_address_however_it_is_spelled(
    to: str, component: FakeComponent | None, place: Place
) -> None:
    assert BOOK.find(to) is component
    route = place.route(to or "nothing")
    assert (route.component if isinstance(route, ToComponent) else None) is component


@pytest.mark.parametrize(
    ("to", "is_ours"),
    [
        ("domain://msg-node.peer.example/sm", True),
        ("domain://msg-node.peer.example/sm/", True),
        ("DOMAIN://Msg-Node.PEER.example/sm", True),
        ("domain://msg-node.third.example/sm", False),
        ("domain://peer.example/sm", False),
        ("domain://registry.peer.example/sm", False),
        ("domain://msg-node.peer.example/address-allocation", False),
        ("global://msg-node.peer.example/sm", False),
    ],
)
def test_one_component_answers_in_the_place_of_the_peers_own(
    to: str, is_ours: bool, place: Place
) -> None:
    book = ComponentBook([EXACT, ABOVE], place.table, EXACT)
    assert book.find(to) is None, "no domain is a peer"
    place.table.peers = {"peer.example": "runtime://peer.example/stub"}
    assert book.find(to) is (EXACT if is_ours else None)
    assert ComponentBook([EXACT], place.table).find(to) is None


def test_a_component_comes_before_whoever_subscribed_its_address(place: Place) -> None:
    place.table.subscribe("mn:/session", place.alice)
    assert place.route("mn:/session") == ToComponent(BELOW)


def test_a_holder_hears_alone_and_subscribers_all(place: Place) -> None:
    place.table.subscribe("comm://d/1", place.alice)
    place.table.subscribe("comm://d/1", place.bob)
    assert place.hearers("comm://d/1") == (place.alice, place.bob)
    place.table.allocate("comm://d/1", place.bob)
    assert place.hearers("comm://d/1") == (place.bob,)


@pytest.mark.parametrize("scheme", ["runtime", "hyperty-runtime", "Runtime"])
@pytest.mark.parametrize("below", ["", "/sm", "/a/b"])
def test_a_runtime_hears_what_lies_below_its_url_in_either_spelling(
    place: Place, scheme: str, below: str
) -> None:
    to = f"{scheme}://{DOMAIN}/alice{below}"
    expected = () if scheme == "Runtime" else (place.alice,)
    assert place.hearers(to) == expected
    assert place.hearers(f"{scheme}://{DOMAIN}/alice2{below}") == ()


@pytest.mark.parametrize(
    ("to", "subscribed"),
    [
        (f"{ALICE}/status", f"{ALICE}/status"),
        (f"hyperty-{ALICE}/status", f"hyperty-{ALICE}/status"),
        (f"hyperty-{ALICE}/status", f"{ALICE}/status"),
        (f"{ALICE}/x", f"{ALICE}/x"),
    ],
)
def test_below_a_runtime_its_own_sessions_reach_subscribers_and_others_only_the_runtime(
    place: Place, to: str, subscribed: str
) -> None:
    place.table.subscribe(subscribed, place.bob)
    tab = place.enter(ALICE)
    assert place.hearers(to, place.alice) == (place.bob,)
    assert place.hearers(to, tab) == (place.bob,)
    assert place.hearers(to, place.bob) == (tab,)
    assert place.hearers(to, place.enter(f"runtime://{DOMAIN}/carol")) == (tab,)
    assert place.hearers(to) == (tab,)


def test_what_a_runtime_subscribed_below_itself_it_hears_from_others(place: Place) -> None:
    tab = place.enter(ALICE)
    place.table.subscribe(f"{ALICE}/x", place.alice)
    place.table.subscribe(f"{ALICE}/x", place.bob)
    assert place.hearers(f"{ALICE}/x", place.bob) == (place.alice,)
    assert place.hearers(f"{ALICE}/y", place.bob) == (tab,)


def test_for_a_runtime_of_a_foreign_domain_its_node_listens_but_to_no_event(place: Place) -> None:
    stub = place.enter("runtime://third.example/protostub/node")
    place.table.subscribe(FOREIGN, stub)
    place.table.subscribe(FOREIGN, place.bob)
    place.table.subscribe(f"{FOREIGN}/status", stub)
    assert place.hearers(FOREIGN, place.alice) == (stub,)
    assert place.hearers(f"hyperty-{FOREIGN}", place.alice) == (stub,)
    assert place.hearers(f"{FOREIGN}/status", place.alice) == ()


def test_a_response_goes_to_the_tab_that_asked_and_only_if_it_is_still_here(place: Place) -> None:
    tab = place.enter(ALICE)
    place.table.return_paths.remember(ReturnPath(ALICE, "7", place.alice.id, ALICE))
    assert place.route(ALICE, type_="response", id_=7) == ToSessions((place.alice,))
    assert place.route(ALICE, type_="response", id_=8) == ToSessions((tab,))
    assert place.route(ALICE, type_="create", id_=7) == ToSessions((tab,))
    place.table.remove_runtime(place.alice)
    assert place.route(ALICE, type_="response", id_=7) == ToSessions((tab,))


def test_a_learned_address_comes_last_and_a_probe_after_it(place: Place) -> None:
    probe = FakeSession("hyperty://d/probe")
    place.table.add_probe(probe)
    assert place.hearers("hyperty://d/probe") == (probe,)
    place.table.learn("hyperty://d/probe", place.alice)
    assert place.hearers("hyperty://d/probe") == (place.alice,)
    place.table.subscribe("hyperty://d/probe", place.bob)
    assert place.hearers("hyperty://d/probe") == (place.bob,)


@pytest.mark.parametrize(
    ("to", "reason"),
    [
        ("mn:/nothing", "This node has no component mn:/nothing."),
        (f"domain://msg-node.{DOMAIN}/x", f"no component domain://msg-node.{DOMAIN}/x."),
        ("global://registry/x", "This node has no component global://registry/x."),
        ("domain://registry.third.example", "no stub leads to the domain registry.third.example."),
        ("hyperty://third.example/1", "no stub leads to the domain third.example."),
        (f"hyperty://{DOMAIN}/1", f"Nobody listens to hyperty://{DOMAIN}/1."),
        ("nonsense", "Nobody listens to nonsense."),
    ],
)
def test_who_reaches_nobody_is_told_why(place: Place, to: str, reason: str) -> None:
    route = place.route(to)
    assert isinstance(route, Nowhere)
    assert route.reason.endswith(reason)
    assert ("stub" in route.reason) == ("stub" in reason)


PEER = "runtime://third.example/messaging-node-1"


def test_what_nobody_here_hears_of_a_peers_domain_goes_to_the_peer(place: Place) -> None:
    to = "hyperty://third.example/1"
    assert isinstance(place.route(to), Nowhere)
    peer = place.enter(PEER)
    assert isinstance(place.route(to), Nowhere), "a session with such a URL is no peer yet"
    place.table.peers = {"third.example": PEER}
    for address in (to, "domain://msg-node.third.example/sm", FOREIGN):
        assert place.hearers(address) == (peer,)
    for address in ("hyperty://fourth.example/1", "global://third.example/1", "mn:/x"):
        assert place.hearers(address) != (peer,)


def test_what_comes_from_a_peer_does_not_go_back_to_it(place: Place) -> None:
    place.table.peers = {"third.example": PEER}
    peer = place.enter(PEER)
    assert isinstance(place.route("hyperty://third.example/1", peer), Nowhere)
    node = place.enter("runtime://third.example/mn-1")
    assert place.route("hyperty://third.example/1", node) == ToSessions((peer,)), "a visitor"
    node.speaker = replace(node.speaker, peer="third.example")
    assert isinstance(place.route("hyperty://third.example/1", node), Nowhere)


def test_what_comes_from_one_peer_may_go_to_another(place: Place) -> None:
    other = "runtime://fourth.example/messaging-node-1"
    place.table.peers = {"third.example": PEER, "fourth.example": other}
    for url in (PEER, other):
        place.enter(url)
    node = place.enter("runtime://third.example/mn-1")
    node.speaker = replace(node.speaker, peer="third.example")
    assert [each.runtime_url for each in place.hearers("hyperty://fourth.example/1", node)] == [
        other
    ]


def test_who_listens_here_comes_before_the_peer(place: Place) -> None:
    place.table.peers = {"third.example": PEER}
    place.enter(PEER)
    visitor = place.enter(FOREIGN)
    place.table.subscribe("hyperty://third.example/1", place.alice)
    assert place.hearers("hyperty://third.example/1") == (place.alice,)
    assert place.hearers(f"{FOREIGN}/sm") == (visitor,)


@pytest.mark.parametrize("scheme", ["runtime", "hyperty-runtime"])
def test_in_either_spelling_nobody_listens_for_a_runtime_of_this_domain_that_is_not_here(
    place: Place, scheme: str
) -> None:
    place.table.subscribe(f"hyperty-runtime://{DOMAIN}/gone/x", place.alice)
    assert place.hearers(f"{scheme}://{DOMAIN}/gone/x") == ()
