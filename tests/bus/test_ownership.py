"""Which addresses a session may call its own, and whose they are while nobody holds them."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from msgnode.bus.last_owners import LastOwnerCache
from msgnode.bus.ownership import Ownership
from msgnode.bus.table import RoutingTable
from msgnode.core.errors import Forbidden
from msgnode.core.identity import Identity, Origin
from msgnode.core.messages import parse
from msgnode.sessions.authorization import SessionAuthorizer
from tests.fakes import DOMAIN, FakeSession

ALICE = f"runtime://{DOMAIN}/alice"
ISSUER = "https://issuer"
HELD = f"hyperty://{DOMAIN}/held"


class Place:
    def __init__(self, shares: bool = True) -> None:
        self.table = RoutingTable()
        self.last_owners = LastOwnerCache(3)
        self.ownership = Ownership(self.table, self.last_owners, DOMAIN, shares)

    def enter(self, url: str = ALICE, subject: str = "", **identity: str) -> FakeSession:
        session = FakeSession(url)
        if subject:
            known = Identity(ISSUER, subject, **identity)
            session.speaker = replace(session.speaker, identity=known)
        self.table.add_runtime(session)
        return session

    def refusal(self, address: str, session: FakeSession) -> str:
        """Why the session may not call it its own; "" if it may."""
        try:
            self.ownership.check(address, session, session.speaker)
        except Forbidden as error:
            return error.description
        return ""


@pytest.fixture
def place() -> Place:
    return Place()


@pytest.mark.parametrize(
    "address", [ALICE, f"{ALICE}/sm", f"hyperty-{ALICE}", f"hyperty-{ALICE}/a/b"]
)
def test_a_runtimes_url_and_what_is_below_is_its_own_in_both_spellings(
    place: Place, address: str
) -> None:
    alice, bob = place.enter(), place.enter(f"runtime://{DOMAIN}/bob")
    assert place.refusal(address, alice) == ""
    assert place.refusal(address, place.enter()) == ""  # another tab
    assert "belongs to another session" in place.refusal(address, bob)
    assert place.ownership.is_below_runtime(address, alice)
    assert not place.ownership.is_below_runtime(address, bob)
    assert not place.ownership.is_below_runtime(f"{ALICE}2", alice)


def test_below_a_runtime_what_another_was_given_is_the_others(place: Place) -> None:
    alice, bob = place.enter(), place.enter(f"runtime://{DOMAIN}/bob")
    place.table.allocate(f"{ALICE}/given", bob)
    assert "belongs to another session" in place.refusal(f"{ALICE}/given", alice)
    assert place.refusal(f"{ALICE}/given", bob) == ""


def test_what_somebody_holds_nobody_else_may_take(place: Place) -> None:
    alice, bob = place.enter(), place.enter(f"runtime://{DOMAIN}/bob")
    place.table.allocate(HELD, alice)
    for address in (HELD, f"{HELD}/below"):
        assert place.refusal(address, alice) == ""
        assert "belongs to another session" in place.refusal(address, bob)
        assert place.ownership.owner_of(address) is alice
    assert place.refusal(f"{HELD}2", bob) == ""
    assert place.ownership.holds(HELD, alice)
    assert not place.ownership.holds(HELD, bob)
    assert not place.ownership.holds(f"{HELD}/below", alice)


def test_a_tab_takes_over_from_one_that_is_away_if_sharing_is_on() -> None:
    for shares in (True, False):
        place = Place(shares)
        lost, back = place.enter(), place.enter()
        place.table.allocate(HELD, lost)
        assert "belongs to another" in place.refusal(HELD, back)
        lost.is_connected = False
        assert (place.refusal(HELD, back) == "") is shares
        assert "belongs to another" in place.refusal(HELD, place.enter(f"runtime://{DOMAIN}/bob"))
        assert place.ownership.holds(HELD, back) is shares
        assert place.ownership.follows(HELD, None, back) is False


def test_a_subject_shares_what_it_holds_with_itself_alone(place: Place) -> None:
    alice, other = place.enter(subject="alice"), place.enter("runtime://d/2", "alice")
    eve, nobody = place.enter("runtime://d/3", "eve"), place.enter("runtime://d/4")
    place.table.allocate(HELD, alice)
    held = [place.ownership.holds(HELD, each) for each in (alice, other, eve, nobody)]
    assert held == [True, True, False, False]
    assert not place.ownership.shares_with(HELD, alice, place.enter())  # anonymous, the same URL


@pytest.mark.parametrize(
    ("address", "why"),
    [
        (f"domain://{DOMAIN}", "names a whole domain"),
        (f"hyperty://{DOMAIN}/", "names a whole domain"),
        (f"domain://msg-node.{DOMAIN}/sm", "is an address of a node"),
        ("mn:/session", "is an address of a node"),
        ("global://registry/x", "is an address of a node"),
        ("domain://msg-node.third.example/sm", "is an address of a node"),
        ("hyperty://third.example/1", "is of the domain third.example"),
        ("sip:bob@legacy.example", "is of the domain legacy.example"),
        ("sip:bob", ""),
        (f"sip:bob@{DOMAIN}", ""),
        (f"hyperty://{DOMAIN}/1", ""),
        ("runtime://third.example/protostub/x", ""),
        ("runtime://third.example/p2prequester/x", ""),
        ("runtime://third.example/x", "is of the domain third.example"),
    ],
)
def test_nobody_is_a_node_a_whole_domain_or_of_a_foreign_domain(
    place: Place, address: str, why: str
) -> None:
    refusal = place.refusal(address, place.enter())
    assert why in refusal
    assert bool(refusal) == bool(why)
    assert refusal.startswith(address) or not why


def test_a_visitor_speaks_for_the_domain_of_its_runtime_and_as_its_node(place: Place) -> None:
    visitor = place.enter("runtime://third.example/carol")
    assert place.refusal("hyperty://third.example/1", visitor) == ""
    assert "visitor" in place.refusal(f"hyperty://{DOMAIN}/1", visitor)
    assert place.refusal("domain://msg-node.third.example/sm", visitor) == ""
    assert place.refusal("domain://registry.third.example", visitor) == ""
    assert "names a whole domain" in place.refusal("domain://third.example", visitor)
    assert "is an address of a node" in place.refusal("mn:/session", visitor)
    assert "is an address of a node" in place.refusal("domain://fourth.example/sm", visitor)
    assert "is an address of a node" in place.refusal(f"domain://msg-node.{DOMAIN}/sm", visitor)
    assert "fourth.example" in place.refusal("hyperty://fourth.example/1", visitor)


@pytest.mark.parametrize(
    "identity",
    [{"idp_domain": "Third.example"}, {"user_url": "user://third.example/carol"}],
)
def test_an_identity_lets_its_session_speak_for_its_domain(
    place: Place, identity: dict[str, str]
) -> None:
    carol = place.enter(subject="carol", **identity)
    assert place.refusal("hyperty://third.example/1", carol) == ""
    assert "fourth.example" in place.refusal("hyperty://fourth.example/1", carol)
    assert "third.example" in place.refusal("hyperty://third.example/1", place.enter())


def test_an_address_stays_its_last_owners_while_nobody_holds_it(place: Place) -> None:
    alice, eve, nobody = place.enter(subject="alice"), place.enter(subject="eve"), place.enter()
    assert place.refusal(HELD, nobody) == ""
    place.last_owners.note([HELD], (ISSUER, "alice"))
    for address in (HELD, f"{HELD}/below"):
        assert place.refusal(address, alice) == ""
        for other in (eve, nobody):
            assert "a subject that this session has not logged in" in place.refusal(address, other)
    assert place.refusal(f"{HELD}2", nobody) == ""
    place.last_owners.forget()
    assert place.refusal(HELD, nobody) == ""
    assert len(place.last_owners) == 0


def test_who_touched_an_address_last_is_remembered_longest(place: Place) -> None:
    nobody, cache = place.enter(), place.last_owners
    for name in ("a", "b", "c", "a", "d"):
        cache.note([f"hyperty://{DOMAIN}/{name}"], (ISSUER, "alice"))
    assert len(cache) == 3
    free = [name for name in "abcd" if not place.refusal(f"hyperty://{DOMAIN}/{name}", nobody)]
    assert free == ["b"]


def test_the_node_of_a_peer_alone_speaks_for_its_domain() -> None:
    place = Place()
    peer = place.enter("runtime://b.example/node")
    other = place.enter("runtime://b.example/1")
    place.table.peers = {"b.example": peer.runtime_url}
    assert place.refusal("hyperty://b.example/x", peer) == ""
    assert place.refusal("hyperty://b.example/x", other) == (
        "hyperty://b.example/x is of the domain b.example, whose node speaks for it."
    )
    place.table.peers = {"c.example": peer.runtime_url}
    assert place.refusal("hyperty://b.example/x", other) == ""


@pytest.mark.parametrize("address", ["hyperty://x", "hyperty://d.example", "comm://d.example/"])
def test_nobody_speaks_for_a_whole_domain(address: str) -> None:
    place = Place()
    assert "names a whole domain" in place.refusal(address, place.enter())


def test_an_address_whose_path_is_a_name_of_its_own_is_no_domain() -> None:
    place = Place()
    assert place.refusal(f"hyperty://{DOMAIN}/XX", place.enter()) == ""


def test_who_stands_in_is_asked_of_the_address_and_both_sessions() -> None:
    place = Place()
    owner, other = place.enter(), place.enter(f"runtime://{DOMAIN}/bob")
    place.table.allocate(HELD, owner)
    asked: list[object] = []

    def stands_in(*told: object) -> bool:
        asked.append(told)
        return True

    place.ownership.check(HELD, other, other.speaker, stands_in)
    assert asked == [(HELD, owner, other)]


@pytest.mark.parametrize(("path", "domain"), [("sip:a@b@legacy.example", "legacy.example")])
def test_a_mailbox_is_of_the_domain_after_its_last_at_sign(path: str, domain: str) -> None:
    place = Place()
    session = place.enter(subject="alice", idp_domain=domain)
    assert place.refusal(path, session) == ""
    assert domain in place.refusal(path, place.enter(f"runtime://{DOMAIN}/bob"))


# --- the node of a peer ---------------------------------------------------------------------------

PEER = "b.example"
STUB = f"runtime://{PEER}/messaging-node-1"


def test_a_peers_node_speaks_for_its_domain_in_each_of_its_sessions_and_nobody_else(
    place: Place,
) -> None:
    place.table.peers = {PEER: STUB}
    ways = place.enter(STUB), place.enter(f"runtime://{PEER}/mn-1")
    ways[1].speaker = replace(ways[1].speaker, peer=PEER)
    forger, third = place.enter(f"runtime://{PEER}/mn-2"), place.enter("runtime://c.example/mn-1")
    third.speaker = replace(third.speaker, peer="c.example")
    bob = f"hyperty://{PEER}/bob"
    for way in ways:
        assert place.refusal(bob, way) == ""
        place.table.learn(bob, way)
        for other in ways:
            assert place.refusal(bob, other) == ""
        for stranger in (forger, third, place.enter()):
            assert "belongs to another session" in place.refusal(bob, stranger)
        place.table.forget(bob, way)
    for stranger in (forger, third, place.enter()):
        assert "whose node speaks for it" in place.refusal(bob, stranger)
    assert place.refusal(ALICE, ways[1])
    assert place.refusal("hyperty://c.example/x", ways[1])


class Speakers:
    """An authenticator of messages without a token."""

    def speaker_of(self, message: object, session: FakeSession) -> object:
        return session.speaker


def test_a_peers_node_publishes_in_each_of_its_sessions_whichever_of_them_was_heard_first(
    place: Place,
) -> None:
    place.table.peers = {PEER: STUB}
    first, second = place.enter(f"runtime://{PEER}/mn-1"), place.enter(STUB)
    first.speaker = replace(first.speaker, peer=PEER)
    visitor = place.enter(f"runtime://{PEER}/mn-2")
    for each in (first, second, visitor):
        vars(each).update(learned={}, withdrawn=set(), handshake="")
    bob, own = f"hyperty://{PEER}/bob", f"runtime://{PEER}/mn-2/x"
    place.table.allocate(bob, first)
    authorizer: Any = SessionAuthorizer(place.table, *[Speakers()] * 2, place.ownership)
    event = '{"id":1,"type":"update","from":"%s","to":"%s/changes","body":{}}'
    for each in (second, first):
        authorizer.authorize(parse((event % (bob, bob)).encode()), SimpleNamespace(session=each))
    with pytest.raises(Forbidden, match="from the owner of"):
        authorizer.authorize(parse((event % (own, bob)).encode()), SimpleNamespace(session=visitor))


def test_what_a_runtime_that_came_itself_holds_is_not_the_nodes(place: Place) -> None:
    place.table.peers = {PEER: STUB}
    node = place.enter(f"runtime://{PEER}/mn-1")
    node.speaker = replace(node.speaker, peer=PEER)
    place.enter(f"runtime://{PEER}/carol")
    assert "belongs to another session" in place.refusal(f"runtime://{PEER}/carol/x", node)


def test_a_visitor_beside_the_node_of_its_domain_speaks_as_others_and_holds_nothing(
    place: Place,
) -> None:
    node = place.enter(STUB)
    visitor, local = place.enter(f"runtime://{PEER}/v"), place.enter()
    visitor.speaker = replace(visitor.speaker, origin=Origin.FOREIGN)
    place.table.peers = {PEER: STUB}
    bob = f"hyperty://{PEER}/bob"

    def may(address: str, session: FakeSession = visitor) -> bool:
        return place.ownership.may_speak_beside_node(address, session, session.speaker)

    assert not may(bob), "the node speaks alone"
    place.table.visited = frozenset({PEER})
    assert may(bob)
    assert "whose node speaks for it" in place.refusal(bob, visitor), "it cannot be had"
    place.table.learn(bob, node)
    assert may(bob)
    for other in (
        f"hyperty://third.example/{1}", f"runtime://{PEER}/other", f"domain://msg-node.{PEER}/sm",
        f"hyperty://{PEER}", f"HYPERTY://{PEER}/1",
    ):  # fmt: skip
        assert not may(other)
    assert not may(bob, local)
    visitor.speaker = replace(visitor.speaker, peer=PEER)
    assert not may(bob), "a session of the node needs no leave"


def test_nobody_takes_up_the_session_of_a_peers_node_but_the_node(place: Place) -> None:
    node, forger = place.enter(f"runtime://{PEER}/mn-1"), place.enter(f"runtime://{PEER}/mn-1")
    node.speaker = replace(node.speaker, peer=PEER)
    assert not forger.speaker.may_follow(node.speaker, shares=True)
    assert node.speaker.may_follow(forger.speaker, shares=True)
    assert node.speaker.may_follow(node.speaker, shares=True)
