"""Who is behind a session goes along when it changes its worker."""

from __future__ import annotations

import msgspec

from msgnode.core.speaker import Identity, Speaker
from msgnode.sessions.moving import SessionState, session_of, state_of
from msgnode.sessions.rules import State
from msgnode.sessions.session import LiveSession

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
