"""Federation in a worker: which peers there are, which it serves, and what they are told.

Rules
- The database is the truth; every worker reads the rows when they change, and routes messages for
  those domains to the session of each approved peer.
- One worker serves a peer: the one that has its claim, while that worker's lease runs. When it dies
  or stops, another takes the claim. That worker also looks for stubs.
- A stub runs only when an operator has approved exactly this source, by its digest
  (FEDERATION=open: when it was found). If its domain offers another one, the approved one stays,
  and an alarm says so.
- Where stubs must be signed, an approved one that is not does not run (store.py).
- When another one is approved it is first tried. If it can be loaded it replaces the running one,
  and queued messages stay; else the running one stays, is the approved one again, and an alarm says
  why.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

from msgnode.bus.ports import Alarms
from msgnode.bus.table import RoutingTable
from msgnode.bus.writing import Call, Writer, retrieve_error
from msgnode.core import addresses
from msgnode.core.faults import FAULTS
from msgnode.net.http import HttpClient
from msgnode.sandbox import process
from msgnode.storage.alarms import STUB_CHANGED
from msgnode.storage.control import Handler

from . import discovery, kinds, store
from .discovery import KnownPeers, RowLooks
from .held_subscriptions import Observed
from .link_protocol import ELSEWHERE, NOT_ALLOWED, LinkFault
from .link_socket import OwnNode
from .link_wire import Wire
from .linked_peer import LinkedPeer, LinkTo
from .monitoring import LinkFigures, PeerAlarms, WaitingMessages
from .node_proofs import HEADER, NodeProofs, secret
from .observers import Observers
from .peer import Link, LinkLimits, PeerLink
from .peer_session import PeerSessions
from .states import IDLE, LIVE, WAITING
from .store import PeerRow
from .stored_messages import PeerStore, StoredMessages
from .stub import PeerStub, fault_of

log = logging.getLogger(__name__)
LOOKS_EVERY = 2.0
KEYS_SECONDS = 5.0
"""Least seconds between two looks at the keys of a node that has come with another one."""
DIAL_SECONDS = 1.0
"""Least seconds between two times that a node is dialled because one has come in its name."""
STOP_SECONDS = 4.0
MISSING_ALARM = "sandbox-missing"

Result = TypeVar("Result")
MakeLegacy = Callable[[PeerRow, PeerSessions, Observed, PeerStore], Link]


@dataclass(frozen=True, slots=True)
class FederationSettings:
    """The settings of federation.

    Attributes:
        domain: the node's domain.
        max_stubs: most peers that this worker serves.
        limits: of each peer.
        shown: redacts a message's body for display.
        key: the node's secret key.
        node: this node, as those of this software see it; None if it makes no links to them.
    """

    domain: str
    max_stubs: int
    limits: LinkLimits
    shown: Callable[[Any], Any]
    key: str = field(default="", repr=False)
    node: OwnNode | None = None


@dataclass(frozen=True, slots=True)
class ServingWorker:
    """The worker that serves peers.

    Attributes:
        epoch: its epoch.
        table: its routing table.
        writer: its writer.
        holds_lease: whether its lease runs; without it no peer is served.
        alarms: the node's alarms.
    """

    epoch: str
    table: RoutingTable
    writer: Writer
    holds_lease: Callable[[], bool]
    alarms: Alarms


class Federation:
    """One instance per worker.

    Args:
        settings: the settings of federation.
        worker: this worker.
        peers: the known peers.
        opener: opens the peers' sessions.
        http: the HTTP client that confirms connections of peers.
        observers: the observers of peers' objects.
        stored: the stored messages for peers.
        legacy: makes the link to a legacy network.
    """

    def __init__(
        self,
        settings: FederationSettings,
        worker: ServingWorker,
        peers: KnownPeers,
        opener: PeerSessions,
        http: HttpClient,
        observers: Observers,
        stored: StoredMessages,
        legacy: MakeLegacy,
    ) -> None:
        self.observers = observers
        self.proofs = NodeProofs(settings.domain, http)
        self.links: dict[int, Link] = {}
        self._peers = peers
        self._settings = settings
        self._limits = settings.limits
        self._epoch = worker.epoch
        self._table = worker.table
        self._opener = opener
        self._http = http
        self._writer = worker.writer
        self._holds_lease = worker.holds_lease
        self._raise_alarm = worker.alarms.raise_alarm
        self._clear_alarm = worker.alarms.clear_alarm
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._switches: dict[int, asyncio.Task[None]] = {}
        self._served: dict[int, PeerRow] = {}
        self._told: dict[int, tuple[str, str]] = {}
        self._alarms = PeerAlarms(self._raise_alarm, self._clear_alarm)
        self._figures = LinkFigures(self.links, self._blocking)
        self._waiting = WaitingMessages(self.links, settings.shown, self._blocking)
        self._stored = stored
        self._legacy = legacy
        self._looks_at_keys = RowLooks(self._look_at_keys)
        self._keys_looked_at: dict[int, float] = {}
        self._asked_to_dial_at: dict[int, float] = {}
        self._is_stale = asyncio.Event()
        self._is_stopped = False

    # --- what it is asked -------------------------------------------------------------------------

    @property
    def state(self) -> str:
        """The state in a word, for the health page."""
        if not process.find_deno():
            return "deno is missing"
        states = [link.state for link in self.links.values()]
        idle = f", {states.count(IDLE)} idle" if IDLE in states else ""
        return f"{states.count(LIVE)} of {len(states)} live{idle}"

    # --- its life ---------------------------------------------------------------------------------

    async def run(self) -> None:
        """Serve peers while this worker has their claims. Runs until cancelled."""
        if not process.find_deno():
            self._raise_alarm(MISSING_ALARM, self._settings.domain, process.NO_DENO)
        else:
            self._clear_alarm(MISSING_ALARM, self._settings.domain)
        self._is_stale.set()
        while not self._is_stopped:
            try:
                if self._is_stale.is_set():
                    self._is_stale.clear()
                    self._use(await self._blocking(store.read))
                    await self._blocking(self._tell_of_rows)
                await self._serve()
                await self.observers.sweep()
                await self._waiting.follow()
                await self._figures.follow()
                self._stored.follow()
            except Exception as error:
                log.warning("The peers could not be looked at: %s", error)
                await asyncio.sleep(LOOKS_EVERY)
                self._is_stale.set()
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOKS_EVERY):
                    await self._is_stale.wait()

    def link_to(self, domain: str) -> Wire:
        """The link to the node of a domain, for a socket that says it is of it.

        Raises:
            LinkFault: there is none, or it is another worker's.
        """
        row = self._peers.rows.get(domain)
        if row is None or row.is_pending:
            raise LinkFault(NOT_ALLOWED, f"{domain} is no peer of {self._settings.domain}")
        if not row.is_served:
            raise LinkFault(NOT_ALLOWED, store.refusal_of(row).description)
        link = self.links.get(row.pk)
        if not isinstance(link, LinkedPeer):
            self._have_dialled(row)
            raise LinkFault(ELSEWHERE, "dial again")
        return link.wire

    def handlers(self) -> dict[str, Handler]:
        """The handlers of control messages."""
        return {
            store.CHANGED: self._changed,
            store.RESTART: self._restart,
            store.DIAL: self._dial,
            **self.observers.handlers(),
            **self._waiting.handlers(),
        }

    def _changed(self, payload: dict[str, Any]) -> None:
        """Handle a change of the rows."""
        self._is_stale.set()

    def _restart(self, payload: dict[str, Any]) -> None:
        """Restart the stub of a peer at once, for an operator."""
        for link in self.links.values():
            if link.peer.domain == payload["domain"]:
                link.restart()

    def _have_dialled(self, row: PeerRow) -> None:
        """Have the worker that serves a peer dial its node, which does not wait until it comes."""
        now = time.monotonic()
        if now - self._asked_to_dial_at.get(row.pk, -DIAL_SECONDS) >= DIAL_SECONDS:
            self._asked_to_dial_at[row.pk] = now
            asked = self._writer.submit(Call(partial(store.dial, row.domain)))
            asked.add_done_callback(retrieve_error)

    def _dial(self, payload: dict[str, Any]) -> None:
        """Dial the node of a peer at once, unless there is a link."""
        for link in self.links.values():
            if isinstance(link, LinkedPeer) and link.peer.domain == payload["domain"]:
                link.wire.hurry()

    async def stop(self) -> None:
        """Leave the peers to other workers."""
        self._is_stopped = True
        for switch in self._switches.values():
            switch.cancel()
        await self._peers.stop()
        await self._looks_at_keys.stop()
        links, self.links = self.links, {}
        if links:
            stops = [asyncio.create_task(link.stop()) for link in links.values()]
            await asyncio.wait(stops, timeout=STOP_SECONDS)
            for pk in links:
                await self._waiting.forget(pk)
                await self._blocking(partial(store.release_claim, self._epoch, pk))
        await self._http.close()

    def abort(self) -> None:
        """Stop serving at once, because the worker has lost its lease."""
        self._is_stopped = True
        for switch in self._switches.values():
            switch.cancel()
        for link in self.links.values():
            link.abort()

    # --- the rows ---------------------------------------------------------------------------------

    def _use(self, rows: list[PeerRow]) -> None:
        """Set the peers that are routed to."""
        self._peers.use(rows)
        self._table.peers = {row.domain: row.stub_url for row in rows if row.is_served}
        visited = (row.domain for row in rows if row.is_served and row.has_visitors)
        self._table.visited = frozenset(visited)
        self._table.legacy = frozenset(row.domain for row in rows if row.legacy is not None)
        for domain, url in self._table.peers.items():
            self._forget_learned(domain, url)
        self.observers.peers = {row.domain: row.pk for row in rows}
        self.proofs.use(rows)

    def _forget_learned(self, domain: str, url: str) -> None:
        """Reassign to the peer what other sessions have spoken as."""
        for address, session in list(self._table.learned.items()):
            is_nodes = session.runtime_url == url or session.speaker.peer == domain
            if session.is_here and not is_nodes and addresses.parse(address).home == domain:
                self._table.forget(address, session)

    async def _serve(self) -> None:
        """Start serving the peers of this worker, and stop serving the others."""
        rows = list(self._peers.rows.values())
        has_deno = bool(process.find_deno())
        wanted = [
            row
            for row in rows
            if (row.is_served or row.needs_look)
            and (has_deno or row.legacy is not None or row.node_keys)
        ]
        wanted = wanted if self._holds_lease() else []
        take = partial(store.take_claims, self._epoch, wanted, self._settings.max_stubs)
        mine: set[int] = await self._blocking(take) if wanted else set()
        by_pk = {row.pk: row for row in wanted if row.pk in mine and row.is_served}
        changed = [pk for pk, row in self._served.items() if not row.is_served_as(by_pk.get(pk))]
        over = [pk for pk in changed if not self._served[pk].has_place_of(by_pk.get(pk))]
        await asyncio.gather(*map(self._end, over))  # one may take seconds to end
        for pk in changed:
            if pk not in over and pk not in self._switches:
                self._switches[pk] = asyncio.create_task(self._switch(by_pk[pk]))
        for pk, row in by_pk.items():
            if pk not in self.links and not self._is_stopped:
                await self._begin(row)
        for pk, row in by_pk.items():
            if isinstance(link := self.links.get(pk), LinkedPeer):
                link.trust(json.loads(row.node_keys or "{}"))
        for row in wanted:
            if row.needs_look and row.pk in mine:
                self._peers.look_for(row)
        others = [row for row in wanted if row.is_served and row.pk not in mine]
        await self._tell_of(others, len(by_pk) >= self._settings.max_stubs)
        await self._note_states()

    def _tell_of_rows(self) -> None:
        """Have the alarms stand that the rows call for, and no others. Blocks."""
        store.clear_settled()
        rows = self._peers.rows.values()
        store.tell_of_unsigned(row.domain for row in rows if row.is_approved and row.is_unsigned)

    async def _tell_of(self, others: list[PeerRow], is_full: bool) -> None:
        """Raise alarms about peers that no worker serves, because each is at its limit."""
        look = partial(store.unserved, others)
        left: set[int] = await self._blocking(look) if others and is_full else set()
        text = f"No worker has room for it: each serves {self._settings.max_stubs} peers at most."
        for row in others:
            if row.pk not in left:
                self._alarms.served_elsewhere(row.domain)
            elif self._alarms.has_no_room(row.domain, text):
                await self._blocking(partial(store.note_state, row.pk, WAITING, text))

    async def _stub(self, row: PeerRow) -> PeerStub | None:
        """The approved stub, if it is known."""
        found = await self._blocking(partial(store.source_of, row.pk, row.approved_digest))
        if found is None and row.node_keys and self._settings.node is not None:
            found = "", {}  # there is a link, and no other way
        if found is None:
            return None
        at_peer = f"runtime://{self._settings.domain}/mn-{row.runtime_id}"
        named = (row.domain, row.stub_url, at_peer, row.approved_digest)
        hosts = discovery.hosts_of(row.domain, row.url, row.hosts)
        return PeerStub(*named, *found, hosts, kinds.kind_of(row.kind), row.vouches)

    async def _begin(self, row: PeerRow) -> None:
        if row.legacy is not None:
            kept = await self._stored.open(row.pk, row.domain)
            opener = self._opener.at_rate(row.messages_per_second)
            await self._start(row, self._legacy(row, opener, self.observers, kept), kept)
        elif (stub := await self._stub(row)) is not None:
            kept = await self._stored.open(row.pk, row.domain)
            await self._start(row, self._link(row, stub, kept), kept)

    def _link(self, row: PeerRow, stub: PeerStub, kept: PeerStore) -> PeerLink:
        """The link to a node."""
        own = self._settings.domain
        headers = [(HEADER, f"{own} {secret(self._settings.key, own, row.domain)}")]
        rate = row.messages_per_second
        sockets = replace(
            self._limits.sockets, hosts=stub.hosts, headers=headers, messages_per_second=rate
        )
        limits = replace(self._limits, sockets=sockets)
        arguments = (stub, own, limits, self._opener.at_rate(rate), self.observers, kept)
        if self._settings.node is None:
            return PeerLink(*arguments)
        look = partial(self._key_is_unknown, row)
        return LinkedPeer(LinkTo(self._settings.node, row.url, look), *arguments)

    def _key_is_unknown(self, row: PeerRow) -> None:
        """Have the keys of a node be looked at again, once in a while."""
        now = time.monotonic()
        if now - self._keys_looked_at.get(row.pk, -KEYS_SECONDS) >= KEYS_SECONDS:
            self._keys_looked_at[row.pk] = now
            self._looks_at_keys.begin(row)

    async def _look_at_keys(self, row: PeerRow) -> None:
        if await self._peers.look_for_keys(row):
            self._is_stale.set()

    async def _start(self, row: PeerRow, link: Link, kept: PeerStore) -> None:
        kept.begin(link.exchange)
        await self.observers.serve(row.domain, link.subscriptions)
        self.links[row.pk], self._served[row.pk] = link, row
        self._tasks[row.pk] = asyncio.create_task(self._kept(link))

    async def _kept(self, link: Link) -> None:
        while True:
            try:
                return await link.run()
            except Exception as error:
                FAULTS.note("peer", error)
                await asyncio.sleep(LOOKS_EVERY)

    async def _switch(self, row: PeerRow) -> None:
        """Replace the running stub by the approved one, if that can be loaded."""
        try:
            limits = self._limits
            stub, link, before = await self._stub(row), self.links[row.pk], self._served[row.pk]
            fault = (
                await fault_of(stub, limits.sandbox, limits.starts) if stub else "it is not known"
            )
            if self.links.get(row.pk) is not link or not isinstance(link, PeerLink):
                return  # it is no longer served
            if stub is not None and not fault:
                self._served[row.pk] = row
                await link.replace(stub)
                return
            await self._blocking(partial(store.take_back, row, before.approved_digest))
            text = f"The stub {row.approved_digest[:12]} of {row.domain} was approved, and the one "
            self._raise_alarm(STUB_CHANGED, row.domain, f"{text}before goes on: {fault}")
        except Exception as error:
            FAULTS.note("peer", error)
        finally:
            self._switches.pop(row.pk, None)

    async def _end(self, pk: int) -> None:
        link, task = self.links.pop(pk, None), self._tasks.pop(pk, None)
        self._served.pop(pk, None)
        row = next((row for row in self._peers.rows.values() if row.pk == pk), None)
        if link is not None and task is not None:
            self.observers.leave(link.peer.domain)
            self._alarms.forget(link.peer.domain)
            if row is None:  # an operator has removed the peer, and with it what is stored
                link.exchange.discard_for_good()
            await link.stop()
        self._told.pop(pk, None)
        await self._waiting.forget(pk)
        why = store.UNSIGNED if row is not None and row.is_unsigned else ""
        await self._blocking(partial(store.note_state, pk, "stopped" if row else "", why))

    async def _note_states(self) -> None:
        for pk, link in list(self.links.items()):
            told = (link.state, link.last_error)
            if self._told.get(pk) != told:
                self._told[pk] = told
                await self._blocking(partial(store.note_state, pk, *told))
            self._alarms.look(link)

    async def _blocking(self, call: Callable[[], Result]) -> Result:
        """Run a database call, in the writer's thread."""
        found: list[Result] = []
        await self._writer.submit(Call(lambda: found.append(call())))
        return found[-1]
