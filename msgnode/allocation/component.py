"""The component domain://msg-node.<domain>/address-allocation: creates, lends and frees addresses.

An address belongs to the session that requested it, and is routed to it only. Releasing an address
of somebody else, or of nobody, is answered 200 and does nothing (docs/reference/messages.md,
section 11).
"""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from msgnode.bus.address_budget import AddressBudget
from msgnode.bus.last_owners import LastOwnerCache
from msgnode.bus.ports import Body, Component, Listener
from msgnode.bus.slices import AT_ONCE, in_slices
from msgnode.bus.table import RoutingTable
from msgnode.bus.writing import Findable
from msgnode.core.errors import BadMessage, TooMany, Unavailable
from msgnode.core.messages import Message
from msgnode.core.random_ids import random_uuid

from . import rules
from .store import AllocationStore, PoolExhausted, Row

NAMES = ("address-allocation", "hyperty-address-allocation", "object-address-allocation")


def _watch_nothing(scheme: str, fault: str) -> None:
    """Do nothing about an exhausted pool."""


@dataclass(frozen=True, slots=True)
class AllocationLimits:
    """What may be allocated.

    Attributes:
        per_request: most addresses that one request asks for or names.
        per_session: most addresses of a session.
        per_visitor: most addresses of a visitor's session.
    """

    per_request: int
    per_session: int
    per_visitor: int


