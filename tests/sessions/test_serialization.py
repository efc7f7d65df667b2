"""Who is behind a session goes along when it changes its worker."""

from __future__ import annotations

from typing import Any

import msgspec

from msgnode import models
from msgnode.bus.table import RoutingTable
from msgnode.core.identity import Identity, Origin, Speaker
from msgnode.sessions.manager import SessionManager
from msgnode.sessions.rules import State
from msgnode.sessions.session import LiveSession, SessionLimits
from msgnode.sessions.session_factory import SessionSettings, SessionState, session_of, state_of
from msgnode.sessions.store import SessionStore, _of_identity

LIMITS = SessionLimits(1000, stores=True)
ALICE = Identity("https://idp.example", "s-1", "alice@example.org", groups=("a",), expires=9.0)


def test_a_bound_session_stays_bound_on_another_worker() -> None:
    speaker = Speaker("1", "runtime://d/1", identity=ALICE)
    session = LiveSession(speaker, "ws", "h", LIMITS, State.DETACHED, proof="digest")
    packed = msgspec.msgpack.encode(state_of(session))
    arrived = session_of(msgspec.msgpack.decode(packed, type=SessionState), LIMITS)
    assert arrived.speaker.identity == ALICE
    assert arrived.proof == "digest"


def test_who_has_said_who_they_are_is_known_on_another_worker_and_after_a_restart() -> None:
    session = LiveSession(Speaker("1", "runtime://d/1"), "ws", "h", LIMITS, State.DETACHED)
    for said in (False, True):
        session.has_said_who = said
        packed = msgspec.msgpack.encode(state_of(session))
        arrived = session_of(msgspec.msgpack.decode(packed, type=SessionState), LIMITS)
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
        speaker = Speaker("1", url, Origin.FOREIGN, identity=identity, peer=peer)
        session = LiveSession(speaker, "ws", "h", LIMITS, State.DETACHED)
        row = models.Session(runtime_url=url, handshake="ws", **_of_identity(session))
        nothing: Any = None
        settings = SessionSettings("always", True, True, 1, 1000, 1, 1, "domain://d")
        speaker = SessionManager(settings, RoutingTable(), nothing, nothing).restored(row).speaker
        assert (speaker.peer, speaker.is_visitor) == (peer, not peer)
        assert speaker.identity == identity
