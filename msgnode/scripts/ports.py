"""The ports of connectors with a script behind them: what it is asked, and what is believed of it.

Who may do what, the answers, limits and records stay the node's: a script is asked what a remote
back-end would be asked. While a port has no script, what the settings name is asked.
"""

from __future__ import annotations

import asyncio
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
from msgnode.core.digest import digest
from msgnode.core.errors import BadGateway, BadMessage, NodeError, NotFound
from msgnode.core.faults import FAULTS
from msgnode.identity import issuer_store
from msgnode.identity.ports import ISSUERS_CHANGED, AssertionRequest, Claims, Provider
from msgnode.identity.revocation_list import revoke
from msgnode.models import Connector
from msgnode.net.back_end import Answer
from msgnode.qos.broker import Criteria, Order, Value
from msgnode.qos.remote_broker import Grant, OutsideBroker
from msgnode.qos.store import ReservationStore
from msgnode.storage.control import post
from msgnode.storage.database_threads import in_any_thread
from registry import api
from registry.api import UNAVAILABLE, Claimant, Kind

from . import store
from .service import Port, Scripts
from .store import Version

MAX_NEWS, NEWS_PAUSE = 10_000, 0.1
"""Entries of which a script may say something before it is written; seconds between two writes."""
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
        port.tell = NewsWriter(news, self._scripts.spawn).tell
        return ScriptRegistry(port, otherwise, unavailable_code, news)

    def global_registry(self, otherwise: GlobalRegistry) -> GlobalRegistry:
        """The global registry to ask."""
        port = self._ports[Connector.Port.GLOBAL_REGISTRY]
        return ScriptGlobalRegistry(port, otherwise, self._scripts.in_thread)

    def provider(self, otherwise: Provider, domain: str) -> Provider:
        """The identity provider of the domain.

        Args:
            otherwise: the provider that is asked where there is no script.
            domain: of the node.
        """
        port = self._ports[Connector.Port.IDENTITY]
        provider = ScriptProvider(port, otherwise, self._scripts.in_thread)
        told: list[Version | None] = [None]

        def enter() -> None:
            issuer_store.enter_embedded(provider.issuer, domain)
            post(ISSUERS_CHANGED)

        def changed() -> None:
            version = port.version
            if version != told[0]:
                told[0] = version
                self._scripts.spawn(partial(self._scripts.in_thread, enter))

        port.on_change.append(changed)
        return provider

    def broker(self, reservations: ReservationStore) -> ScriptBroker:
        """The QoS broker that is asked while it is chosen."""
        return ScriptBroker(reservations, self._ports[Connector.Port.QOS])


def _can_be(url: str, status: str) -> bool:
    """Whether news are of an entry and a status that can be."""
    is_address = not addresses.identifier_fault(url) and len(url) <= addresses.MAX_HELD
    return is_address and status in ("live", "disconnected")


class NewsWriter:
    """Writes what a script says of entries: one call of the database at a time, with pauses.

    Of an entry only the last is written; what is said of more than MAX_NEWS meanwhile is lost.
    """

    def __init__(self, news: News, spawn: Callable[[Callable[[], Awaitable[None]]], None]) -> None:
        self._news = news
        self._spawn = spawn
        self._waiting: dict[str, str] = {}
        self._is_writing = False

    def tell(self, entries: list[tuple[str, str]]) -> None:
        """Take what the script says: the URL and the status of each entry."""
        for url, status in entries:
            if url not in self._waiting and len(self._waiting) >= MAX_NEWS:
                FAULTS.refuse("status from a script", f"{MAX_NEWS:,} already wait")
                break
            if _can_be(url, status):
                self._waiting[url] = status
        if self._waiting and not self._is_writing:
            self._is_writing = True
            self._spawn(self._write)

    async def _write(self) -> None:
        try:
            while self._waiting:
                entries, self._waiting = list(self._waiting.items()), {}
                await in_any_thread(self._news, entries)
                await asyncio.sleep(NEWS_PAUSE)
        finally:
            self._is_writing = False


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

    def status_after(self, request: Register | Refresh | Change | Remove) -> str | None:
        """The new status of a change; there is no feed that would report the end of an entry."""
        return "disconnected" if isinstance(request, Remove) else super().status_after(request)

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

    def __init__(self, reservations: ReservationStore, port: Port) -> None:
        super().__init__(reservations)
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


