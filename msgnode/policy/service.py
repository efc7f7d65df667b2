"""Policies in a worker: the snapshot in force, the decision log, re-evaluation of subscriptions.

From an operator who publishes to the next message that it decides on, at every worker:

    1  policies/authoring/pap.py       publish, publish_document
         compiles the draft and runs its tests; then stores the version, and its notice for the
         workers, in one transaction
    2  storage/control.py              ControlReader.read
         each worker reads the notice within half a second, wherever it was published
    3  policy/service.py               PolicyService.published, watch, decide_again
         has the version compiled in a thread, puts it in force by one assignment between two
         messages, and ends the subscriptions that it no longer allows
    4  policies/enforcement/prp.py     active_sets, compiled
         reads the newest version, not the one of the notice: two in a row are compiled once
    5  bus/pipeline.py                 Pipeline.carry
         asks for each message, inbound and for each recipient that is left
    6  policies/enforcement/pep.py     PolicyEnforcer.enforce
         evaluates the version in force, obeys what it obliges to, and leaves the entry of the log

Rules
- Each worker hears of a published version from the control outbox (storage/control.py), compiles it
  in a thread, and puts it in force by one assignment on the loop. No worker waits for another.
- If the database is out of reach the snapshot stays; reading is retried.
- Subscriptions are decided again on every new snapshot, and each minute if a rule uses the clock;
  one that is no longer allowed ends, in memory at once and then in the database. That takes a
  millisecond per turn of the loop: messages, sessions and versions go on in between.
- The decision buffer is emptied into the decision log every second, by the group writer.
- One thread at a time executes obligations. While it waits for the broker, others wait in the
  decision buffer, which is bounded: they take no thread from what else needs one.

Rules of the attributes that the node provides (who holds an address, what is registered of a user)
- A policy decision does not block. Registry data is fetched in a thread and cached; the sender of
  the message waits until it is there.
- If it does not come within LONGEST seconds it is given up for FRESH seconds: a condition that
  needs it cannot be evaluated, and the message is refused by default.
- Cached data is used for KEPT seconds, and fetched again in the background once it is FRESH seconds
  old.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from datetime import datetime
from functools import partial
from time import monotonic, perf_counter
from typing import Any

from django.conf import settings

from msgnode.bus.ports import Listener
from msgnode.bus.table import RoutingTable
from msgnode.bus.writing import Call, Create, Writer
from msgnode.core import addresses
from msgnode.core.decision import Direction
from msgnode.core.faults import FAULTS
from msgnode.core.identity import Identity, Speaker
from msgnode.core.messages import Message
from msgnode.core.pending import Pending
from msgnode.core.redaction import MASK, cut, without_tokens
from msgnode.storage.database_threads import in_any_thread
from policies.authoring.explain import Branch, explain
from policies.enforcement import decision_log, environment, prp
from policies.enforcement.decision_buffer import DecisionBuffer, masked
from policies.enforcement.obligations import Obligations, Send
from policies.enforcement.pep import PolicyEnforcer
from policies.enforcement.pip import InformationPoint
from policies.engine.attributes import Facts
from policies.engine.language import CannotEvaluate
from policies.models import DecisionEntry
from registry import api as registry

FRESH, KEPT, LONGEST = 2.0, 60.0, 3.0
MAX_KEPT = 10_000


class NodeAttributeSource:
    """Attributes from the routing table and the registry. `find` finds the entries of a user."""

    def __init__(self, table: RoutingTable, find: Callable[[str], list[str]] | None = None) -> None:
        self._table = table
        self._find = find or registered_hyperties
        self._kept: dict[str, tuple[float, list[str] | None]] = {}  # None: given up
        self._asked: dict[str, list[Callable[[], None]]] = {}

    def identity_of(self, address: str) -> Identity | None:
        """The verified identity at an address."""
        session = self._session(address)
        return session.speaker.identity if session is not None else None

    def runtime_of(self, address: str) -> str | None:
        """The runtime that holds an address."""
        session = self._session(address)
        return session.runtime_url if session is not None else None

    def entries_of(self, user_url: str) -> list[Any] | None:
        """The URLs of a user's registered hyperties. Raises CannotEvaluate if not known."""
        at, entries = self._kept.get(user_url, (-KEPT, None))
        age = monotonic() - at
        if age > FRESH:
            self._ask(user_url)
        if entries is None or age > KEPT:
            raise CannotEvaluate(f"the registry entries of {user_url} could not be had")
        return entries

    def prepare(self, user_url: str) -> None:
        """Raise Pending if a user's entries must be waited for."""
        at, entries = self._kept.get(user_url, (-KEPT, None))
        if monotonic() - at <= (FRESH if entries is None else KEPT):
            return
        self._ask(user_url)
        raise Pending(f"What the registry knows of {user_url}", self._asked[user_url].append)

    def peer_of(self, address: str) -> str | None:
        """The domain whose node a message to the address goes to, if it leaves this one."""
        table = self._table
        if not table.peers or table.listeners(address) or table.at_runtime(address) is not None:
            return None
        peer, learned = table.peer_of(address), table.learned.get(address)
        if peer is None or (learned is not None and learned.runtime_url != peer.runtime_url):
            return None  # learned of the peer's session: who has written from there is there
        return addresses.parse(address).home

    def way_of(self, peer: str) -> str:
        """What the domain of a peer is: `node`, or `legacy` for a network of another protocol."""
        return "legacy" if peer in self._table.legacy else "node"

    def _ask(self, user_url: str) -> None:
        if user_url in self._asked:
            return
        self._asked[user_url] = []
        loop = asyncio.get_running_loop()
        answer = loop.create_task(in_any_thread(self._find, user_url))
        limit = loop.call_later(LONGEST, self._keep, user_url, None)
        answer.add_done_callback(partial(self._answered, user_url, limit))

    def _answered(
        self, user_url: str, limit: asyncio.TimerHandle, answer: asyncio.Future[list[str]]
    ) -> None:
        limit.cancel()
        error = None if answer.cancelled() else answer.exception()
        if answer.cancelled() or error is not None:
            log.warning("The registry did not answer a policy: %s", error)
            self._keep(user_url, None)
        else:
            self._keep(user_url, answer.result())

    def _keep(self, user_url: str, entries: list[str] | None) -> None:
        """Cache an answer, or its absence if nothing better is known."""
        at, known = self._kept.get(user_url, (-KEPT, None))
        if entries is not None or known is None or monotonic() - at > KEPT:
            if user_url not in self._kept and len(self._kept) >= MAX_KEPT:
                self._kept.pop(next(iter(self._kept)))
            self._kept[user_url] = (monotonic(), entries)
        for known_now in self._asked.pop(user_url, ()):
            known_now()

    def _session(self, address: str) -> Listener | None:
        return self._table.owner_of(address) or self._table.at_runtime(address)