class AllocationComponent(Component):
    """`domain://msg-node.<domain>/address-allocation`; see the head of the file.

    `watch_pool(scheme, fault)` is called after each request to a pool.
    """

    name = "address-allocation"
    tells_workers = True

    def __init__(
        self,
        table: RoutingTable,
        store: AllocationStore,
        domain: str,
        limits: AllocationLimits,
        owners: LastOwnerCache,
        budget: AddressBudget,
        watch_pool: Callable[[str, str], None] = _watch_nothing,
    ) -> None:
        super().__init__(tuple(f"domain://msg-node.{domain}/{name}" for name in NAMES))
        self._pool_schemes: frozenset[str] = frozenset()
        self._limits = limits
        self._watch_pool = watch_pool
        self._table = table
        self._store = store
        self._domain = domain
        self._owners = owners
        self._budget = budget
        self._held: dict[str, Holdings] = {}  # session id -> its addresses

    def answer(self, message: Message, caller: Listener) -> Body | Awaitable[Body]:
        """Allocate addresses, or free them. Raises NodeError."""
        match message.type:
            case "create":
                return self._create(message.fields(), caller)
            case "delete":
                return self._delete(message.fields(), caller)
        raise BadMessage("Address allocation takes create and delete.")

    def cost(self, message: Message) -> int:
        """As many messages as addresses are asked for or named, besides the first."""
        if message.type == "create":
            return rules.requested_block(message.fields(), self._limits.per_request).number - 1
        if message.type == "delete":
            return len(rules.released_items(message.fields(), self._limits.per_request)) - 1
        return 0

    def revoke(self, message: Message, body: Body, caller: Listener) -> None:
        """Free the addresses in an answer that did not reach its session."""
        if message.type == "create":
            self._release(body.get("value", {}).get("allocated", []), caller)

    def _release(self, addresses: list[str], caller: Listener) -> None:
        """Free addresses that no answer has named."""
        for address in addresses:
            self.drop(address, caller)
        if addresses:
            self._store.released(caller, addresses, None)

    # --- what others tell it ----------------------------------------------------------------------

    def use_pools(self, schemes: frozenset[str]) -> None:
        """Set the schemes whose addresses come from a pool."""
        self._pool_schemes = schemes

    def enter(self, address: str, key: str, session: Listener) -> None:
        """Add an address of a session (also one claimed elsewhere)."""
        self._table.allocate(address, session)
        held = self._held.get(session.id)
        if held is None:
            held = self._held[session.id] = Holdings()
        if address not in held.keys:
            self._budget.take(session, (address,))
        held.add(address, key)

    def drop(self, address: str, session: Listener) -> None:
        """Remove an address, which is free from now on."""
        self._table.release(address, session)
        held = self._held.get(session.id)
        if held is not None:
            if address in held.keys:
                self._budget.give(session, (address,))
            held.remove(address)
            if not held:
                del self._held[session.id]

    def held_by(self, session: Listener) -> int:
        """The number of addresses a session holds."""
        return len(self._held.get(session.id, ()))

    def holdings(self, session_id: str) -> dict[str, str]:
        """The addresses a session holds, each with its allocation key."""
        held = self._held.get(session_id)
        return held.keys if held is not None else {}

    def check_room(self, session: Listener, number: int) -> None:
        """Raise TooMany if a session may not hold so many more addresses."""
        limit, setting, who = self._limits.per_session, "MAX_ALLOCATIONS_PER_SESSION", "session"
        if session.speaker.is_visitor and self._limits.per_visitor < limit:
            limit, setting, who = self._limits.per_visitor, "VISITOR_ADDRESSES", "visitor"
        if self.held_by(session) + number > limit:
            raise TooMany(f"A {who} may hold {limit} addresses ({setting}).")

    def adopt(self, session: Listener, held: dict[str, str]) -> None:
        """Take over a session with these addresses, which are already in the routing table."""
        if held:
            self._held[session.id] = Holdings(held)
            self._budget.take(session, held)

    def hand_off(self, session_id: str) -> None:
        """Forget a session that has moved to another worker; the routing table is not changed."""
        self._held.pop(session_id, None)
        self._budget.forget(session_id)

    def session_closed(self, session: Listener, reason: str) -> None:
        """A SessionEnd: free what the session held, reserved for its subject."""
        held = self._held.pop(session.id, None)
        self._budget.forget(session.id)
        left = [
            address
            for address in (held.keys if held is not None else ())
            if self._table.owners.get(address) is session
        ]
        in_slices(left, lambda address: self._free(address, session))
        identity = session.speaker.identity
        if identity is not None:
            left = [*left, session.runtime_url]  # for what is below it
            subject = identity.issuer, identity.subject
            self._owners.note(left, subject)
            self._store.left(left, subject)

    def _free(self, address: str, session: Listener) -> None:
        """Free an address of a session that has ended, unless it has another holder by now."""
        if self._table.owners.get(address) is session:
            self._table.release(address, session)

    def restore(self, rows: Iterable[Row], sessions: dict[str, Any]) -> None:
        """Restore allocations from the database at start."""
        for row in rows:
            session = sessions.get(row.session)
            if session is not None:
                self.enter(row.address, row.key, session)

    # --- requests ---------------------------------------------------------------------------------

    def _create(self, body: dict[str, Any], caller: Listener) -> Body | Awaitable[Body]:
        block = rules.requested_block(body, self._limits.per_request)
        if block.scheme not in rules.SCHEMES and block.scheme not in self._pool_schemes:
            known = ", ".join(sorted(self._pool_schemes.union(rules.SCHEMES)))
            raise BadMessage(f"This node allocates no {block.scheme!r} addresses, only: {known}.")
        if block.number == 0:
            return _allocated([])
        self.check_room(caller, block.number)
        if block.scheme in self._pool_schemes:
            self._budget.check(caller, (block.scheme,) * block.number)
            return self._lend(block, caller)
        made = [f"{block.scheme}://{self._domain}/{random_uuid()}" for _ in range(block.number)]
        self._budget.check(caller, made)
        for address in made:
            self.enter(address, block.key, caller)
        committed = self._store.allocated(
            caller, block.scheme, block.key, made, Findable(_allocated(made))
        )

        def undo(done: Future[Body]) -> None:
            if done.cancelled() or done.exception() is not None:
                for address in made:
                    self.drop(address, caller)

        committed.add_done_callback(undo)
        return committed

    async def _lend(self, block: rules.Block, caller: Listener) -> Body:
        is_visitor = caller.speaker.is_visitor
        committed = self._store.lent(caller, block.scheme, block.key, block.number, is_visitor)
        try:
            lent = await asyncio.shield(committed)
        except asyncio.CancelledError:  # it was too late; what is still lent goes back
            committed.add_done_callback(partial(self._give_back, caller))
            raise
        if is_visitor and not lent:
            raise PoolExhausted(f"The pool of {block.scheme} addresses has none for visitors now.")
        fault = "" if lent else f"The pool of {block.scheme} addresses is exhausted."
        self._watch_pool(block.scheme, fault)
        if fault:
            raise PoolExhausted(fault)
        if self._table.knows(caller):  # else the session's end has freed them
            for address in lent:
                self.enter(address, block.key, caller)
        return _allocated(lent)

    def _give_back(self, caller: Listener, lent: Future[list[str]]) -> None:
        if not lent.cancelled() and lent.exception() is None:
            self._release(lent.result(), caller)

    def _delete(self, body: dict[str, Any], caller: Listener) -> Body | Awaitable[Body]:
        items = rules.released_items(body, self._limits.per_request)
        held = self._held.get(caller.id)
        mine = held.named(items) if held is not None else {}
        if not mine:
            return {"code": 200}
        if len(mine) > AT_ONCE:
            return self._delete_in_parts(list(mine.items()), caller)
        return self._delete_some(mine, caller)

    async def _delete_in_parts(self, mine: list[tuple[str, str]], caller: Listener) -> Body:
        """Free many addresses, which one allocation key may name, in several turns of the loop."""
        for start in range(0, len(mine), AT_ONCE):
            if not self._table.knows(caller):  # its end frees them, or another worker has it
                raise Unavailable("The session moved meanwhile: not all addresses are free yet.")
            keys = self.holdings(caller.id)
            part = dict(each for each in mine[start : start + AT_ONCE] if each[0] in keys)
            if part:
                await asyncio.shield(self._delete_some(part, caller))
        return {"code": 200}

    def _delete_some(self, mine: dict[str, str], caller: Listener) -> Future[Body]:
        for address in mine:
            self.drop(address, caller)
        committed = self._store.released(caller, list(mine), {"code": 200})

        def undo(done: Future[Body]) -> None:
            if done.cancelled() or done.exception() is not None:
                for address, key in mine.items() if self._table.knows(caller) else ():
                    self.enter(address, key, caller)

        committed.add_done_callback(undo)
        return committed


