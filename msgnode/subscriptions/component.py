"""The subscription manager, domain://msg-node.<domain>/sm.

A subscription applies at once and is acknowledged after its commit; a claim applies with its
commit, because the unique row is the claim. A request is accepted or refused as a whole; one for
what an earlier request of the session still waits for has the same result.
Subscribing twice is one subscription; unsubscribing what is not subscribed is answered 200.
"""

from __future__ import annotations

from asyncio import Future, Task, ensure_future
from collections.abc import Awaitable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

from msgnode.bus.address_budget import AddressBudget
from msgnode.bus.ownership import Ownership
from msgnode.bus.ports import Body, Component, Listener
from msgnode.bus.slices import in_slices
from msgnode.bus.table import RoutingTable
from msgnode.bus.writing import retrieve_error
from msgnode.core import addresses
from msgnode.core.errors import BadMessage, Conflict, Forbidden, TooMany
from msgnode.core.messages import Message

from . import rules
from .abroad import NOTHING_ABROAD, Abroad, granted
from .rules import Access, Wanted
from .store import SubscriptionStore


class Owned(Protocol):
    """Address allocation, which owns what is claimed here."""

    def enter(self, address: str, key: str, session: Listener) -> None:
        """Give an address to a session."""
        ...

    def drop(self, address: str, session: Listener) -> None:
        """Take it back."""
        ...

    def check_room(self, session: Listener, number: int) -> None:
        """Raise TooMany if a session may not hold so many more."""
        ...


@dataclass(frozen=True, slots=True)
class SubscriptionLimits:
    """Most subscriptions of a session, and most addresses that one request names."""

    per_session: int
    per_request: int


