"""Whether a peer goes on with the session that its stub had there, seen by what passes the socket.

A stub does not tell. So the host reads along in the first frames of each socket: a session has gone
on if the stub asked for that, and was given no other token. Anything else counts as a new session,
which is never wrong, only more work.

Where nothing listens at the peer's addresses any more its node has ended, not only the way there:
what it was asked is lost, whether or not the session goes on once it is back.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import msgspec

SESSION = "mn:/session"
LOOKS = 50
"""Frames of a socket among which the answer to the session frame is looked for."""


class _Body(msgspec.Struct):
    code: Any = None
    runtimeToken: Any = None  # noqa: N815  (the wire's)


class _Answer(msgspec.Struct):
    sender: str = msgspec.field(name="from", default="")
    body: _Body | None = None


_answers = msgspec.json.Decoder(_Answer)


class SessionWatch:
    """One instance per peer; it outlives sockets and sandboxes. Keeps digests of tokens alone.

    Args:
        lost: is called when a socket was lost, with that in words.
    """

    def __init__(self, lost: Callable[[str], None] = lambda _: None) -> None:
        self.lost = lost
        self.is_new = False
        self.has_ended = False
        self._looks = 0
        self._asked_again = False
        self._digest = ""

    def opened(self) -> None:
        """A socket is open: until it says otherwise, there is a new session."""
        self.is_new = True
        self._looks = LOOKS
        self._asked_again = False

    def refused(self) -> None:
        """Nothing listens where the peer was."""
        self.has_ended = True

    def sent(self, text: str) -> None:
        """The stub has sent something."""
        if self._looks and '"re-open"' in text and SESSION in text:
            self._asked_again = True

    def received(self, text: str) -> None:
        """The peer has sent something."""
        if not self._looks:
            return
        self._looks -= 1
        if SESSION not in text:
            return
        try:
            answer = _answers.decode(text)
        except (msgspec.DecodeError, RecursionError):
            return
        if answer.sender != SESSION or answer.body is None:
            return
        token = answer.body.runtimeToken
        digest = hashlib.sha256(str(token).encode(errors="replace")).hexdigest() if token else ""
        is_other = digest not in ("", self._digest)
        self.is_new = not self._asked_again or answer.body.code != 200 or is_other
        self._digest = digest or self._digest
        self._looks = 0 if answer.body.code == 200 else self._looks