def _allocated(addresses: list[str]) -> Body:
    return {"code": 200, "value": {"allocated": addresses}}


class Holdings:
    """`keys` are the addresses, each with its allocation key, "" for none."""

    __slots__ = ("_blocks", "keys")

    def __init__(self, keys: Mapping[str, str] | None = None) -> None:
        self.keys: dict[str, str] = {}
        self._blocks: dict[str, dict[str, None]] = {}  # allocation key -> its addresses
        for address, key in (keys or {}).items():
            self.add(address, key)

    def __len__(self) -> int:
        return len(self.keys)

    def add(self, address: str, key: str) -> None:
        """Add an address, under an allocation key."""
        self.remove(address)
        self.keys[address] = key
        if key:
            self._blocks.setdefault(key, {})[address] = None

    def remove(self, address: str) -> None:
        """Remove an address."""
        key = self.keys.pop(address, "")
        block = self._blocks.get(key)
        if block is not None:
            block.pop(address, None)
            if not block:
                del self._blocks[key]

    def named(self, items: Iterable[str]) -> dict[str, str]:
        """The addresses named by `items` (addresses and allocation keys), with their keys."""
        found: dict[str, str] = {}
        for item in items:
            if item in self.keys:
                found[item] = self.keys[item]
            for address in self._blocks.get(item, ()):
                found[address] = item
        return found