class SubscriptionComponent(Component):
    """The component; `abroad` subscribes at other domains."""

    name = "sm"
    tells_workers = True

    def __init__(
        self,
        table: RoutingTable,
        store: SubscriptionStore,
        domain: str,
        owned: Owned,
        ownership: Ownership,
        limits: SubscriptionLimits,
        budget: AddressBudget,
        abroad: Abroad = NOTHING_ABROAD,
    ) -> None:
        super().__init__((f"domain://msg-node.{domain}/sm",))
        self._abroad = abroad
        self._table = table
        self._store = store
        self._domain = domain
        self._owned = owned
        self._budget = budget
        self._max_per_session = limits.per_session
        self._max_per_request = min(limits.per_request, limits.per_session)
        self._ownership = ownership
        self._of: dict[str, dict[str, None]] = {}  # session id -> addresses
        self._pending: dict[str, dict[str, Future[Body]]] = {}
        """By session, requests for addresses that are not committed yet, or not granted abroad."""

    def answer(self, message: Message, caller: Listener) -> Body | Awaitable[Body]:
        """Subscribe or unsubscribe, here or at the node of another domain."""
        home = addresses.parse(message.recipients[0]).home
        if home != addresses.parse(self.addresses[0]).home:  # the request is for a peer's manager
            rules.check_homes(rules.wanted(message.fields(), self._max_per_request), home)
        match message.type:
            case "subscribe":
                return self._subscribe(message.fields(), caller)
            case "unsubscribe":
                return self._unsubscribe(message.fields(), caller)
        raise BadMessage("The subscription manager takes subscribe and unsubscribe.")

    def cost(self, message: Message) -> int:
        """As many messages as the request names addresses, besides the first."""
        if message.type not in ("subscribe", "unsubscribe"):
            return 0
        return rules.number_named(message.fields(), self._max_per_request) - 1

    def addresses_of(self, message: Message) -> list[str]:
        """The addresses to be subscribed, and those that claims are for."""
        with suppress(BadMessage):  # the answer will tell
            body = message.fields()
            asked = rules.wanted(body, self._max_per_request)
            source = body.get("source") or body.get("subscriber")
            named = [*asked.exact, *asked.optional]
            if isinstance(source, str) and not addresses.fault(source):
                named.append(source)
            return [each for each in named if not addresses.is_event(each)]
        return []

    # --- what others tell it ----------------------------------------------------------------------

    def enter_subscription(self, address: str, session: Listener) -> None:
        """Subscribe a session to an address."""
        mine = self._of.setdefault(session.id, {})
        if address not in mine:
            self._budget.take(session, (address,))
        mine[address] = None
        self._table.subscribe(address, session)

    def drop_subscription(self, address: str, session: Listener) -> None:
        """Unsubscribe a session from an address."""
        self._table.unsubscribe(address, session)
        mine = self._of.get(session.id)
        if mine is not None:
            if address in mine:
                self._budget.give(session, (address,))
                del mine[address]
            if not mine:
                del self._of[session.id]

    def end(self, address: str, session: Listener) -> None:
        """End a subscription on the node's decision: in memory at once, then in the database."""
        self.drop_subscription(address, session)
        self._store.unsubscribed(session, [address], [], [], None)

    def of(self, session: Listener) -> Collection[str]:
        """The addresses that a session has subscribed."""
        return self._of.get(session.id, {}).keys()

    def listening(self, sessions: Mapping[str, Listener]) -> Iterator[Listener]:
        """The sessions with subscriptions now; those that leave meanwhile are left out."""
        for id_ in tuple(self._of):
            session = sessions.get(id_)
            if session is not None:
                yield session

    def holdings(self, session_id: str) -> list[str]:
        """The addresses a session has subscribed."""
        return list(self._of.get(session_id, ()))

    def adopt(self, session: Listener, subscribed: Iterable[str]) -> None:
        """Take over a session with these subscriptions, which are already in the routing table."""
        mine = dict.fromkeys(subscribed)
        if mine:
            self._of[session.id] = mine
            self._budget.take(session, mine)

    def hand_off(self, session_id: str) -> None:
        """Forget a session that has moved to another worker; the routing table is not changed."""
        self._of.pop(session_id, None)
        self._budget.forget(session_id)

    def session_closed(self, session: Listener, reason: str) -> None:
        """A SessionEnd: remove the session's subscriptions."""
        self._budget.forget(session.id)
        left = self._of.pop(session.id, {})
        in_slices(left, lambda address: self._table.unsubscribe(address, session))

    def restore(self, rows: Iterable[tuple[str, str]], sessions: dict[str, Any]) -> None:
        """Restore subscriptions from the database at start."""
        for address, session_id in rows:
            session = sessions.get(session_id)
            if session is not None:
                self.enter_subscription(address, session)

    # --- requests ---------------------------------------------------------------------------------

    def _subscribe(self, body: dict[str, Any], caller: Listener) -> Body | Awaitable[Body]:
        asked = rules.wanted(body, self._max_per_request)
        session = self._on_behalf(body, caller)
        plain, claimed, taken_over = self._sorted(asked, session)
        mine = self._of.get(session.id, {})
        new = [address for address in plain if address not in mine]
        if len(mine) + len(new) + len(claimed) > self._max_per_session:
            raise TooMany(
                f"A session may have {self._max_per_session} subscriptions "
                "(MAX_SUBSCRIPTIONS_PER_SESSION)."
            )
        owned = [*claimed, *taken_over]
        self._owned.check_room(session, len(owned))
        self._budget.check(session, [*new, *owned])
        earlier = self._under_way(asked, session)
        if not new and not claimed and not taken_over and not earlier:
            return {"code": 200}
        for address in new:
            self.enter_subscription(address, session)
        self._budget.take(session, owned)  # until the commit, after which each counts by itself
        body = {"code": 200}
        committed = self._store.subscribed(session, new, claimed, taken_over, body)
        settled = self._settle(committed, session, new, owned, taken_over, earlier)
        far = self._abroad.abroad(new)
        shared = [each for each in earlier if isinstance(each, Task)]
        if not far and not shared:
            return settled
        return self._granted(settled, far, shared, [*new, *owned], session)

    def _granted(
        self,
        settled: Future[Body],
        far: list[str],
        shared: list[Task[Body]],
        mine: list[str],
        session: Listener,
    ) -> Future[Body]:
        """Answer a subscription once it is granted abroad, or take back what is still of it."""

        def take_back() -> None:
            pending = self._pending.get(session.id, {})
            left = [each for each in mine if pending.get(each) is request]
            self._end(left, session, request)
            if left:
                self._unsubscribe({"resources": left}, session)

        request = ensure_future(granted(settled, self._abroad, far, shared, take_back))
        request.add_done_callback(lambda _: self._end(mine, session, request))
        request.add_done_callback(retrieve_error)
        self._begin(mine, session, request)
        return request

    def _under_way(self, asked: Wanted, session: Listener) -> list[Future[Body]]:
        """Earlier requests of the session for these addresses that are still pending."""
        pending = self._pending.get(session.id)
        if not pending:
            return []
        return [pending[each] for each in (*asked.exact, *asked.optional) if each in pending]

    def _settle(
        self,
        committed: Future[Body],
        session: Listener,
        new: list[str],
        claimed: list[str],
        taken_over: dict[str, Listener],
        earlier: list[Future[Body]],
    ) -> Future[Body]:
        """Apply claims with the commit, or undo the subscriptions if it fails.

        A request for what an earlier one is about to get shares its result.
        """
        answer: Future[Body] = committed.get_loop().create_future()
        answer.add_done_callback(retrieve_error)
        self._begin([*new, *claimed], session, answer)

        def settle(done: Future[Body]) -> None:
            self._end([*new, *claimed], session, answer)
            self._budget.give(session, claimed)
            error = None if done.cancelled() else done.exception()
            if done.cancelled() or error is not None:
                for address in new:
                    self.drop_subscription(address, session)
                if isinstance(error, Conflict):
                    error = Forbidden("An address of the request belongs to another session.")
                if not answer.done():
                    answer.set_exception(error or Conflict("The request was given up."))
                return
            for address in claimed:
                if address in taken_over:
                    self._owned.drop(address, taken_over[address])
                if self._table.knows(session):  # else the session's end has freed the address
                    self._owned.enter(address, "", session)
            error = next(filter(None, map(_error, earlier)), None)
            if answer.done():
                return
            if error is not None:
                answer.set_exception(error)
            else:
                answer.set_result(done.result())

        committed.add_done_callback(settle)
        return answer

    def _begin(self, addresses: list[str], session: Listener, request: Future[Body]) -> None:
        pending = self._pending.setdefault(session.id, {})
        pending.update(dict.fromkeys(addresses, request))
        if not pending:
            del self._pending[session.id]

    def _end(self, addresses: list[str], session: Listener, request: Future[Body]) -> None:
        pending = self._pending.get(session.id, {})
        for address in addresses:
            if pending.get(address) is request:
                del pending[address]
        if not pending:
            self._pending.pop(session.id, None)

    def _unsubscribe(self, body: dict[str, Any], caller: Listener) -> Body | Future[Body]:
        asked = rules.wanted(body, self._max_per_request)
        session = self._on_behalf(body, caller)
        mine = self._of.get(session.id, {})
        named = (*asked.exact, *asked.optional)
        gone = [address for address in named if address in mine]
        pending = self._pending.get(session.id, {})
        owned = [
            each
            for each in asked.exact
            if self._table.owners.get(each) is session or (each in pending and each not in mine)
        ]
        if not gone and not owned:
            return {"code": 200}
        for address in gone:
            self.drop_subscription(address, session)
        for address in named:
            pending.pop(address, None)
        unclaimed: list[str] = []  # filled in by the transaction: what was claimed, not allocated
        body = {"code": 200}
        committed = self._store.unsubscribed(session, gone, owned, unclaimed, body)

        def settle(done: Future[Body]) -> None:
            if done.cancelled() or done.exception() is not None:
                for address in gone if self._table.knows(session) else ():
                    self.enter_subscription(address, session)
            else:
                for address in unclaimed:
                    self._owned.drop(address, session)

        committed.add_done_callback(settle)
        return committed

    def _sorted(
        self, asked: Wanted, session: Listener
    ) -> tuple[list[str], list[str], dict[str, Listener]]:
        """Plain subscriptions, new claims, and claims of an earlier session of the same runtime.

        Raises Forbidden if any address is not allowed for this session.
        """
        plain: list[str] = []
        claimed: list[str] = []
        taken_over: dict[str, Listener] = {}
        pending = self._pending.get(session.id, {})
        for address in asked.exact:
            access = rules.access(address, session.runtime_url, self._domain)
            if access is Access.EVERYBODY:
                plain.append(address)
                continue
            if access is Access.NOBODY:
                raise Forbidden(f"{address} cannot be subscribed by this session.")
            owner = self._table.owner_of(address)
            if access is Access.RUNTIME and (
                owner is None or owner.runtime_url == session.runtime_url
            ):
                plain.append(address)
                continue
            is_others = owner is not None and owner is not session
            if is_others and not self._ownership.follows(address, owner, session):
                raise Forbidden(f"{address} belongs to another session.")
            if access in (Access.OWNER, Access.RUNTIME):
                plain.append(address)
            elif self._table.owners.get(address) is session or address in pending:
                continue
            elif owner is None or not is_others:
                self._ownership.check(address, session, session.speaker)
                claimed.append(address)
            else:
                taken_over[address] = owner
        for address in asked.optional:
            access = rules.access(address, session.runtime_url, self._domain)
            if access is Access.CLAIM and self._table.owner_of(address) is None:
                plain.append(address)
        return plain, claimed, taken_over

    def _on_behalf(self, body: dict[str, Any], caller: Listener) -> Listener:
        """The session a request is for (docs/reference/messages.md, case 35).

        If another connection of the same runtime or subject owns `source` (or `subscriber`), it is
        that connection's; otherwise the caller's.
        """
        source = body.get("source") or body.get("subscriber")
        if not isinstance(source, str):
            return caller
        if why := addresses.fault(source):
            raise BadMessage(f"The address in `source` or `subscriber` {why}.")
        owner = self._table.owner_of(source)
        if owner is None or owner is caller:
            return caller
        is_same = owner.runtime_url == caller.runtime_url
        return owner if is_same or owner.speaker.is_same_subject(caller.speaker) else caller


def _error(request: Future[Body]) -> BaseException | None:
    """The error of a refused request, None if it was not refused or is pending."""
    if request.done() and not request.cancelled():
        return request.exception()
    return None
