"""Whether a session may say this message: who speaks, the ownership of `from`, and of an object's
`/changes`.

Rules (reference 3, 4 and 11)
- A session speaks as its runtime URL (in both spellings) and everything below it, as the addresses
  it holds and everything below them, and as any address nobody holds: that one is then learned as
  its own while its socket is open. Another session's address is refused 403, and so is one that
  the operator took back from this session.
- An address that a verified subject held last stays theirs while nobody holds it.
- Nobody speaks as a component of a node. A node of a foreign domain may, from that domain.
- A child of an object (`<object>/children/<name>`) may be spoken for by the session that holds the
  object, or by a subscriber of the object's children who used it first.
- `<address>/changes` takes messages only from who holds the address.
"""

from __future__ import annotations

from msgnode.bus.last_owners import LastOwners
from msgnode.bus.ports import Listener, Witness
from msgnode.bus.table import RoutingTable
from msgnode.core import addresses
from msgnode.core.errors import Forbidden, NodeError, NotIdentified
from msgnode.core.identity import Speaker
from msgnode.core.messages import Message

from .connection import Connection
from .handshake import SessionComponent
from .session import LiveSession


class SessionAdmission:
    """Implements the bus's Admission over the routing table."""

    def __init__(
        self,
        table: RoutingTable,
        sessions: SessionComponent,
        witness: Witness,
        owners: LastOwners,
        domain: str,
        shares: bool,
        max_learned: int,
    ) -> None:
        self._table = table
        self._sessions = sessions
        self._witness = witness
        self._owners = owners
        self._domain = domain
        self._shares = shares
        self._max_learned = max_learned

    def greet(self, message: Message, caller: Connection) -> None:
        _check_refusal(caller)
        try:
            proof = self._witness.greet(message, caller.speaker)
        except NodeError:
            caller.failed()
            raise
        if proof is not None:
            caller.identify(proof.identity, proof.digest)

    def admit(self, message: Message, caller: Connection) -> tuple[LiveSession, Speaker]:
        session = caller.session
        if session is None:
            _check_refusal(caller)
            raise NotIdentified("There is no session: send `open` to mn:/session first.")
        if not session.runtime_url:
            self._sessions.bind(session, message, caller)
        speaker = self._witness.speaker_of(message, session)
        sender = message.sender
        table = self._table
        if (
            sender != session.runtime_url
            and table.owners.get(sender) is not session
            and table.learned.get(sender) is not session
        ):
            self._bind(sender, session)
        for to in message.recipients:
            if to.endswith("/changes"):
                self._check_reporter(sender, to, session)
        return session, speaker

    def _bind(self, sender: str, session: LiveSession) -> None:
        """Let the session speak as an address it has not used before, or refuse it."""
        is_own = addresses.is_under(sender, session.runtime_url)
        if is_own or addresses.is_under(addresses.runtime_twin(sender), session.runtime_url):
            self._check_runtime(sender, session)
            if not is_own:
                self._learn(sender, session)
            return
        address = addresses.parse(sender)
        if address.domain and not address.path.strip("/"):
            raise Forbidden(f"{sender} names a whole domain; nobody speaks for all of it.")
        if address.scheme in addresses.NODE_SCHEMES and not self._is_foreign_node(address, session):
            raise Forbidden(f"{sender} is an address of a node; a runtime cannot speak as it.")
        owner = self._table.owner_of(sender)
        if (
            owner is not None
            and owner is not session
            and not self._may_stand_in(sender, owner, session)
        ):
            raise Forbidden(f"{sender} belongs to another session.")
        if owner is not session and not self._owners.allow(sender, session.speaker):
            raise Forbidden(f"{sender} belongs to a subject that this session has not logged in.")
        if sender in session.withdrawn:
            raise Forbidden(f"{sender} was taken back from this session by the operator.")
        self._learn(sender, session)

    def _check_runtime(self, sender: str, session: LiveSession) -> None:
        """An address below a runtime's URL may be that of another: of a runtime whose URL is
        longer, of a stub that claimed it, of the one with the other spelling."""
        owner = self._table.owner_of(sender)
        if owner is not None and owner.runtime_url != session.runtime_url:
            raise Forbidden(f"{sender} belongs to another session.")

    def _check_reporter(self, sender: str, to: str, session: LiveSession) -> None:
        resource = to.removesuffix("/changes")
        owner = self._table.owner_of(resource)
        if owner is None:
            if not addresses.is_under(sender, resource):
                raise Forbidden(f"Only its reporter, speaking as {resource}, may send to {to}.")
        elif owner is not session and not self._may_stand_in(resource, owner, session):
            raise Forbidden(f"{to} takes messages from the reporter of {resource} only.")

    def _may_stand_in(self, address: str, owner: Listener, session: LiveSession) -> bool:
        """A runtime that came back with a new session, or a child's maker among the observers."""
        if owner.runtime_url == session.runtime_url and not owner.is_connected:
            return session.speaker.may_follow(owner.speaker, self._shares)
        child = addresses.child_of(address)
        if child is None:
            return False
        parent, child_url = child
        maker = self._table.learned.get(child_url)
        if maker is not None:
            return maker is session
        is_observer = any(
            session in self._table.subscribers(f"{parent}{tail}")
            for tail in ("/children/", "/changes", child_url.removeprefix(parent))
        )
        if is_observer:
            self._learn(child_url, session)
        return is_observer

    def _is_foreign_node(self, address: addresses.Address, session: LiveSession) -> bool:
        home = addresses.parse(session.runtime_url).home
        return bool(address.domain) and home != self._domain and address.home == home

    def _learn(self, sender: str, session: LiveSession) -> None:
        session.learned[sender] = None
        self._table.learn(sender, session)
        if len(session.learned) > self._max_learned:
            oldest = next(iter(session.learned))
            del session.learned[oldest]
            self._table.forget(oldest, session)


def _check_refusal(caller: Connection) -> None:
    """Raises what the connection was refused with, where that is still to be said."""
    if caller.refusal is not None:
        raise caller.refusal.with_traceback(None)
