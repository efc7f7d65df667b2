"""The known peers: those in the database, and those being looked for.

Rules
- The stub of an unknown domain is looked for when a message is sent there, unless only listed
  domains may be peers.
- A domain with a stub gets a row, which waits for an operator's approval (not with
  FEDERATION=open). If a domain later offers another stub than the approved one, an alarm says so.
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
        return refusals.refusal_of(row)

    def look_for(self, row: PeerRow) -> None:
        """Look for the stub of a peer with a row, unless that is in progress."""
        self._looks.begin(row)

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
        """Whether the row of a domain still has the place that was searched, or is still absent."""
        now = self.rows.get(domain)
        if row is None or now is None:
            return row is now
        return row.place == now.place
