"""The known peers, those being looked for, and how a stub is found in its domain's catalogue.

Rules
- The stub of an unknown domain is looked for when a message is sent there, unless only listed
  domains may be peers.
- A domain with a stub gets a row, which waits for an operator's approval (not with
  FEDERATION=open). If a domain later offers another stub than the approved one, an alarm says so.
- A client can name any number of domains: so only a few are looked for at once, few wait, and
  domains without a node are remembered in bounded memory and not looked for again for a while.
  Peers with rows are looked for separately, so that neither kind delays the other.

These are tried in order until one has something: the descriptor at the domain itself, its two files
as in a static catalogue, both again at `catalogue.<domain>`. Redirects are not followed, and only
addresses that the node may connect to are used (net/http).
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable, Iterable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Generic, TypeVar
from urllib.parse import urlsplit

from msgnode.bus.writing import Writer, result_of
from msgnode.core import addresses
from msgnode.core.errors import (
    BadGateway,
    Forbidden,
    GatewayTimeout,
    NodeError,
    NotFound,
    Unavailable,
)
from msgnode.core.faults import FAULTS
from msgnode.net.http import HttpClient, NoAnswer, NotAllowed
from msgnode.storage.alarms import PEER_PENDING, STUB_CHANGED

from . import crossing, descriptor, kinds, link_keys, store
from .descriptor import BadDescriptor, FoundStub
from .link_keys import BadNode, FoundNode
from .sockets import socket_fault
from .store import PeerRow
from .stub_signature import BadSignature, signer_of

_PATH = "/.well-known/protocolstub/default"
FIND_SECONDS = 20.0
"""Most seconds for one domain, however many answers it gives: others wait for their turn."""
_OK, _MISSING = 200, (404, 405, 410)
AT_ONCE = 2
ROWS_AT_ONCE = 8
MAX_WAITING = 100
MAX_REMEMBERED = 10_000
NEGATIVE_SECONDS = 300.0

Key = TypeVar("Key", bound=Hashable)
Look = Callable[[str], Awaitable[NodeError | None]]
"""Looks for the node of a domain; returns the error if there is none."""


class KnownPeers:
    """One instance per worker. Implements the bus's ForeignDomains.

    Args:
        own: the node's domain.
        mode: listed, approve or open.
        http: the HTTP client for catalogues.
        writer: the worker's writer.
        raise_alarm: raises an alarm of the node.
        must_be_signed: whether every stub must be signed.

    Attributes:
        rows: the rows of peers, by domain.
    """

    def __init__(
        self,
        own: str,
        mode: str,
        http: HttpClient,
        writer: Writer,
        raise_alarm: Callable[[str, str, str], None],
        must_be_signed: bool = False,
    ) -> None:
        self.rows: dict[str, PeerRow] = {}
        self._own = own
        self._mode = mode
        self._http = http
        self._writer = writer
        self._raise_alarm = raise_alarm
        self._must_be_signed = must_be_signed
        self._lookups = Lookups(partial(self._look, row=None))
        self._looks: RowLooks[PeerRow] = RowLooks(self._look_at)

    def use(self, rows: list[PeerRow]) -> None:
        """Set the peers."""
        self.rows = {row.domain: row for row in rows}
        for row in rows:
            self._lookups.forget(row.domain)

    def refusal(self, to: str) -> NodeError | None:
        """Why a message does not reach a foreign address; looks for a domain that is unknown."""
        address = addresses.parse(to)
        if not (domain := address.home) or address.scheme == "global" or domain == self._own:
            return None
        row = self.rows.get(domain)
        if row is None:
            if self._mode == "listed":
                return Forbidden(f"This node does not exchange messages with {domain}.")
            return self._lookups.refusal(domain)
        return store.refusal_of(row)

    def look_for(self, row: PeerRow) -> None:
        """Look for the stub of a peer with a row, unless that is in progress."""
        self._looks.begin(row)

    async def look_for_keys(self, row: PeerRow) -> bool:
        """Look for the keys of the node of a peer; return whether there are any."""
        node = await self._node(row.domain, row.place)
        if node is None:
            return False
        note = partial(store.note_node, row.domain, node, row.place, self._mode == "open")
        self._tell_of_keys(row.domain, await result_of(self._writer, note))
        return True

    async def stop(self) -> None:
        """Stop looking."""
        await self._lookups.stop()
        await self._looks.stop()

    # --- looking for stubs ------------------------------------------------------------------------

    async def _look_at(self, row: PeerRow) -> None:
        """Look for the stub of a peer with a row."""
        try:
            error = await self._look(row.domain, row)
        except NodeError as fault:  # the result could not be stored
            error = fault
        if error is not None and self._is_there(row.domain, row):
            was_reached = not isinstance(error, GatewayTimeout)
            note = (row.domain, error.description, row.place, was_reached)
            await result_of(self._writer, partial(store.note_not_found, *note))

    async def _look(self, domain: str, row: PeerRow | None) -> NodeError | None:
        """Look for a stub, and store it; return why there is none."""
        place = row.place if row is not None else store.NO_PLACE
        is_open = self._mode == "open"
        try:
            found = await find(self._http, domain, *place, self._must_be_signed)
        except NodeError as error:
            if row is not None and (row.kind == kinds.OURS or row.node_keys):
                await self.look_for_keys(row)
            return error
        node = await self._node(domain, place) if found.kind == kinds.OURS else None
        if not self._is_there(domain, row):
            return None
        what = await result_of(
            self._writer, partial(store.note_found, domain, found, place, is_open, node)
        )
        if what == "new":
            text = f"The node of {domain} waits for approval: its stub is {found.digest[:12]}."
            self._raise_alarm(PEER_PENDING, domain, text)
        elif what == "changed":
            text = f"{domain} offers another stub, {found.digest[:12]}; the approved one goes on."
            self._raise_alarm(STUB_CHANGED, domain, text)
        self._tell_of_keys(domain, what)
        return None

    def _tell_of_keys(self, domain: str, what: str) -> None:
        if what == "keys":
            text = f"The node of {domain} has keys for a link that nobody here has approved."
            self._raise_alarm(STUB_CHANGED, domain, text)

    async def _node(self, domain: str, place: store.Place) -> FoundNode | None:
        """The keys of the node of a domain, None if it has none that can be used."""
        try:
            return await find_node(self._http, domain, place[0])
        except BadNode as error:
            text = f"The keys of the node of {domain} cannot be used: {error}."
            self._raise_alarm(STUB_CHANGED, domain, text)
            return None

    def _is_there(self, domain: str, row: PeerRow | None) -> bool:
        """Whether the row of a domain still has the place that was searched, or is still absent."""
        now = self.rows.get(domain)
        if row is None or now is None:
            return row is now
        return row.place == now.place


class Lookups:
    """Looks for unknown domains in the background; one instance per worker.

    `look` finds a domain's node and stores it.
    """

    def __init__(self, look: Look, clock: Callable[[], float] = time.monotonic) -> None:
        self.asked = 0
        self._look = look
        self._clock = clock
        self._negative: OrderedDict[str, tuple[float, NodeError]] = OrderedDict()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._places = asyncio.Semaphore(AT_ONCE)

    def refusal(self, domain: str) -> NodeError:
        """The refusal of a message to an unknown domain; also looks for the domain."""
        known = self._negative.get(domain)
        if known is not None and self._clock() < known[0]:
            return known[1]
        if fault := crossing.domain_fault(domain):
            return NotFound(f"There is no node of the domain {domain[:253]}: it {fault}.")
        if domain not in self._tasks:
            if len(self._tasks) >= MAX_WAITING:
                return Unavailable("Too many domains are being looked for: try again later.")
            self._tasks[domain] = asyncio.create_task(self._find(domain))
        return Unavailable(f"The node of {domain} is being looked for: try again.")

    def forget(self, domain: str) -> None:
        """Forget the cached result for a domain, because something about it has changed."""
        self._negative.pop(domain, None)

    async def stop(self) -> None:
        """Look for nothing more."""
        await _stopped(self._tasks.values())

    async def _find(self, domain: str) -> None:
        try:
            async with self._places:
                self.asked += 1
                error = await self._look(domain)
        except Exception as fault:
            FAULTS.note("discovery", fault)
            error = GatewayTimeout(f"The node failed when it looked for {domain}.")
        finally:
            self._tasks.pop(domain, None)
        if error is not None:
            self._negative[domain] = (self._clock() + NEGATIVE_SECONDS, error)
            self._negative.move_to_end(domain)
            if len(self._negative) > MAX_REMEMBERED:
                self._negative.popitem(last=False)


class RowLooks(Generic[Key]):
    """Looks for peers with rows. One instance per worker.

    A failure or delay of one does not affect the others.

    Args:
        look: looks for one peer, and stores the result.
    """

    def __init__(self, look: Callable[[Key], Awaitable[None]]) -> None:
        self._look = look
        self._tasks: dict[Key, asyncio.Task[None]] = {}
        self._places = asyncio.Semaphore(ROWS_AT_ONCE)

    def begin(self, row: Key) -> None:
        """Look for a peer, unless that is in progress."""
        if row not in self._tasks:
            self._tasks[row] = asyncio.create_task(self._find(row))

    async def stop(self) -> None:
        """Look for nothing more."""
        await _stopped(self._tasks.values())

    async def _find(self, row: Key) -> None:
        try:
            async with self._places:
                await self._look(row)
        except Exception as fault:
            FAULTS.note("discovery", fault)
        finally:
            self._tasks.pop(row, None)


async def _stopped(tasks: Iterable[asyncio.Task[None]]) -> None:
    ending = list(tasks)
    for task in ending:
        task.cancel()
    await asyncio.gather(*ending, return_exceptions=True)


# --- a stub in its domain's catalogue -------------------------------------------------------------


async def find(
    http: HttpClient,
    domain: str,
    url: str = "",
    hosts: frozenset[str] = frozenset(),
    keys: str = "",
    must_be_signed: bool = False,
) -> FoundStub:
    """Find the stub of a domain.

    Args:
        http: the HTTP client.
        domain: the peer's domain.
        url: the URL of its node, if that is not https://<domain>.
        hosts: further hosts that its stub may connect to.
        keys: one of these must have signed it, if there are any.
        must_be_signed: whether a signature is required.

    Raises:
        NotFound: it has none.
        GatewayTimeout: it does not answer.
        BadGateway: its stub cannot be used.
    """
    failure, until = "", asyncio.get_running_loop().time() + FIND_SECONDS
    for base in bases_of(domain, url):
        try:
            async with asyncio.timeout_at(until):
                found = await _at(http, base)
        except (BadDescriptor, NotAllowed) as error:
            raise _unusable(domain, str(error)) from None
        except (NoAnswer, TimeoutError) as error:
            failure = failure or str(error) or f"It took more than {FIND_SECONDS:g} s in all."
            continue
        if found is not None:
            allowed = hosts_of(domain, url, hosts)
            if fault := socket_fault(found.url, allowed, http.networks):
                raise _unusable(domain, f"It would connect to {found.url[:200]!r}: {fault}.")
            try:
                return _signed(found, keys, must_be_signed)
            except BadSignature as error:
                raise _unusable(domain, str(error)) from None
    if failure:
        raise GatewayTimeout(f"The domain {domain}: {failure}")
    raise NotFound(f"There is no node for the domain {domain}.")


def _unusable(domain: str, why: str) -> BadGateway:
    return BadGateway(f"The stub of {domain} cannot be used: {why}")


def _signed(found: FoundStub, keys: str, must_be_signed: bool) -> FoundStub:
    """The stub with the id of the key that has signed it, if required. Raises BadSignature."""
    if not keys:
        if must_be_signed:
            raise BadSignature("Stubs must be signed here, and no key was given for this peer.")
        return found
    return replace(found, signed_by=signer_of(found.content, found.signature, keys))


async def find_node(http: HttpClient, domain: str, url: str) -> FoundNode | None:
    """The keys that a domain publishes of its node. Raises BadNode if they cannot be used."""
    for base in bases_of(domain, url):
        with suppress(NoAnswer, NotAllowed):
            answer = await http.get(f"{base}/{link_keys.PATH}")
            if answer.status == _OK:
                return link_keys.read_document(answer.body, domain, time.time())
    return None


def bases_of(domain: str, url: str) -> list[str]:
    """The possible base URLs of a domain's catalogue, in order."""
    return [url.rstrip("/")] if url else [f"https://{domain}", f"https://catalogue.{domain}"]


def hosts_of(domain: str, url: str, hosts: frozenset[str]) -> frozenset[str]:
    """The hosts that the stub of a domain may connect to."""
    named = {domain.partition(":")[0], (urlsplit(url).hostname or "") if url else ""}
    return frozenset(filter(None, named | hosts))


async def _at(http: HttpClient, base: str) -> FoundStub | None:
    """The stub in one catalogue, None if it has none."""
    answer = await http.get(f"{base}{_PATH}", {"Accept": "application/json"})
    if answer.status == _OK:
        return descriptor.read(answer.body)
    if answer.status not in _MISSING:
        raise NoAnswer(f"{base} answered {answer.status}.")
    answer = await http.get(f"{base}{_PATH}.ps.json")
    if answer.status in _MISSING:
        return None
    script = await http.get(f"{base}{_PATH}.ps.js")
    if answer.status != _OK or script.status != _OK:
        raise NoAnswer(f"{base} answered {answer.status} and {script.status}.")
    return descriptor.read(answer.body, script.body)
