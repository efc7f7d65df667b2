"""Decides whether a session may send a message.

That depends on the speaker, on the ownership of `from`, and for events on the ownership of `to`.

Rules (docs/reference/messages.md, sections 3, 4 and 11)
- A session may use an address as `from` if bus/ownership.py allows it; an address that nobody held
  is then learned for the session while its socket is open. Any other is refused with 403, and so is
  one that the operator has withdrawn from this session.
- A device (over HTTP, or behind a broker) may not speak as another runtime, even an absent one.
- A child of an object (`<object>/children/<name>`) may be used as `from` by the session that holds
  the object, or by the subscriber of the object's children who used it first.
- Only the holder of an address may send to its `/changes`, `/registration` and `/status`. Below a
  runtime, bus/routes.py decides who receives messages to the last two.
"""

from __future__ import annotations

from msgnode.bus.holders import NO_OTHERS, Holders
from msgnode.bus.ownership import Ownership
from msgnode.bus.ports import Authenticator, Listener
from msgnode.bus.table import RoutingTable
from msgnode.core import addresses
from msgnode.core.errors import Forbidden, NodeError, NotIdentified
from msgnode.core.identity import Speaker
from msgnode.core.messages import Message

from .connection import Connection
from .handshake import SessionHandshake
from .session import LiveSession

WITHOUT_SOCKET = frozenset({"device", "mqtt"})
"""The handshakes of devices; each device is one runtime and speaks for no other."""
_EVENTS = ("/changes", "/registration", "/status")
_MAX_LEARNED = 1_000
"""Addresses of a session, from the `from` of its messages: one has a few hyperties, a test many."""
_ROUTED = addresses.RUNTIME_SCHEMES | addresses.NODE_SCHEMES


class SessionAuthorizer:
    """The bus's Authorizer, based on the routing table."""

    def __init__(
        self,
        table: RoutingTable,
        handshake: SessionHandshake,
        authenticator: Authenticator,
        ownership: Ownership,
        holders: Holders = NO_OTHERS,
    ) -> None:
        self._table = table
        self._handshake = handshake
        self._authenticator = authenticator
        self._ownership = ownership
        self._holders = holders

    def authenticate(self, message: Message, caller: Connection) -> None:
        """Bind the identity of an `open` to the connection; an invalid one counts as a failure."""
        _check_refusal(caller)
        try:
            proof = self._authenticator.authenticate(message, caller.speaker)
        except NodeError:
            caller.failed()
            raise
        if proof is not None:
            caller.identify(proof.identity, proof.digest)

    def authorize(self, message: Message, caller: Connection) -> tuple[LiveSession, Speaker]:
        """The session and the speaker of a message; checks that the session may use its `from`."""
        session = caller.session
        if session is None:
            _check_refusal(caller)
            raise NotIdentified("There is no session: send `open` to mn:/session first.")
        if not session.runtime_url:
            self._handshake.bind(session, message, caller)
        speaker = self._authenticator.speaker_of(message, session)
        sender = message.sender
        table = self._table
        if (
            sender != session.runtime_url
            and table.owners.get(sender) is not session
            and table.learned.get(sender) is not session
            and not (message.is_response and self._is_observer(sender, session))
        ):
            if table.visited and self._ownership.may_speak_beside_node(sender, session, speaker):
                table.shared.add(session.runtime_url)  # the answer does not go by the address
            else:
                if self._holders is not NO_OTHERS:
                    self._find_holder(sender, message, session)
                self._bind(sender, session, speaker)
        for to in message.recipients:
            if to.endswith(_EVENTS):
                self._check_publisher(message, to, session)
        return session, speaker

    def _find_holder(self, address: str, message: Message, session: LiveSession) -> None:
        """Look up the holder of an address if it is not known here."""
        is_own = addresses.is_under(address, session.runtime_url)
        if not is_own and not self._holders.hears(address):
            self._holders.require((session.id, message.id, address), (address,))

    def _bind(self, sender: str, session: LiveSession, speaker: Speaker) -> None:
        """Allow or refuse an address that the session has not used as `from` before."""
        self._ownership.check(sender, session, speaker, self._may_stand_in)
        if session.handshake in WITHOUT_SOCKET and self._is_another_runtime(sender, session):
            raise Forbidden(f"{sender} is another runtime's: a device speaks for itself.")
        if sender in session.withdrawn:
            raise Forbidden(f"{sender} was taken back from this session by the operator.")
        if not addresses.is_under(sender, session.runtime_url):
            self._learn(sender, session)

    def _is_observer(self, address: str, session: LiveSession) -> bool:
        """Whether a session observes the object whose changes these are.

        It answers a request that was sent there, such as the `delete` of the object, from there.
        """
        return address.endswith("/changes") and session in self._table.subscribers(address)

    def _is_another_runtime(self, sender: str, session: LiveSession) -> bool:
        """Whether an address is at or below the URL of a runtime other than the session's."""
        parsed = addresses.parse(sender)
        return (
            parsed.scheme in addresses.RUNTIME_SCHEMES
            and not addresses.is_stub(parsed)
            and not self._ownership.is_below_runtime(sender, session)
        )

    def _check_publisher(self, message: Message, to: str, session: LiveSession) -> None:
        sender = message.sender
        resource, _, event = to.rpartition("/")
        if event != "changes" and addresses.parse(to).scheme in _ROUTED:
            return
        visited = self._table.visited
        if visited and session.speaker.is_visitor and addresses.parse(to).home in visited:
            raise Forbidden(f"The node of its domain sends to {to}, and no visitor.")
        if self._holders is not NO_OTHERS and self._table.owners.get(resource) is not session:
            self._find_holder(resource, message, session)
        owner = self._table.owner_of(resource)
        if owner is None:
            if not addresses.is_under(sender, resource):
                raise Forbidden(f"Only its owner, speaking as {resource}, may send to {to}.")
        elif (
            owner is not session
            and not self._may_stand_in(resource, owner, session)
            and not self._ownership.are_of_one_node(resource, owner, session)
        ):
            raise Forbidden(f"{to} takes messages from the owner of {resource} only.")

    def _may_stand_in(self, address: str, owner: Listener, session: LiveSession) -> bool:
        """Whether a session may speak as an address of another session.

        It may if its runtime has returned with a new session; if it is another session of the same
        runtime and the address was only learned; or as the observer who created a child.
        """
        if self._ownership.follows(address, owner, session):
            return True
        if self._is_same_runtime(owner, session) and not self._is_held(address):
            return True
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

    def _is_held(self, address: str) -> bool:
        """Whether the address or one above it was allocated or claimed."""
        return any(each in self._table.owners for each in (address, *addresses.ancestors(address)))

    def _is_same_runtime(self, owner: Listener, session: LiveSession) -> bool:
        return owner.runtime_url == session.runtime_url and session.speaker.may_follow(
            owner.speaker, self._ownership.shares
        )

    def _learn(self, sender: str, session: LiveSession) -> None:
        session.learned[sender] = None
        self._table.learn(sender, session)
        if len(session.learned) > _MAX_LEARNED:
            oldest = next(iter(session.learned))
            del session.learned[oldest]
            self._table.forget(oldest, session)


def _check_refusal(caller: Connection) -> None:
    """Raise the connection's refusal, if the client has not been told of it yet."""
    if caller.refusal is not None:
        raise caller.refusal.with_traceback(None)