def registered_hyperties(user_url: str) -> list[str]:
    """The URLs of a user's registered hyperties. Blocks."""
    found = registry.find(registry.Search.by(registry.Kind.HYPERTY, "user", user_url))
    return [entry.url for entry in found]


log = logging.getLogger(__name__)

_LOOKS_AGAIN = 5.0
_DECIDES_AGAIN = 60.0
_CLOSE_SECONDS = 2.0
_TURN = 0.001
"""Seconds per turn of the loop for deciding subscriptions again."""
_OF_BODIES = ("body", "valueUser")
_SHOWN = 100  # parts of one layer of a tree


class PolicyService:
    """One instance per worker.

    `listening` lists the sessions with subscriptions, `heard` those of one session; `drop` ends a
    subscription, and `missed` tells its session of a gap, so that its runtime checks what it has.
    `send` sends a task to the Celery worker.
    """

    def __init__(
        self,
        table: RoutingTable,
        writer: Writer,
        raise_alarm: Callable[[str, str, str], None],
        listening: Callable[[], Iterable[Listener]],
        heard: Callable[[Listener], Collection[str]],
        drop: Callable[[str, Listener], None],
        missed: Callable[[str], None],
        send: Send,
    ) -> None:
        policy: dict[str, Any] = settings.POLICY
        zone = environment.zone()
        self._writer = writer
        self._raise_alarm = raise_alarm
        self._listening = listening
        self._heard = heard
        self._drop = drop
        self._missed = missed
        self._obligations = Obligations(send)
        self._manager = f"domain://msg-node.{settings.DOMAIN}/sm"
        self._wanted = asyncio.Event()
        self._decided_at = monotonic()
        self._executing: asyncio.Future[None] | None = None
        self.enforcer = PolicyEnforcer(
            InformationPoint(NodeAttributeSource(table)),
            DecisionBuffer(policy["LOG_SAMPLE"], masks=policy["LOG_MASKS_BODIES"]),
            environment.defaults(),
            lambda: datetime.now(zone),
            environment.node_facts(),
        )

    def load(self) -> None:
        """Load the published version. Blocks: for use at the start."""
        snapshot = prp.active_sets()
        if snapshot is not None:
            self.enforcer.snapshot = snapshot

    def shown(self, body: Any) -> Any:
        """A body as shown in the decision log."""
        return masked(body) if settings.POLICY["LOG_MASKS_BODIES"] else without_tokens(body)

    def explain(self, message: Message, speaker: Speaker) -> list[dict[str, Any]]:
        """The decision of the policies in force on an inbound message, as a tree for display."""
        to = message.recipients[0]
        facts = Facts(message, speaker, Direction.IN, to, self.enforcer.around)
        masks = bool(settings.POLICY["LOG_MASKS_BODIES"])
        return [_told(each, masks) for each in explain(self.enforcer.snapshot.sets, facts)]

    def published(self, payload: dict[str, Any]) -> None:
        """Handle the control message for a new version."""
        self._wanted.set()

    async def watch(self) -> None:
        """Put new versions in force; also polls, in case a control message is lost."""
        while True:
            try:
                async with asyncio.timeout(_LOOKS_AGAIN):
                    await self._wanted.wait()
            except TimeoutError:
                pass
            self._wanted.clear()
            try:
                version = self.enforcer.snapshot.version
                snapshot = await in_any_thread(prp.active_sets, version)
            except Exception as error:
                log.warning("Policies could not be read, the last ones stay: %s", error)
                await asyncio.sleep(0.5)
                self._wanted.set()
                continue
            if snapshot is not None:
                self.enforcer.snapshot = snapshot
                log.info("Policies of version %d are in force.", snapshot.version)
                await self.decide_again()

    async def write(self) -> None:
        """Write the decision log every second; decide subscriptions again each minute."""
        while True:
            await asyncio.sleep(1.0)
            with FAULTS.kept_to("decision log"):
                self.write_down()
            if (
                self.enforcer.snapshot.uses_clock
                and monotonic() - self._decided_at > _DECIDES_AGAIN
            ):
                await self.decide_again()

    def write_down(self) -> None:
        """Pass the content of the decision buffer to the writer."""
        entries, hits = self.enforcer.decision_buffer.take()
        if entries:
            self._writer.submit(Create(DecisionEntry, decision_log.rows(entries)))
            if any(entry.effect == "indeterminate" for entry in entries):
                text = "A policy could not be evaluated; see the decision log."
                self._raise_alarm("policy-indeterminate", "", text)
        if hits:
            self._writer.submit(Call(lambda: decision_log.add_hits(hits)))
        self._execute()

    async def close(self) -> None:
        """Pass on what is left, after the last session; a broker that is away keeps nobody."""
        self.write_down()
        with suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_SECONDS):
                if self._executing is not None:
                    await self._executing
                self._execute(is_last=True)
                if self._executing is not None:
                    await self._executing

    def _execute(self, is_last: bool = False) -> None:
        """Have a thread execute the obligations, unless one does; `is_last`: no mail waits."""
        if self._executing is not None and not self._executing.done():
            return
        pending = self.enforcer.decision_buffer.take_obligations()
        if pending or is_last or self._obligations.is_due:
            self._executing = asyncio.get_running_loop().run_in_executor(
                None, self._obligations.execute, pending, is_last
            )

    async def decide_again(self) -> None:
        """End the subscriptions that are no longer allowed."""
        self._decided_at = monotonic()
        if self.enforcer.is_idle:
            return
        over_at = perf_counter() + _TURN
        for session in self._listening():
            ended = 0
            for is_ended in self._decided_again(session):
                ended += is_ended
                if perf_counter() > over_at:
                    await asyncio.sleep(0)
                    over_at = perf_counter() + _TURN
            if ended:
                self._missed(session.id)

    def decide_again_for(self, session: Listener) -> None:
        """Decide again on the subscriptions of a session whose identity has changed."""
        if self.enforcer.is_idle:
            return
        if sum(self._decided_again(session)):
            self._missed(session.id)

    def _decided_again(self, session: Listener) -> Iterator[bool]:
        """For each subscription of a session, whether it was ended; others may end meanwhile."""
        allows = self.enforcer.subscriptions_of(session.runtime_url, self._manager)
        for address in tuple(self._heard(session)):
            is_ended = False
            with FAULTS.kept_to("subscription"):
                if address in self._heard(session) and not allows(address, session.speaker):
                    is_ended = True
                    log.info("A subscription ended by policy.", extra={"address": address})
                    self._drop(address, session)
            yield is_ended


def _told(branch: Branch, masks: bool) -> dict[str, Any]:
    """A part of a tree, masked for display as in the decision log."""
    is_of_body = masks and any(word in branch.label for word in _OF_BODIES)
    return {
        "label": cut(branch.label),
        "result": branch.result,
        "note": MASK if is_of_body and branch.note else cut(branch.note),
        "children": [_told(each, masks) for each in branch.children[:_SHOWN]],
    }
