"""Identities that come by a peer's session: verified here again, demanded as of anybody's."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from msgnode.core import messages
from msgnode.core.errors import Forbidden, NotIdentified
from msgnode.core.identity import Identity, Origin, Speaker
from msgnode.core.messages import Message
from msgnode.core.pending import Pending
from msgnode.federation import crossing
from msgnode.federation.peer_session import PeerOutlet, VouchingConnection
from msgnode.identity.admission_policy import Mode
from msgnode.sessions.connection import ConnectionSettings
from msgnode.sessions.flow_control import FlowLimits
from tests.fakes import FakeSession
from tests.identity.test_verifier import Stage
from tests.issuer import Issuer

A, B = "a.example", "b.example"
OURS, THEIRS = f"hyperty://{A}/1", f"hyperty://{B}/1"


class OfPeer(Stage):
    """A stage with the session of a peer, which speaks for all of b.example."""

    def __init__(self, issuer: Any, mode: Mode = Mode.ANONYMOUS, **more: Any) -> None:
        super().__init__(issuer, mode, **more)
        self.peer = FakeSession(f"runtime://{B}/messaging-node-1")
        self.peer.speaker = replace(self.peer.speaker, origin=Origin.FOREIGN, peer=B)
        self.table.add_runtime(self.peer)

    def says(
        self, type_: str = "create", sender: str = THEIRS, to: str = OURS, **body: Any
    ) -> Identity | None:
        frame = {"id": 1, "type": type_, "from": sender, "to": to, "body": body}
        message = messages.parse(json.dumps(frame).encode())
        return self.authenticator.speaker_of(message, self.peer).identity


@pytest.mark.parametrize("mode", [Mode.IDENTIFIED, Mode.STRICT])
def test_case_46_who_does_not_say_who_he_is_is_refused_where_the_node_asks_for_it(
    issuer: Issuer, mode: Mode
) -> None:
    stage = OfPeer(issuer, mode)
    for type_ in ("create", "read", "update", "forward"):
        with pytest.raises(NotIdentified):
            stage.says(type_)
    found = stage.says(identity=issuer.identity("bob"))
    assert found is not None
    assert found.subject == "sub-bob"


def test_case_46_a_domain_that_may_be_anonymous_is(issuer: Issuer) -> None:
    stage = OfPeer(issuer, Mode.IDENTIFIED)
    stage.authenticator.modes.domains[B] = Mode.ANONYMOUS
    assert stage.says() is None


@pytest.mark.parametrize("mode", [Mode.IDENTIFIED, Mode.STRICT])
def test_case_46_what_was_asked_of_a_peer_needs_no_identity(issuer: Issuer, mode: Mode) -> None:
    stage = OfPeer(issuer, mode)
    assert stage.says("response", code=200) is None
    assert stage.says("update", f"comm://{B}/r", f"comm://{B}/r/changes", value=1) is None
    for to in (f"comm://{A}/r/changes", "comm://c.example/r/changes", f"comm://{B}/r"):
        with pytest.raises(NotIdentified):
            stage.says("update", f"comm://{B}/r", to, value=1)


def test_case_45_each_of_a_peers_users_is_verified_and_none_is_the_peer(issuer: Issuer) -> None:
    stage = OfPeer(issuer, Mode.STRICT, checks=1.0)
    for _ in range(9):
        for number in range(9):
            user = f"u{number}"
            body = stage.__dict__.setdefault(user, issuer.identity(user))
            found = stage.says(identity=body)
            assert found is not None
            assert found.subject == f"sub-{user}"
    assert stage.bound == [], "nobody is logged in by that"


def test_case_45_an_access_token_logs_no_peer_in(issuer: Issuer) -> None:
    stage = OfPeer(issuer)
    assert stage.says(accessToken=issuer.token("bob")) is None
    assert stage.bound == []
    assert stage.says(identity=issuer.identity("erin")) is not None
    stage = OfPeer(issuer, Mode.IDENTIFIED)
    with pytest.raises(NotIdentified):
        stage.says(accessToken=issuer.token("bob"))


def test_case_45_an_issuer_that_is_not_known_is_refused_and_not_asked(issuer: Issuer) -> None:
    other = Issuer("elsewhere.test")
    try:
        stage = OfPeer(issuer, passes_unknown=False)
        with pytest.raises(NotIdentified):
            stage.says(identity=other.identity("bob"))
        assert not other.asked
    finally:
        other.stop()


def test_case_44_a_token_of_a_user_of_this_node_does_not_come_by_a_peer(issuer: Issuer) -> None:
    stage = OfPeer(issuer)
    book = stage.verifier.book
    own = tuple(replace(each, is_embedded=each.url == issuer.url) for each in book.all)
    stage.verifier.use(type(book)(own))
    body = issuer.identity("alice")
    for _ in range(2):
        with pytest.raises(Forbidden):
            stage.says(identity=body)


def test_case_44_nor_does_one_that_somebody_here_has_shown_to_the_peer(issuer: Issuer) -> None:
    """A token of another issuer is bound to the runtime here that said it."""
    stage = OfPeer(issuer)
    body = issuer.identity("alice")
    assert stage.say(stage.session("alice"), identity=body) is not None
    with pytest.raises(NotIdentified, match="in use by another runtime"):
        stage.says(identity=body)


def test_a_message_at_which_the_node_fails_is_no_end_of_the_session_of_a_peer() -> None:
    outlet, passed = PeerOutlet(), []

    def pass_on(frame: bytes) -> None:
        if frame == b"2":
            raise ValueError("a message that the node fails at")
        passed.append(frame)

    outlet.on_frame = pass_on
    for frame in (b"1", b"2", b"3"):
        outlet.write(frame)
    assert passed == [b"1", b"3"]
    assert outlet.closed is None


async def test_case_71_whose_a_message_is_counts_too_if_it_had_to_wait() -> None:
    heard: list[tuple[bytes, Identity | None]] = []
    speakers: list[Speaker] = []
    facts: list[Callable[[], None]] = []
    is_known: list[bool] = []

    def carry(frame: bytes, caller: Any, message: Message | None = None) -> None:
        if not is_known:
            is_known.append(True)
            caller.hold(frame, Pending("a fact", facts.append))
        else:
            speakers.append(caller.session.speaker)
            heard.append((frame, caller.session.speaker.identity))

    limits = ConnectionSettings(FlowLimits(1000, 1_000_000, 10), 60)
    nobody: Any = None
    connection = VouchingConnection(PeerOutlet(), f"peer:{B}", nobody, carry, limits)
    connection.link.vouched_for = partial(crossing.vouched_for, own=A, peer=B)
    session: Any = SimpleNamespace(speaker=Speaker("1", f"runtime://{B}/1", peer=B))
    connection.session = session
    said = {"issuer": "idp", "subject": "bob", "username": "bob"}
    frames = [
        msgspec.json.encode(
            {"id": number, "type": "read", "from": f"hyperty://{B}/1", "to": f"hyperty://{A}/1",
             "body": {"assertedIdentity": said} if number < 3 else {}}
        )
        for number in (1, 2, 3)
    ]  # fmt: skip
    for each in (*frames, b"no message"):
        connection.frame_received(each)
    assert heard == []
    facts[0]()
    await asyncio.sleep(0)
    bob = Identity(f"node:{B}", "bob idp", f"bob@{B}", B)
    assert heard == [(frames[0], bob), (frames[1], bob), (frames[2], None), (b"no message", None)]
    assert speakers[0] is speakers[1], "decisions about one speaker are repeated"
    assert session.speaker.identity is None
