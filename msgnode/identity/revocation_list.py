"""The revocations as a worker keeps them in memory: checked at every verification."""

from __future__ import annotations

from collections.abc import Iterable
from time import time
from typing import Any, NamedTuple


class Revocation(NamedTuple):
    """Revokes a subject, or (with `token`, a digest) one token.

    `at` is in seconds, epoch; `closes` says whether it closes sessions, if that is known.
    """

    issuer: str = ""
    subject: str = ""
    token: str = ""
    at: float = 0.0
    closes: bool = False


class Revocations:
    """A snapshot; look-ups are dictionary look-ups."""

    def __init__(self, revoked: Iterable[Revocation] = ()) -> None:
        self._subjects: dict[tuple[str, str], float] = {}
        self._tokens: set[str] = set()
        self._closing: set[str | tuple[str, str]] = set()
        for each in revoked:
            self.add(each)

    def add(self, revoked: Revocation) -> None:
        """Add a revocation."""
        if revoked.closes:
            self._closing.add(revoked.token or (revoked.issuer, revoked.subject))
        if revoked.token:
            self._tokens.add(revoked.token)
        else:
            key = revoked.issuer, revoked.subject
            self._subjects[key] = max(revoked.at, self._subjects.get(key, 0.0))

    def covers(self, issuer: str, subject: str, issued: float, token: str) -> bool:
        """Whether a token of this subject, issued at this moment (0: unknown), is revoked."""
        if token in self._tokens:
            return True
        at = self._subjects.get((issuer, subject))
        return at is not None and issued <= at

    def closes(self, issuer: str, subject: str, token: str) -> bool:
        """Whether what covers it also ends sessions, as far as that was said to this worker."""
        return token in self._closing or (issuer, subject) in self._closing

    def __len__(self) -> int:
        return len(self._subjects) + len(self._tokens)


def from_payload(payload: dict[str, Any]) -> Revocation:
    """Read a revocation from the payload of a control message."""
    named = {name: str(payload.get(name, "")) for name in ("issuer", "subject", "token")}
    at, closes = payload.get("at") or time(), bool(payload.get("close", True))
    return Revocation(**named, at=at, closes=closes)
