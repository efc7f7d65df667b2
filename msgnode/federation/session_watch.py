"""Detects whether a peer continues the session of its stub there, from the frames on the socket.

The stub does not tell. So the host watches the first frames of each socket: the session continues
if the stub asked for that, and was given no other token. Anything else counts as a new session,
which is never wrong, only more work.

If nothing listens at the peer's addresses any more, its node has ended, not only the connection:
pending requests are lost, even if the session continues once it is back.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import msgspec

SESSION = "mn:/session"
LOOKS = 50
"""Most frames of a socket that are searched for the answer to the session frame."""


class _Body(msgspec.Struct):
    code: Any = None
    runtimeToken: Any = None  # noqa: N815  (the wire's)


class _Answer(msgspec.Struct):
    sender: str = msgspec.field(name="from", default="")
    body: _Body | None = None


_answers = msgspec.json.Decoder(_Answer)


class SessionWatch:
    """One instance per peer; it outlives sockets and sandboxes. Keeps only digests of tokens.

    Args:
        lost: called with a text when a socket was lost.
    """

    def __init__(self, lost: Callable[[str], None] = lambda _: None) -> None:
        self.lost = lost
        self.is_new = False
        self.has_ended = False
        self._looks = 0
        self._asked_again = False
        self._digest = ""

    def opened(self) -> None:
        """Note an open socket: a new session unless proved otherwise."""
        self.is_new = True
        self._looks = LOOKS
        self._asked_again = False

    def refused(self) -> None:
        """Note that nothing listens at the peer's address."""
        self.has_ended = True

    def sent(self, text: str) -> None:
        """Inspect a frame of the stub."""
        if self._looks and '"re-open"' in text and SESSION in text:
            self._asked_again = True

    def received(self, text: str) -> None:
        """Inspect a frame of the peer."""
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
