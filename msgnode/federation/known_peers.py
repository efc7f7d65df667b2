"""The peers that there are by the database, and those that are looked for: not yet who serves them.

Rules
- A domain that nobody knows is looked for when something is sent there, unless only listed ones
  may be peers.
- What is found is a row, and waits for a person (FEDERATION=open: it does not). If a domain offers
  another stub than the approved one, an alarm says so.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from msgnode.bus.writing import Writer, result_of
from msgnode.core import addresses
from msgnode.core.errors import BadGateway, Forbidden, GatewayTimeout, NodeError, NotFound
from msgnode.devices.safe_http import SafeHttp
from msgnode.storage.alarms import PEER_PENDING, STUB_CHANGED

from . import discovery, refusals, store
from .lookups import Lookups, RowLooks
from .store import PeerRow


class KnownPeers:
    """One instance per worker. Implements the bus's ForeignDomains.

    Args:
        own: the node's domain.
        mode: listed, approve or open.
        http: how catalogues are asked.
        writer: of the worker.
        raise_alarm: of the node.
        must_be_signed: whether each stub must be.

    Attributes:
        rows: those that there are, by domain.
    """

    def __init__(
        self,
        own: str,
        mode: str,
        http: SafeHttp,
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
        """These are the peers from now on, and no others."""
        self.rows = {row.domain: row for row in rows}
        for row in rows:
            self._lookups.forget(row.domain)

    def refusal(self, to: str) -> NodeError | None:
        """Why a message does not reach a foreign address; a domain nobody knows is looked for."""
        address = addresses.parse(to)
        if not (domain := address.home) or address.scheme == "global" or domain == self._own:
            return None
        row = self.rows.get(domain)
        if row is None:
            if self._mode == "listed":
                return Forbidden(f"This node does not exchange messages with {domain}.")
            return self._lookups.refusal(domain)
        return refusals.refusal_of(row)

    def look_for(self, row: PeerRow) -> None:
        """Look for the stub of a peer that has a row, unless that is under way."""
        self._looks.begin(row)

    async def stop(self) -> None:
        """Look for nothing more."""
        await self._lookups.stop()
        await self._looks.stop()

    # --- looking for stubs ------------------------------------------------------------------------

    async def _look_at(self, row: PeerRow) -> None:
        """Look for the stub of a peer that has a row."""
        try:
            error = await self._look(row.domain, row)
        except NodeError as fault:  # what was found could not be noted
            error = fault
        if error is not None and self._is_there(row.domain, row):
            why = error.description
            await result_of(self._writer, partial(store.note_not_found, row.domain, why, row.place))

    async def _look(self, domain: str, row: PeerRow | None) -> NodeError | None:
        """Look for a stub, and note it; why there is none."""
        place = row.place if row is not None else store.NO_PLACE
        try:
            found = await discovery.find(self._http, domain, *place, self._must_be_signed)
        except discovery.NotFound:
            return NotFound(f"There is no node for the domain {domain}.")
        except discovery.NotReached as error:
            return GatewayTimeout(f"The domain {domain}: {error}")
        except discovery.Rejected as error:
            return BadGateway(f"The stub of {domain} cannot be used: {error}")
        if not self._is_there(domain, row):
            return None
        is_open = self._mode == "open"
        what = await result_of(
            self._writer, partial(store.note_found, domain, found, place, is_open)
        )
        if what == "new":
            text = f"The node of {domain} waits for approval: its stub is {found.digest[:12]}."
            self._raise_alarm(PEER_PENDING, domain, text)
        elif what == "changed":
            text = f"{domain} offers another stub, {found.digest[:12]}; the approved one goes on."
            self._raise_alarm(STUB_CHANGED, domain, text)
        return None

    def _is_there(self, domain: str, row: PeerRow | None) -> bool:
        """Whether the row of a domain still says where it was looked, or there still is none."""
        now = self.rows.get(domain)
        if row is None or now is None:
            return row is now
        return row.place == now.place
