"""Who is behind a session goes along when it changes its worker."""

from __future__ import annotations

from typing import Any

import msgspec

from msgnode import models
from msgnode.bus.table import RoutingTable
from msgnode.core.identity import Identity, Origin, Speaker
from msgnode.sessions.manager import SessionManager
from msgnode.sessions.rules import State
from msgnode.sessions.serialization import SessionState, session_of, state_of
from msgnode.sessions.session import LiveSession
from msgnode.sessions.session_factory import SessionSettings
from msgnode.sessions.store import SessionStore, _of_identity

ALICE = Identity("https://idp.example", "s-1", "alice@example.org", groups=("a",), expires=9.0)


def test_a_bound_session_stays_bound_on_another_worker() -> None:
    session = LiveSession(
        id_="1", runtime_url="runtime://d/1", token="", token_hash="h", handshake="ws",
        speaker=Speaker("1", "runtime://d/1", identity=ALICE), outbox_bytes=1000, stores=True,
        state=State.DETACHED, proof="digest",
    )  # fmt: skip
    packed = msgspec.msgpack.encode(state_of(session))
    arrived = session_of(msgspec.msgpack.decode(packed, type=SessionState), 1000, True)
    assert arrived.speaker.identity == ALICE
    assert arrived.proof == "digest"


def test_who_has_said_who_they_are_is_known_on_another_worker_and_after_a_restart() -> None:
    session = LiveSession(
        id_="1", runtime_url="runtime://d/1", token="", token_hash="h", handshake="ws",
        speaker=Speaker("1", "runtime://d/1"), outbox_bytes=1000, stores=True, state=State.DETACHED,
    )  # fmt: skip
    for said in (False, True):
        session.has_said_who = said
        packed = msgspec.msgpack.encode(state_of(session))
        arrived = session_of(msgspec.msgpack.decode(packed, type=SessionState), 1000, True)
        assert arrived.has_said_who is said
        row = models.Session(runtime_url="runtime://d/1", **_of_identity(session))
        assert SessionStore.identity_of(row) is None
        nothing: Any = None
        settings = SessionSettings("always", True, True, 1, 1000, 1, 1, "domain://d")
        life = SessionManager(settings, RoutingTable(), nothing, nothing)
        assert life.restored(row).has_said_who is said


def test_the_node_of_a_peer_is_no_visitor_after_a_restart_though_it_has_not_come_back_yet() -> None:
    url = "runtime://b.example/mn-1"
    for peer, identity in (("b.example", None), ("b.example", ALICE), ("", None)):
        session = LiveSession(
            id_="1", runtime_url=url, token="", token_hash="h", handshake="ws",
            speaker=Speaker("1", url, Origin.FOREIGN, identity=identity, peer=peer),
            outbox_bytes=1000, stores=True, state=State.DETACHED,
        )  # fmt: skip
        row = models.Session(runtime_url=url, handshake="ws", **_of_identity(session))
        nothing: Any = None
        settings = SessionSettings("always", True, True, 1, 1000, 1, 1, "domain://d")
        speaker = SessionManager(settings, RoutingTable(), nothing, nothing).restored(row).speaker
        assert (speaker.peer, speaker.is_visitor) == (peer, not peer)
        assert speaker.identity == identity
