"""What may cross between two domains, and in what form."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from msgnode.bus import routes
from msgnode.bus.routes import ComponentBook
from msgnode.bus.table import RoutingTable
from msgnode.core import messages
from msgnode.core.identity import Identity
from msgnode.core.messages import Message
from msgnode.federation import crossing
from tests.fakes import FakeSession

A, B = "a.example", "b.example"


def message(sender: str, to: Any, type_: str = "read", **body: Any) -> Message:
    frame = {"id": 1, "type": type_, "from": sender, "to": to, "body": body}
    return messages.parse(json.dumps(frame).encode())


@pytest.mark.parametrize(
    ("sender", "to", "type_"),
    [
        (f"hyperty://{B}/1", f"hyperty://{A}/1", "read"),
        (f"hyperty://{B}/1", f"runtime://{A}/mn-1/sm", "response"),
        (f"domain://msg-node.{B}/sm", f"hyperty://{A}/1", "response"),
        (f"comm://{B}/1", f"comm://{B}/1/changes", "update"),
        (f"hyperty://{B}/1", f"domain://registry.{A}", "read"),
    ],
)
def test_a_peer_speaks_for_its_own_domain_to_what_is_here(sender: str, to: str, type_: str) -> None:
    assert crossing.incoming_fault(message(sender, to, type_), A, B) == ""


@pytest.mark.parametrize(
    ("sender", "to", "type_"),
    [
        (f"hyperty://{A}/1", f"hyperty://{A}/2", "read"),
        ("hyperty://c.example/1", f"hyperty://{A}/2", "read"),
        ("mn:/session", f"hyperty://{A}/2", "response"),
        ("runtime:/alice", f"hyperty://{A}/2", "read"),
        (f"hyperty://{B}.evil.example/1", f"hyperty://{A}/2", "read"),
    ],
)
def test_case_39_a_peer_speaks_for_nobody_else(sender: str, to: str, type_: str) -> None:
    assert "is not of the domain" in crossing.incoming_fault(message(sender, to, type_), A, B)


@pytest.mark.parametrize(
    ("to", "type_"),
    [
        (f"domain://msg-node.{A}/sm", "subscribe"),
        (f"domain://msg-node.{A}/address-allocation", "create"),
        ("mn:/session", "open"),
        ("mn:/session", "close"),
        ("global://registry", "read"),
        (f"domain://registry.{A}", "create"),
        (f"domain://qos.{A}", "create"),
        ("hyperty://c.example/1", "read"),
        (f"hyperty://{B}/2", "read"),
        ([f"hyperty://{A}/1", "hyperty://c.example/1"], "read"),
    ],
)
def test_case_40_a_peer_controls_nothing_and_is_passed_on_to_nobody(to: Any, type_: str) -> None:
    assert crossing.incoming_fault(message(f"hyperty://{B}/1", to, type_), A, B)


@pytest.mark.parametrize(
    ("sender", "is_said"),
    [
        (f"hyperty://{A}/1", True),
        (f"runtime://{A}/1/sm", True),
        (f"domain://msg-node.{A}/sm", True),
        ("mn:/x", True),
        (f"hyperty://{B}/1", False),
        ("hyperty://c.example/1", False),
        ("domain://msg-node.c.example/sm", False),
        (f"hyperty://{A}.evil.example/1", False),
    ],
)
def test_case_55_a_peer_is_told_what_is_of_this_domain_alone(sender: str, is_said: bool) -> None:
    fault = crossing.outgoing_fault(message(sender, f"hyperty://{B}/1"), A)
    assert (fault == "") is is_said


def test_case_41_marks_of_a_peer_are_taken_out() -> None:
    said = message(f"hyperty://{B}/1", f"hyperty://{A}/1", auth=True, assertedIdentity=True, v=1)
    assert json.loads(crossing.incoming(said).frame)["body"] == {"v": 1}


def test_case_43_what_stubs_note_about_their_way_is_taken_out() -> None:
    said = message(f"hyperty://{B}/1", f"hyperty://{A}/1", via="runtime://a.example/mn-1/secret")
    assert "secret" not in crossing.incoming(said).frame.decode()


def test_what_only_this_node_says_of_a_sender_stays_here() -> None:
    told = message(f"hyperty://{A}/1", f"hyperty://{B}/1", auth=True, assertedIdentity=True, v=[1])
    assert json.loads(crossing.outgoing(told)) == {
        "id": 1, "type": "read", "from": f"hyperty://{A}/1", "to": f"hyperty://{B}/1",
        "body": {"v": [1]},
    }  # fmt: skip


BOB = Identity("https://idp.test", "1", "bob@b.example", user_url="user://b.example/bob")


def vouched(whose: Identity = BOB, **body: Any) -> Message:
    """A message of a user of b in the form in which a link gets it."""
    said = message(f"hyperty://{B}/1", f"hyperty://{A}/1", **body)
    frame = messages.vouched(said.forwarded(said.recipients[0], True, True), whose)
    return messages.parse(frame)


def test_case_71_over_a_link_it_is_said_whose_a_message_is_and_to_no_stub() -> None:
    told = vouched(v=1)
    [*there] = json.loads(crossing.outgoing(told, by_link=True))["body"]
    assert there == ["assertedIdentity", "v"]
    assert json.loads(crossing.outgoing(told))["body"] == {"v": 1}
    plain = message(f"hyperty://{B}/1", f"hyperty://{A}/1", auth=True, assertedIdentity=True, v=1)
    assert json.loads(crossing.outgoing(plain, by_link=True))["body"] == {"v": 1}


def test_case_71_what_a_node_says_of_a_sender_counts_where_it_is_trusted() -> None:
    told = crossing.incoming(vouched(v=1), is_trusted=True)
    assert crossing.vouched_for(told, A, B) == Identity(
        "node:b.example", "1 https://idp.test", "bob@b.example", B, "user://b.example/bob"
    )
    expired = vouched(replace(BOB, username="bob", user_url="bob", expires=1.0))
    assert crossing.vouched_for(expired, A, B) == Identity(
        "node:b.example", "1 https://idp.test", "1@b.example", B
    ), "a name that may be one of ours does not count, and what is said now does not expire"
    below = replace(BOB, username="bob@hr.b.example", user_url="")
    known = crossing.vouched_for(vouched(below), A, B)
    assert known is not None
    assert known.username == "bob@hr.b.example"
    untold = crossing.incoming(vouched(v=1))
    assert crossing.vouched_for(untold, A, B) is None
    assert json.loads(untold.frame)["body"] == {"v": 1}


@pytest.mark.parametrize(
    ("username", "url", "name"),
    [
        ("eve@c.example", "", "1@b.example"),
        ("eve@evilb.example", "user://c.example/eve", "1@b.example"),
        ("bob@b.example@c.example", "user://b.example.c.example/bob", "1@b.example"),
        ("eve@c.example", "user://b.example/bob", "user://b.example/bob"),
        ("bob@B.example", "user://c.example/eve", "bob@B.example"),
    ],
)
def test_case_71_a_trusted_node_names_nobody_of_a_third_domain(
    username: str, url: str, name: str
) -> None:
    """Policies know people by their names, whoever says them."""
    known = crossing.vouched_for(vouched(replace(BOB, username=username, user_url=url)), A, B)
    assert known is not None
    assert (known.username, known.issuer) == (name, "node:b.example")
    assert known.user_url in ("", "user://b.example/bob")


@pytest.mark.parametrize(
    "said",
    [
        vouched(replace(BOB, username="carol@a.example")),
        vouched(replace(BOB, user_url="user://a.example/carol")),
        vouched(replace(BOB, subject="")),
        vouched(replace(BOB, username="b" * 2_000)),
        vouched(identity={"assertion": "of its own"}),
        vouched(idToken="of its own"),
        message(f"hyperty://{B}/1", f"hyperty://{A}/1", assertedIdentity={"subject": 1}),
        message(f"hyperty://{B}/1", f"hyperty://{A}/1", assertedIdentity=True),
    ],
)
def test_case_71_it_counts_for_nobody_of_this_domain_and_beside_no_token(said: Message) -> None:
    assert crossing.vouched_for(said, A, B) is None


@pytest.mark.parametrize(
    ("own", "peer", "name", "known_as"),
    [
        ("a.b.example:8443", "b.example", "carol@a.b.example", None),
        ("a.b.example", "b.example:8443", "carol@a.b.example:8443", None),
        ("b.example:8443", "b.example:9443", "bob@b.example:9443", "bob@b.example:9443"),
        ("b.example:8443", "b.example:9443", "carol@b.example", None),
    ],
)
def test_case_71_a_port_makes_nobody_of_this_domain_anothers(
    own: str, peer: str, name: str, known_as: str | None
) -> None:
    said = vouched(replace(BOB, username=name, user_url=""))
    known = crossing.vouched_for(said, own, peer)
    assert (known.username if known is not None else None) == known_as


@pytest.mark.parametrize("is_asserted", [False, True])
@pytest.mark.parametrize("is_permitted", [False, True])
def test_it_is_so_too_where_the_frame_for_the_peer_is_not_read_again(
    is_permitted: bool, is_asserted: bool
) -> None:
    to = f"hyperty://{B}/1"
    form = '{"id":%d,"type":"read","from":"hyperty://a.example/1","to":"%s","body":{"v":1}}'
    said, later = (messages.parse((form % (number, to)).encode()) for number in (1, 2))
    made = [each.forwarded(to, is_permitted, is_asserted) for each in (said, later)]
    for frame, whole in zip(made, (said, later), strict=True):
        known = messages.parse_unmarked(frame)
        assert crossing.outgoing(known) == crossing.outgoing(messages.parse(frame)) == whole.frame
    assert messages.parse_unmarked(made[1]) is later


FORM = '{"id":1,"type":"read","from":"hyperty://%s/1","to":"hyperty://%s/1","body":{%s}}'


def test_case_71_whose_a_plain_message_is_is_said_and_heard_without_reading_it_again() -> None:
    said = messages.parse((FORM % (A, B, '"v":1,"idToken":""')).encode())
    made = messages.vouched(said.forwarded(said.recipients[0], True, True), BOB)
    told = messages.parse_unmarked(made)
    assert told.frame is made
    assert crossing.outgoing(told, by_link=True) is made
    assert crossing.outgoing(told) == said.frame
    again = messages.parse(made)
    assert (told.body, told.identity_fields) == (again.body, again.identity_fields)
    heard = messages.parse((FORM % (B, A, '"v":1')).encode()).said_by(b'{"subject":"1"}')
    bare = crossing.incoming(heard)
    assert bare.frame == messages.parse(bare.frame).frame == (FORM % (B, A, '"v":1')).encode()
    assert crossing.incoming(heard, is_trusted=True) is heard


@pytest.mark.parametrize(
    "second",
    ['"assertedIdentity":{"subject":"1"}', '"\\u0061ssertedIdentity":{"subject":"1"}', '"via":"x"'],
)
def test_case_71_nothing_is_left_of_what_is_said_twice(second: str) -> None:
    first = '"assertedIdentity":{"subject":"1"}'
    heard = messages.parse((FORM % (B, A, f'{first},"v":1,{second}')).encode())
    assert json.loads(crossing.incoming(heard).frame)["body"] == {"v": 1}
    for each in (heard, heard.said_by_nobody() or heard):
        frame = each.forwarded(f"hyperty://{A}/1", False, True)
        assert b'"subject"' not in frame
        assert frame.count(b"ssertedIdentity") == 1


def test_case_53_what_a_peer_says_never_goes_back_to_it() -> None:
    table, peer = RoutingTable(), FakeSession(f"runtime://{B}/mn-1")
    table.add_runtime(peer)
    table.peers[B] = peer.runtime_url
    to = f"comm://{B}/1/changes"
    update = message(f"comm://{B}/1", to, "update")
    nothing = ComponentBook(())
    assert routes.choose(update, to, nothing, table, A, None) == routes.ToSessions((peer,))
    assert isinstance(routes.choose(update, to, nothing, table, A, peer), routes.Nowhere)


def test_a_child_reaches_the_reporter_at_a_peer_beside_those_who_observe_it_here() -> None:
    table, peer, here = (
        RoutingTable(),
        FakeSession(f"runtime://{B}/mn-1"),
        FakeSession("runtime://a.example/1"),
    )
    for each in (peer, here):
        table.add_runtime(each)
    table.peers[B] = peer.runtime_url
    to = f"comm://{B}/1/children/"
    table.subscribe(to, here)
    child, nothing = message(f"hyperty://{A}/1", to, "create"), ComponentBook(())
    assert routes.choose(child, to, nothing, table, A, here) == routes.ToSessions((here, peer))
    assert routes.choose(child, to, nothing, table, A, peer) == routes.ToSessions((here,))


@pytest.mark.parametrize("domain", ["b.example", "b.example:8443", "xn--bcher-kva.example"])
def test_a_domain_can_be_a_peers(domain: str) -> None:
    assert crossing.domain_fault(domain) == ""


@pytest.mark.parametrize(
    "domain",
    [
        *("localhost", "10.0.0.1", "[::1]", "b.local", "db.internal", "b..example", "-b.example"),
        *("b.example:0", "b.example:x", "b.example:99999", "bücher.example", "", "a b.example"),
    ],
)
def test_a_name_of_this_network_or_none_is_no_peers(domain: str) -> None:
    assert crossing.domain_fault(domain)


@pytest.mark.parametrize("domain", ["http://x y", "https://b.example", "b.example/x"])
def test_what_is_no_domain_is_said_with_what_one_looks_like(domain: str) -> None:
    assert crossing.domain_fault(domain) == (
        "is no domain: one looks like b.example, or b.example:8443"
    )


def test_a_port_is_said_to_be_wrong_where_the_domain_is_one() -> None:
    assert "1 to 65535" in crossing.domain_fault("b.example:99999")
