"""Selects the session of a runtime URL that an `open` without token resumes or replaces. Pure.

Rules
- The newest detached session that the speaker may follow is resumed, however many others the
  runtime URL has: after a reload a page continues its session instead of adding one.
- At the limit the oldest detached session ends, so that a runtime never locks itself out. Sessions
  from the speaker's own source address end first, so that strangers with the same runtime URL
  displace their own. A session bound to a verified subject makes room for that subject only; a
  session with a socket is never ended.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgnode.bus.ports import Listener
from msgnode.core.identity import Speaker

WITH_PROOF = "with-proof"
"""The value of RESUME with which only a verified subject resumes a session without its token."""


def to_resume(sessions: Sequence[Listener], speaker: Speaker, resume: str) -> Listener | None:
    """The session that an `open` of this speaker resumes, None for a new one.

    Args:
        sessions: the sessions of the runtime URL, newest last.
        speaker: the speaker of the `open`.
        resume: the setting RESUME.
    """
    for session in reversed(sessions):
        if not session.is_connected and speaker.may_follow(session.speaker, resume != WITH_PROOF):
            return session
    return None


def to_end(sessions: Sequence[Listener], speaker: Speaker) -> Listener | None:
    """The session that ends to make room at the limit, None if none may.

    Args:
        sessions: the sessions of the runtime URL, newest last.
        speaker: the speaker of the `open`.
    """
    detached = [
        session
        for session in sessions
        if not session.is_connected and speaker.may_follow(session.speaker, shares=True)
    ]
    source = speaker.remote_address
    own = [session for session in detached if session.speaker.remote_address == source]
    return next(iter(own or detached), None)
