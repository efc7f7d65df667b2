"""The ports of connectors with a script behind them: what it is asked, and what is believed of it.

Who may do what, the answers, limits and records stay the node's: a script is asked what a remote
back-end would be asked. While a port has no script, what the settings name is asked.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Annotated, Any

import msgspec

from msgnode.bus.ports import Body
from msgnode.connectors.domain_registry import Registry
from msgnode.connectors.global_registry import Charge, GlobalRegistry
from msgnode.connectors.registry_requests import Change, Find, Refresh, Register, Remove, Request
from msgnode.connectors.remote_registry import News, OutsideRegistry, is_one
from msgnode.core import addresses
from msgnode.core.errors import BadGateway, BadMessage, NodeError, NotFound
from msgnode.models import Connector
from msgnode.net.back_end import Answer
from msgnode.qos.broker import Criteria, Order, Value
from msgnode.qos.remote_broker import Grant, OutsideBroker
from msgnode.qos.store import ReservationStore
from msgnode.storage.database_threads import in_any_thread
from registry import api
from registry.api import UNAVAILABLE, Claimant, Kind

from .service import Port, Scripts

MAX_PROVED = 1_000
"""Records that need not be proved again."""
Records = dict[str, dict[str, Any]]


class Ports:
    """Makes what stands behind each port.

    Args:
        scripts: of this worker.
    """

    def __init__(self, scripts: Scripts) -> None:
        self._ports = scripts.ports
        self._scripts = scripts

    def domain_registry(self, otherwise: Registry, unavailable_code: int, news: News) -> Registry:
        """The domain registry to ask."""
        port = self._ports[Connector.Port.DOMAIN_REGISTRY]

        def tell(entries: list[tuple[str, str]]) -> None:
            known = [each for each in entries if _can_be(*each)]
            if known:
                self._scripts.spawn(partial(in_any_thread, news, known))

        port.tell = tell
        return ScriptRegistry(port, otherwise, unavailable_code, news)

    def global_registry(self, otherwise: GlobalRegistry) -> GlobalRegistry:
        """The global registry to ask."""
        port = self._ports[Connector.Port.GLOBAL_REGISTRY]
        return ScriptGlobalRegistry(port, otherwise, self._scripts.in_thread)

    def broker(self, store: ReservationStore) -> ScriptBroker:
        """The QoS broker that is asked while it is chosen."""
        return ScriptBroker(store, self._ports[Connector.Port.QOS])


def _can_be(url: str, status: str) -> bool:
    """Whether news are of an entry and a status that can be."""
    is_address = not addresses.identifier_fault(url) and len(url) <= addresses.MAX_HELD
    return is_address and status in ("live", "disconnected")


class ScriptRegistry(OutsideRegistry):
    """A domain registry by a script; without one, another registry."""

    says_what_changed = False

    def __init__(self, port: Port, otherwise: Registry, unavailable_code: int, news: News) -> None:
        super().__init__(unavailable_code, news)
        self._port = port
        self._otherwise = otherwise

    async def carry_out(self, request: Request, by: Claimant | None) -> Body:
        """Answer a request."""
        if self._port.is_chosen:
            return await super().carry_out(request, by)
        return await self._otherwise.carry_out(request, by)

    async def runtimes_gone(
        self, runtime_urls: Sequence[str], live: Mapping[str, frozenset[str]]
    ) -> None:
        """Disconnect what these runtimes have registered."""
        if not self._port.is_chosen:
            await self._otherwise.runtimes_gone(runtime_urls, live)
            return
        await super().runtimes_gone(runtime_urls, live)
        if runtime_urls and self._port.has("runtimesGone"):
            await self._port.call("runtimesGone", {"runtimes": list(runtime_urls)}, None)

    async def send(self, request: Request) -> Answer:
        """Ask the script; its refusal is an answer."""
        try:
            if isinstance(request, Find):
                return await self._found(request)
            method, argument = _change(request)
            await self._port.call(method, argument, Any)
        except NodeError as refusal:
            if refusal.code >= 500:
                raise
            return Answer(refusal.code, {"message": refusal.description})
        return Answer(200, {})

    async def _found(self, request: Find) -> Answer:
        search = request.search
        asked = {
            "kind": str(search.kind), "url": search.url, "user": search.user,
            "guid": search.guid, "email": search.email, "name": search.name,
            "reporter": search.reporter, "scheme": search.scheme,
            "resources": list(search.resources), "dataSchemes": list(search.data_schemes),
        }  # fmt: skip
        argument = {key: value for key, value in asked.items() if value}
        found = await self._port.call("find", argument, Records | None, is_read=True) or {}
        records = {url: each for url, each in found.items() if _is_asked(search, url, each)}
        if not records:
            return Answer(404, {"message": "Not Found"})
        is_reachable = search.kind is Kind.OBJECT or any(
            each.get("status") not in UNAVAILABLE for each in records.values()
        )
        body = next(iter(records.values())) if is_one(request) else records
        return Answer(200 if is_reachable else 408, body)


def _is_asked(search: Any, url: str, record: Mapping[str, Any]) -> bool:
    """Whether a record is of what was searched for: a script's word does not count for another's.

    A search by its URL finds that entry alone, one by its user only entries of that user.
    """
    if search.url and url != search.url:
        return False
    owner = record.get("userID")
    return not (search.user and isinstance(owner, str) and owner != search.user)


def _change(request: Register | Refresh | Change | Remove) -> tuple[str, dict[str, Any]]:
    """The method and the argument of a change."""
    common: dict[str, Any] = {"kind": str(request.kind), "url": request.url}
    match request:
        case Register(body=body, user=user):
            told = {**common, "body": dict(body)}
            return "register", {**told, "user": user} if user else told
        case Refresh():
            return "refresh", common
        case Change(body=body):
            return "change", {**common, "body": dict(body)}
        case Remove(user=user):
            return "remove", {**common, "user": user} if user else common
    raise msgspec.ValidationError("no change")


class ScriptGlobalRegistry:
    """A global registry by a script; without one, another. Records prove themselves, here.

    Args:
        port: the script's.
        otherwise: the registry that is asked without one.
        in_thread: runs what takes long.
    """

    def __init__(
        self,
        port: Port,
        otherwise: GlobalRegistry,
        in_thread: Callable[[Callable[[], Any]], Awaitable[Any]],
    ) -> None:
        self._port = port
        self._otherwise = otherwise
        self._in_thread = in_thread
        self._proved: OrderedDict[tuple[str, str], None] = OrderedDict()

    async def get(self, guid: str) -> str:
        """Ask the script, and prove what it says."""
        if not self._port.is_chosen:
            return await self._otherwise.get(guid)
        jwt: str | None = await self._port.call("get", {"guid": guid}, str | None, is_read=True)
        if not jwt:
            raise NotFound("GUID not found.")
        try:
            await self._prove(guid, jwt, lambda: None)
        except BadMessage as fault:
            raise BadGateway(f"The global registry gave no valid record: {fault}") from None
        return jwt

    async def put(self, guid: str, jwt: str, previous: str | None, charge: Charge) -> None:
        """Prove a record, and give it to the script."""
        if not self._port.is_chosen:
            await self._otherwise.put(guid, jwt, previous, charge)
            return
        await self._prove(guid, jwt, charge)
        told = {"guid": guid, "jwt": jwt, "previous": previous}
        given = {name: value for name, value in told.items() if value is not None}
        await self._port.call("put", given, Any)

    async def _prove(self, guid: str, jwt: str, charge: Charge) -> None:
        """Prove a record, unless it was lately, since some take long. Raises BadMessage."""
        key = (guid, api.global_digest(jwt))
        if key not in self._proved:
            await self._in_thread(partial(api.global_proved, guid, jwt, charge))
            self._proved[key] = None
            if len(self._proved) > MAX_PROVED:
                self._proved.popitem(last=False)


Url = Annotated[str, msgspec.Meta(max_length=200, pattern="^(turns?|stun):[^ ]+$")]


class IceServer(msgspec.Struct, frozen=True):
    """A TURN server with a credential."""

    urls: Annotated[list[Url], msgspec.Meta(min_length=1, max_length=8)]
    username: Annotated[str, msgspec.Meta(max_length=500)] = ""
    credential: Annotated[str, msgspec.Meta(max_length=500)] = ""


Servers = Annotated[list[IceServer], msgspec.Meta(min_length=1, max_length=8)]


class Granted(msgspec.Struct, frozen=True):
    """What a script has granted: its own id of that, and the servers."""

    id: Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
    iceServers: Servers  # noqa: N815  (as in RTCConfiguration)


class Renewed(msgspec.Struct, frozen=True):
    """The servers with new credentials."""

    iceServers: Servers  # noqa: N815


class ScriptBroker(OutsideBroker):
    """A QoS broker by a script; the reservations and their owners are the node's."""

    def __init__(self, store: ReservationStore, port: Port) -> None:
        super().__init__(store)
        self._port = port
        self.on_change = port.on_change

    @property
    def is_chosen(self) -> bool:
        """Whether it is asked."""
        return self._port.is_chosen

    def describe(self) -> tuple[str, str]:
        """How the script is, and its last fault."""
        return self._port.state or "paused", self._port.last_error

    async def inquired(self, criteria: Criteria) -> Value:
        """Ask the script."""
        asked = {"customer": criteria.customer, "media": criteria.media, "near": criteria.near}
        told = {key: value for key, value in asked.items() if value}
        return await self._port.call("inquire", told, Value | None, is_read=True) or {}

    async def granted(self, order: Order) -> Grant:
        """Have the script grant something."""
        asked = {
            "media": order.media, "class": order.traffic_class, "bitrate": order.bitrate,
            "seconds": order.seconds, "customer": order.customer,
            "clientName": order.client_name, "sessionId": order.about, "near": order.near,
        }  # fmt: skip
        told = {key: value for key, value in asked.items() if value}
        granted: Granted = await self._port.call("reserve", told, Granted)
        return Grant(granted.id, msgspec.to_builtins(granted.iceServers))

    async def renewed(self, id_: str, seconds: int) -> list[Value]:
        """Have it renew that."""
        asked = {"id": id_, "seconds": seconds}
        renewed: Renewed = await self._port.call("renew", asked, Renewed)
        servers: list[Value] = msgspec.to_builtins(renewed.iceServers)
        return servers

    async def released(self, id_: str) -> None:
        """Tell it, if it has a method for that."""
        if self._port.has("release"):
            await self._port.call("release", {"id": id_}, Any)