class Keys(msgspec.Struct, frozen=True):
    """A JWK set."""

    keys: Annotated[list[dict[str, Any]], msgspec.Meta(max_length=20)]


LoginUrl = Annotated[str, msgspec.Meta(max_length=8_000, pattern="^https?://[!-~]+$")]


class ScriptProvider:
    """An identity provider by a script; without one, another.

    The issuer, and the clients whose tokens are taken, are those of the approved configuration:
    `issuer` and `clientIds`. The node verifies each token itself, with the keys that the script
    names, as a token of this issuer and of no other.

    Args:
        port: the script's.
        otherwise: the provider that is asked without one.
        in_thread: runs what uses the database.
    """

    def __init__(
        self,
        port: Port,
        otherwise: Provider,
        in_thread: Callable[[Callable[[], Any]], Awaitable[Any]],
    ) -> None:
        self._port = port
        self._otherwise = otherwise
        self._in_thread = in_thread

    @property
    def issuer(self) -> str:
        """The exact text of its `iss`. Blocks."""
        return store.issuer() or self._otherwise.issuer

    async def keys(self) -> dict[str, Any]:
        """The public keys."""
        if not self._port.is_chosen:
            return await self._otherwise.keys()
        found: Keys = await self._port.call("keys", {}, Keys, is_read=True)
        return {"keys": found.keys}

    async def client_ids(self) -> frozenset[str]:
        """The clients whose tokens are taken."""
        if not self._port.is_chosen:
            return await self._otherwise.client_ids()
        version = self._port.version
        return frozenset(version.configuration["clientIds"] if version is not None else ())

    async def introspect(self, token: str) -> Claims | None:
        """The claims of an opaque token, if the script knows it; they are of this issuer."""
        if not self._port.is_chosen:
            return await self._otherwise.introspect(token)
        found: Claims | None = await self._port.call(
            "introspect", {"token": token}, Claims | None, is_read=True
        )
        version = self._port.version
        if not found or version is None:
            return None
        issuer = version.configuration["issuer"]
        return {**found, "iss": issuer} if found.get("iss", issuer) == issuer else None

    async def login_url(self, request: AssertionRequest) -> str:
        """Where a person logs in."""
        if not self._port.is_chosen:
            return await self._otherwise.login_url(request)
        url: str = await self._port.call("loginUrl", _told(request), LoginUrl)
        return url

    async def assertion(self, request: AssertionRequest) -> Claims | None:
        """An identity for a grant."""
        if not self._port.is_chosen:
            return await self._otherwise.assertion(request)
        found: Claims | None = await self._port.call("assertion", _told(request), Claims | None)
        return found

    async def access_token(self, request: AssertionRequest) -> Claims | None:
        """An access token for a grant."""
        if not self._port.is_chosen:
            return await self._otherwise.access_token(request)
        found: Claims | None = await self._port.call("accessToken", _told(request), Claims | None)
        return found

    async def card(self, name: str) -> Claims | None:
        """The card of a user."""
        if not self._port.is_chosen:
            return await self._otherwise.card(name)
        if not self._port.has("card"):
            return None
        found: Claims | None = await self._port.call(
            "card", {"name": name}, Claims | None, is_read=True
        )
        return found

    async def revoke(self, token: str) -> bool:
        """Revoke a token; the sessions that it has identified become anonymous."""
        if not self._port.is_chosen:
            return await self._otherwise.revoke(token)
        is_its: bool = await self._port.call("revoke", {"token": token}, bool)
        if is_its:
            await self._in_thread(partial(revoke, token=digest(token), close=False))
        return is_its


def _told(request: AssertionRequest) -> dict[str, Any]:
    """What of a request for an identity is given, as the script gets it."""
    issuer, subject = request.subject
    told = {
        "contents": request.contents, "origin": request.origin,
        "usernameHint": request.username_hint, "token": request.token,
        "resources": list(request.resources),
        "subject": {"iss": issuer, "sub": subject} if issuer else None,
    }  # fmt: skip
    return {key: value for key, value in told.items() if value}
