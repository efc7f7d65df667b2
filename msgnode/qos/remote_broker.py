"""A QoS broker that is not the node's own, behind the same interface: the field's, or another.

OutsideBroker knows neither bandwidth nor owners nor an end: the node keeps these, so the rules on
owners, numbers and times apply here too. The field's, over HTTP, answers getAppropriateTurn (a TURN
server and a client id, within a customer's quota) and getCredentials. What was released stays valid
there until it expires, within a week, because that broker cannot be told.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, NamedTuple
from urllib.parse import urlencode

from msgnode.core.errors import (
    BadGateway,
    Forbidden,
    GatewayTimeout,
    NodeError,
    NotFound,
    Unavailable,
)
from msgnode.net.back_end import Answer, BackEnd

from . import bookings
from .bookings import Book, Extend, Free, Settle
from .broker import Criteria, Order, Owner, Value
from .embedded_broker import NotedReservations, granted
from .models import Reservation, TrafficClass
from .store import ReservationStore

log = logging.getLogger(__name__)

UNREACHABLE = "The QoS broker does not answer."


class Grant(NamedTuple):
    """What a broker has granted: its own id of that, and the servers with their credentials."""

    id: str
    servers: list[Value]


class OutsideBroker(NotedReservations):
    """Implements Broker: reservations as the node knows them, and what another broker grants."""

    async def inquired(self, criteria: Criteria) -> Value:
        """What the other broker says of the network. This and the next raise NodeError."""
        raise NotImplementedError

    async def granted(self, order: Order) -> Grant:
        """Have the other broker grant something."""
        raise NotImplementedError

    async def renewed(self, id_: str, seconds: int) -> list[Value]:
        """Have it renew that; the servers with their new credentials."""
        raise NotImplementedError

    async def released(self, id_: str) -> None:
        """Tell it, if it can be told, that nobody needs that any more."""

    async def inquire(self, criteria: Criteria) -> Value:
        """What the other broker says, and the classes that the node knows."""
        value: Value = {"classes": await self._store.in_thread(lambda: _classes(criteria))}
        return value | await self.inquired(criteria)

    async def reserve(self, order: Order, owner: Owner) -> Value:
        """Book here, then there; if it is refused there, undo it here."""
        row: Reservation = await self._store.submit(Book(order, owner, elsewhere=True))
        try:
            grant = await self.granted(order)
        except BaseException as error:
            given_up = self._store.submit(Settle(row.id, is_refused=True))
            if isinstance(error, NodeError):
                await given_up
            raise
        await self._store.submit(Settle(row.id, foreign_id=grant.id))
        row.state = Reservation.State.ACTIVE
        return granted(row, grant.servers)

    async def renew(self, id_: str, seconds: int, owner: Owner) -> Value:
        """Extend it here, and fetch a new credential there."""
        row: Reservation = await self._store.submit(Extend(id_, seconds, owner))
        return granted(row, await self.renewed(row.foreign_id, seconds))

    async def release(self, id_: str, owner: Owner) -> None:
        """End it here, then there."""
        row = await self._store.in_thread(lambda: bookings.find(id_, owner))
        await self._store.submit(Free(id_, owner))
        await self.released(row.foreign_id)


class RemoteBroker(OutsideBroker):
    """The field's broker, over HTTP.

    Args:
        store: of the reservations as the node knows them.
        back_end: the broker's base URL.
        timeout: seconds for all that a request takes there.
    """

    def __init__(self, store: ReservationStore, back_end: BackEnd, timeout: float = 10.0) -> None:
        super().__init__(store)
        self._back_end = back_end
        self._timeout = timeout
        self.fault = ""
        """Why the last call came to nothing, "" if it was answered."""

    async def inquired(self, criteria: Criteria) -> Value:
        """Ask the remote broker for quota and consumption of a customer."""
        if not criteria.customer:
            return {}
        key = f"prov:{criteria.customer}"
        consumed = _volumes((await self._get("getCspConso", cspkey=key)).body)
        listed = (await self._get("getAllCspInfo")).body
        if not isinstance(listed, list | None):
            raise BadGateway("The QoS broker returned no list of customers.")
        found = [each for each in listed or () if isinstance(each, dict)]
        mine = next((each for each in found if each.get("csp") == key), None)
        if mine is None:
            raise NotFound(f"There is no customer {criteria.customer}.")
        quota = _volumes({name: mine.get(f"{name}Quota") for name in _KINDS})
        left = max(0, quota["data"] - consumed["data"])
        value: Value = {"cspId": criteria.customer, "quota": quota, "consumed": consumed}
        return value | {"available": {"data": left}}

    async def granted(self, order: Order) -> Grant:
        """Its two calls."""
        answer = await self._get(
            "getAppropriateTurn", cspId=order.customer, clientName=order.client_name
        )
        place, client = _place(answer)
        return Grant(f"{client} {place}", await self._servers(place, client))

    async def renewed(self, id_: str, seconds: int) -> list[Value]:
        """Its second call."""
        client, _, place = id_.partition(" ")
        return await self._servers(place, client)

    async def _servers(self, place: str, client: str) -> list[Value]:
        credential = await self._credential(client)
        return [{"urls": [f"turn:{place}"], "username": client, "credential": credential}]

    async def _credential(self, client: str) -> str:
        body = (await self._get("getCredentials", clientId=client)).body
        password = body.get("password") if isinstance(body, dict) else None
        if not isinstance(password, str) or not password:
            raise BadGateway("The QoS broker returned no credential.")
        return password

    async def _get(self, call: str, **query: str) -> Answer:
        """One call, in all within the limit: a broker that never ends its answer counts as away."""
        try:
            async with asyncio.timeout(self._timeout):
                answer = await self._back_end.send("GET", f"/{call}?{urlencode(query)}")
        except TimeoutError:
            self.fault = UNREACHABLE
            raise GatewayTimeout(UNREACHABLE) from None
        except NodeError as error:
            self.fault = str(error)
            raise
        self.fault = ""
        if answer.status != 200:
            raise _refusal(answer)
        return answer


_KINDS = ("audio", "video", "data")


def _refusal(answer: Answer) -> NodeError:
    """The error for a refusal of the broker, whose reason is in the text of a 404."""
    text = answer.text.lower()
    if "consumption exceeded" in text:
        return Forbidden("The quota of the customer is used up.")
    if "csp not found" in text:
        return NotFound("The QoS broker knows no such customer.")
    if "no turn found" in text:
        return Unavailable("The QoS broker has no TURN server at the moment.")
    if answer.status in (404, 503) or answer.status >= 500:
        return Unavailable("The QoS broker cannot answer this at the moment.")
    return BadGateway("The QoS broker returned no valid answer.")


def _place(answer: Answer) -> tuple[str, str]:
    """The server's `host:port` and the client id."""
    body = answer.body
    if (
        not isinstance(body, list)
        or len(body) != 2
        or not all(isinstance(each, str) and 0 < len(each) <= 60 for each in body)
        or any(character.isspace() for character in "".join(body))
    ):
        raise BadGateway("The QoS broker named no TURN server.")
    return body[0], body[1]


def _volumes(body: Any) -> dict[str, int]:
    """Bytes by kind, which the broker writes as texts."""
    if not isinstance(body, dict):
        raise NotFound("The QoS broker knows no such customer.")
    found = {}
    for name in _KINDS:
        text = str(body.get(name) or "0")
        found[name] = int(text) if text.isdecimal() and len(text) < 20 else 0
    return found


def _classes(criteria: Criteria) -> list[Value]:
    return [
        {"class": row.name, "bitrate": row.bitrate}
        for row in TrafficClass.objects.all()
        if not criteria.media or row.name in criteria.media
    ]
