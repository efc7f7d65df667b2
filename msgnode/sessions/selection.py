"""Which session of a runtime URL an `open` without a token resumes, and which one makes room. Pure.

Rules
- The newest detached session that the speaker may follow is resumed, however many others the
  runtime URL has: a reload goes on with what it left, and adds none.
- At the limit the oldest detached session ends, so that a runtime never locks itself out. Sessions
  from the speaker's own source address go first: a stranger who uses the same runtime URL uses up
  his own. One that is bound to a verified subject makes room for that subject only, and one that
  has a socket for nobody.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgnode.bus.ports import Listener
from msgnode.core.identity import Speaker

WITH_PROOF = "with-proof"
"""The word of RESUME by which only a verified subject resumes a session without its token."""


def to_resume(sessions: Sequence[Listener], speaker: Speaker, resume: str) -> Listener | None:
    """The session that an `open` of this speaker goes on with, None for a new one.

    Args:
        sessions: those of the runtime URL, the one that was bound last at the end.
        speaker: who opens.
        resume: the setting RESUME.
    """
    for session in reversed(sessions):
        if not session.is_connected and speaker.may_follow(session.speaker, resume != WITH_PROOF):
            return session
    return None


def to_end(sessions: Sequence[Listener], speaker: Speaker) -> Listener | None:
    """The session that ends where the runtime URL has as many as it may have, None if none may.

    Args:
        sessions: those of the runtime URL, the one that was bound last at the end.
        speaker: who opens another.
    """
    detached = [
        session
        for session in sessions
        if not session.is_connected and speaker.may_follow(session.speaker, shares=True)
    ]
    source = speaker.remote_address
    own = [session for session in detached if session.speaker.remote_address == source]
    return next(iter(own or detached), None)
