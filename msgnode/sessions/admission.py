"""Decides what a client gets that asks for a session of a runtime: a value, carried out by others.

`asked` decides on an `open`, which may resume a session that the runtime has left; `new` decides on
a session beside those that there are. Pure: nothing is changed, asked or waited for.

Rules
- The newest detached session that the speaker may follow is resumed, however many others the
  runtime URL has: after a reload a page continues its session instead of adding one.
- Everything below a runtime's URL belongs to the runtime, and its messages must not reach somebody
  who came there in its absence. So a runtime URL cannot be opened below that of an existing
  runtime, nor above that of one that the newcomer may not follow; below one whose last owner is a
  verified subject, only by that subject.
- If the URL is in use, only the same subject (or whom SHARE_RUNTIME_URL allows) may open another
  session. A socket that is in the way is first checked for liveness (liveness.py).
- At MAX_SESSIONS_PER_RUNTIME the oldest detached session ends, so that a runtime never locks itself
  out. Sessions from the speaker's own source address end first, so that strangers with the same
  runtime URL displace their own. A session bound to a verified subject makes room for that subject
  only; one with a socket is never ended.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from msgnode.bus.last_owners import LastOwnerCache
from msgnode.bus.ports import Listener
from msgnode.bus.table import RoutingTable
from msgnode.core import addresses
from msgnode.core.errors import Forbidden, NodeError, TooMany, Unavailable
from msgnode.core.identity import Speaker

from . import rules

WITH_PROOF = "with-proof"
"""The value of RESUME with which only a verified subject resumes a session without its token."""


@dataclass(frozen=True, slots=True)
class Open:
    """The client gets a new session; `ends` makes room for it."""

    ends: Listener | None = None


@dataclass(frozen=True, slots=True)
class Resume:
    """It gets a session of this worker."""

    session: Listener


@dataclass(frozen=True, slots=True)
class Fetch:
    """It gets a session of another worker, once that is here."""

    session: Listener


@dataclass(frozen=True, slots=True)
class AskAlive:
    """It waits until the sockets of these sessions were checked, then asks again."""

    sessions: Sequence[Listener]


@dataclass(frozen=True, slots=True)
class Refuse:
    """It gets none; `is_final` if so whoever asks, and whatever other workers know."""

    error: NodeError
    is_final: bool = False


ForNew = Open | AskAlive | Refuse
Admission = Resume | Fetch | ForNew


class Newcomer(Protocol):
    """The connection of the client."""

    @property
    def speaker(self) -> Speaker:
        """Who it is."""
        ...

    @property
    def handshake(self) -> str:
        """How it has connected."""
        ...

    @property
    def checked(self) -> Mapping[str, bool]:
        """Which sessions' sockets were checked for it, and whether they were alive."""
        ...


class Settings(Protocol):
    """Of sessions: see SessionSettings."""

    @property
    def resume(self) -> str:
        """The setting RESUME."""
        ...

    @property
    def shares(self) -> bool:
        """The setting SHARE_RUNTIME_URL."""
        ...

    @property
    def max_sessions(self) -> int:
        """Most sessions of a worker."""
        ...

    @property
    def max_per_runtime(self) -> int:
        """The setting MAX_SESSIONS_PER_RUNTIME."""
        ...


@dataclass(frozen=True, slots=True)
class Known:
    """What a worker knows of sessions.

    Attributes:
        settings: the settings of sessions.
        table: the sessions of all runtimes, and the peers.
        last_owners: who held the addresses that are free.
        sessions: the sessions of this worker.
    """

    settings: Settings
    table: RoutingTable
    last_owners: LastOwnerCache
    sessions: Mapping[str, Listener]


def asked(runtime_url: str, newcomer: Newcomer, known: Known) -> Admission:
    """Decide on an `open`, as far as the runtime's sessions are known."""
    if newcomer.handshake != rules.PEER and runtime_url in known.table.peers.values():
        return Refuse(Forbidden(f"{runtime_url} is the node of another domain."), is_final=True)
    siblings = known.table.runtimes.get(runtime_url, ())
    left = to_resume(siblings, newcomer.speaker, known.settings.resume)
    if left is not None:
        return Resume(left) if left.is_here else Fetch(left)
    return new(runtime_url, newcomer, known)


def new(runtime_url: str, newcomer: Newcomer, known: Known) -> ForNew:
    """Decide on a new session."""
    runtimes, settings = known.table.runtimes, known.settings
    siblings = runtimes.get(runtime_url, ())
    twins = runtimes.get(addresses.runtime_twin(runtime_url), ())
    against = _fault_of_place(runtime_url, newcomer.speaker, known)
    if against is not None:
        return Refuse(against)
    in_use = _use(runtime_url, (*siblings, *twins), newcomer, settings.shares)
    if in_use is not None:
        return in_use
    ends = None
    if len(siblings) >= settings.max_per_runtime:
        ends = to_end(siblings, newcomer.speaker)
        if ends is None:
            return _full(runtime_url, siblings, newcomer)
    others = len(known.sessions) - (ends is not None and ends.is_here)
    if others >= settings.max_sessions:
        return Refuse(Unavailable("The node has reached its limit of sessions."))
    return Open(ends)


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


def _fault_of_place(runtime_url: str, speaker: Speaker, known: Known) -> NodeError | None:
    """What is wrong with where the URL lies, between those of other runtimes."""
    table, shares = known.table, known.settings.shares
    for url in (runtime_url, addresses.runtime_twin(runtime_url)):
        above = tuple(addresses.ancestors(url))
        if used := next(filter(table.runtimes.__contains__, above), ""):
            return Forbidden(f"{runtime_url} lies below the runtime {used}.")
        for below in table.runtimes_below(url):
            if not all(speaker.may_follow(each.speaker, shares) for each in table.runtimes[below]):
                return Forbidden(f"{runtime_url} lies above {below}, which is another's.")
        if above and not known.last_owners.allow(above[0], speaker):
            return Forbidden(f"{runtime_url} lies below what belongs to another subject.")
    return None


def _use(
    runtime_url: str, sessions: Sequence[Listener], newcomer: Newcomer, shares: bool
) -> AskAlive | Refuse | None:
    """What follows from sessions of somebody else that are in the way, None if there are none."""
    checked = newcomer.checked
    in_the_way = [
        each
        for each in sessions
        if (each.is_connected or (each.speaker.identity is not None and not shares))
        and not newcomer.speaker.may_follow(each.speaker, shares)
    ]
    if not in_the_way:
        return None
    may_be_gone = [
        each
        for each in in_the_way
        if each.is_connected and (each.speaker.identity is None or shares)
    ]
    if len(may_be_gone) == len(in_the_way):
        if unasked := [each for each in may_be_gone if each.id not in checked]:
            return AskAlive(unasked)
        if not all(checked[each.id] for each in may_be_gone):
            text = f"{runtime_url} was in use until now, and may still be: try again."
            return Refuse(Unavailable(text))
    return Refuse(Forbidden(f"{runtime_url} is in use by another connection."))


def _full(runtime_url: str, siblings: Sequence[Listener], newcomer: Newcomer) -> AskAlive | Refuse:
    """What follows where none of so many sessions may end."""
    unasked = [each for each in siblings if each.is_connected and each.id not in newcomer.checked]
    if unasked:
        return AskAlive(unasked)
    return Refuse(TooMany(f"{runtime_url} has {len(siblings)} sessions already, all in use."))
