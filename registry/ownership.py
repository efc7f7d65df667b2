"""Whose an entry is, and who may change it. Pure.

Rules
- What a session registers is owned: by the verified subject that was logged in, else by that
  session. What came in otherwise (over HTTP, or before there were owners) is not, and then its
  runtime speaks for it, or who holds its address at the node.
- A verified subject's entry is changed by that subject alone, from whatever runtime or device.
- Nobody in particular stands behind an anonymous session. Its entry is changed by that session, and
  where sessions of one runtime URL share what they hold by every session of the entry's runtime.
  Once the entry has ended, who holds its address may register it anew.
- Without a session (HTTP without an account) only entries without an owner can be changed.
- A data object may also be changed by who owns its reporter.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

from msgnode.core.errors import Forbidden

from .entries import Entry, Kind


@dataclass(frozen=True, slots=True)
class Claimant:
    """Who asks for a change, as the node knows him.

    session   the id of his session, "" if he has none
    subject   the mark of his verified subject, "" if nobody is logged in
    runtimes  the URL of his runtime, in both spellings
    holds     whether he holds the address of the entry
    shares    whether sessions of one runtime URL share what they hold
    """

    session: str = ""
    subject: str = ""
    runtimes: tuple[str, ...] = ()
    holds: bool = False
    shares: bool = False

    @property
    def mark(self) -> str:
        """What the entries he registers are marked with."""
        return self.subject or (session_mark(self.session) if self.session else "")


PUBLIC = Claimant()
"""Somebody who came in without a session and without an account."""


def session_mark(session: str) -> str:
    """The mark of a session that nobody is logged in at, by its id."""
    return f"session {session}"


def subject_mark(issuer: str, subject: str) -> str:
    """The mark of a verified subject: neither name can be read from it."""
    return "subject " + hashlib.sha256(f"{issuer}\n{subject}".encode()).hexdigest()


def check(
    before: Entry | None, reporter: Entry | None, by: Claimant | None, registers: bool
) -> None:
    """Whether the entry `before` may be changed. Raises Forbidden.

    Args:
        before: the entry as it is, None for a new one.
        reporter: of a data object: the registered hyperty that reports it now.
        by: who asks; None for the node itself and for accounts that may change every entry.
        registers: whether the whole entry is replaced.
    """
    if before is None or by is None or owns(before, by, registers):
        return
    if before.kind is Kind.OBJECT and reporter is not None and owns(reporter, by):
        return
    raise Forbidden(f"{before.url} is registered by somebody else.")


def check_reporter(reporter: Entry | None, by: Claimant | None) -> None:
    """Whether a data object may name this registered hyperty as its reporter. Raises Forbidden."""
    if reporter is not None and by is not None and by != PUBLIC and not owns(reporter, by):
        raise Forbidden(f"The reporter {reporter.url} is registered by somebody else.")


def kept(after: Entry, by: Claimant) -> Entry:
    """The entry after a change by its owner.

    Whose session has logged in since it registered the entry has it as that subject from now on.
    """
    is_his = bool(by.subject) and after.owner == f"session {by.session}"
    return replace(after, owner=by.subject) if is_his else after


def owns(entry: Entry, by: Claimant, registers: bool = False) -> bool:
    """Whether the entry is his to change, or to register anew."""
    if not entry.owner:
        return by == PUBLIC or by.holds or entry.runtime in by.runtimes
    if by.session and entry.owner in (by.mark, f"session {by.session}"):
        return True
    if entry.owner.startswith("subject "):
        return False
    if by.shares and entry.runtime in by.runtimes:
        return True
    return registers and by.holds and not entry.is_available
