"""Decides who owns an entry, and who may change it. Pure.

Rules
- What a session registers is owned by the verified subject that was logged in, else by the session.
  Other entries (registered over HTTP, or before there were owners) have no owner; their runtime may
  change them, or who holds their address at the node.
- A verified subject's entry can be changed only by that subject, from any runtime or device.
- An anonymous session's entry can be changed by that session and, if sessions of one runtime URL
  share what they hold, by every session of the entry's runtime. Once the entry has ended, who holds
  its address may register it again.
- Without a session (HTTP without an account) only entries without an owner can be changed.
- A data object can also be changed by the owner of its reporter.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

from msgnode.core.errors import Forbidden

from .entries import Entry, Kind

SESSION, SUBJECT = "session ", "subject "
"""How the marks of owners begin."""


@dataclass(frozen=True, slots=True)
class Claimant:
    """The client that requests a change, as the node knows it.

    session   its session id, "" if it has none
    subject   the mark of its verified subject, "" if nobody is logged in
    runtimes  its runtime URL, in both spellings
    holds     whether it holds the address of the entry
    shares    whether sessions of one runtime URL share what they hold
    """

    session: str = ""
    subject: str = ""
    runtimes: tuple[str, ...] = ()
    holds: bool = False
    shares: bool = False

    @property
    def mark(self) -> str:
        """The mark for the entries it registers."""
        return self.subject or (session_mark(self.session) if self.session else "")


PUBLIC = Claimant()
"""A client without a session and without an account."""


def session_mark(session: str) -> str:
    """The mark of a session without a login, from its id."""
    return SESSION + session


def subject_mark(issuer: str, subject: str) -> str:
    """The mark of a verified subject, from which neither name can be read."""
    return SUBJECT + hashlib.sha256(f"{issuer}\n{subject}".encode()).hexdigest()


def check(
    before: Entry | None, reporter: Entry | None, by: Claimant | None, registers: bool
) -> None:
    """Check that an entry may be changed. Raises Forbidden.

    Args:
        before: the entry as it is, None for a new one.
        reporter: of a data object: the registered hyperty that reports it now.
        by: the client; None for the node itself and for accounts that may change every entry.
        registers: whether the whole entry is replaced.
    """
    if before is None or by is None or owns(before, by, registers):
        return
    if before.kind is Kind.OBJECT and reporter is not None and owns(reporter, by):
        return
    raise Forbidden(f"{before.url} is registered by somebody else.")


def check_reporter(reporter: Entry | None, by: Claimant | None) -> None:
    """Check that a data object may name this hyperty as its reporter. Raises Forbidden."""
    if reporter is not None and by is not None and by != PUBLIC and not owns(reporter, by):
        raise Forbidden(f"The reporter {reporter.url} is registered by somebody else.")


def kept(after: Entry, by: Claimant) -> Entry:
    """The entry after a change by its owner.

    If the owner's session has logged in since the registration, the subject is now the owner.
    """
    is_his = bool(by.subject) and after.owner == session_mark(by.session)
    return replace(after, owner=by.subject) if is_his else after


def owns(entry: Entry, by: Claimant, registers: bool = False) -> bool:
    """Whether the client may change the entry, or register it again."""
    if not entry.owner:
        return by == PUBLIC or by.holds or entry.runtime in by.runtimes
    if by.session and entry.owner in (by.mark, session_mark(by.session)):
        return True
    if entry.owner.startswith(SUBJECT):
        return False
    if by.shares and entry.runtime in by.runtimes:
        return True
    return registers and by.holds and not entry.is_available
