"""The ASGI application: HTTP to Django, WebSockets to sessions/. ROLE=web: Django alone.

`msgnode.servers.main` starts the node before it listens.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from importlib import import_module
from typing import Any

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "msgnode.settings")

from django.core.asgi import get_asgi_application

_django_alone = get_asgi_application()

from channels.routing import ProtocolTypeRouter, URLRouter
from django.conf import settings
from django.urls import path, re_path

from msgnode.console.live.consumer import LiveConsumer
from msgnode.console.live.source import Source
from msgnode.core import database_limit
from msgnode.core.http_limits import HTTP_LIMITS
from msgnode.devices.http import ROOT
from msgnode.federation import link_protocol
from msgnode.node import Node, get_node
from msgnode.ops.health import Health
from msgnode.sessions.consumer import SocketConsumer, StubConnectConsumer
from msgnode.web.body_limit import BodyLimit
from msgnode.web.proxies import BehindProxies
from msgnode.web.request_threads import RequestThreads
from msgnode.web.upgrades import upgrade_required

log = logging.getLogger(__name__)

_django = RequestThreads(_django_alone, settings.REQUEST_THREADS)


def is_serving_pages() -> bool:
    """Whether an HTTP request is being served by Django."""
    return _django.is_serving


database_limit.limit_process(settings.DATABASE_TIMEOUT * 3)  # a request's is shorter


_OF_WEBSOCKETS = frozenset({"/ws", "/stub/connect"})


async def _refuse(scope: Any, receive: Any, send: Any) -> Any:
    """No such WebSocket path: the upgrade is answered 403 (docs/reference/messages.md, case 12)."""
    await receive()
    await send({"type": "websocket.close", "code": 4403})


def websockets(node: Node) -> Any:
    """The protostub endpoints of a node, and the socket of its console."""
    parts = node.parts
    wiring: dict[str, Any] = {
        "parts": parts.connections,
        "prove": parts.identities.async_verifier.prove,
        "origins": settings.WS_ORIGINS,
        "probe": parts.probe,
        "nodes": parts.nodes,
    }
    source = Source(parts)
    node.on_drain.append(source.close)
    links: Any = parts.node_links
    live = LiveConsumer.as_asgi(**source.wiring())
    endpoints = {"/ws": SocketConsumer(**wiring), "/stub/connect": StubConnectConsumer(**wiring)}
    others = URLRouter(
        [
            *([path(link_protocol.PATH, links)] if links is not None else []),
            path("admin/live/", live),
            path("admin/live/session/<uuid:session>/", live),
            path("admin/live/traces/", live, {"is_traces": True}),
            path("admin/live/domains/", live, {"is_domains": True}),
            re_path("", _refuse),
        ]
    )

    async def route(scope: Any, receive: Any, send: Any) -> None:
        await endpoints.get(scope["path"], others)(scope, receive, send)

    return route


_METRICS = "/metrics"
"""What a worker is asked that shows no pages, too: see msgnode.urls."""


class Pages:
    """Django; a thread loads its pages when one is asked for, and messages go on meanwhile."""

    def __init__(self) -> None:
        self._loading: asyncio.Future[Any] | None = None
        self._are_loaded = False

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        """Serve a request."""
        if not (self._are_loaded or scope["path"] == _METRICS):
            await self.load()
        await _django(scope, receive, send)

    async def load(self) -> None:
        """Import all addresses, once for however many ask; who asks after a failure tries again."""
        if self._loading is None:
            self._loading = asyncio.ensure_future(asyncio.to_thread(_import_pages))
        try:
            await asyncio.shield(self._loading)
            self._are_loaded = True
        except Exception:
            self._loading = None
            raise


def _import_pages() -> None:
    began = time.perf_counter()
    import_module("msgnode.site_urls")
    log.info("The pages are loaded.", extra={"seconds": round(time.perf_counter() - began, 3)})


def http(node: Node) -> Any:
    """Django, and before it what devices ask for if the operator has switched that on."""
    devices = node.parts.device_api
    limit = int(settings.NODE["MAX_REQUEST_BYTES"])
    pages = Pages()

    async def route(scope: dict[str, Any], receive: Any, send: Any) -> None:
        if scope["path"] in _OF_WEBSOCKETS:
            await upgrade_required(scope, receive, send)
            return
        is_device = scope["path"].startswith(f"{ROOT}/")
        await (devices if is_device else pages)(scope, receive, send)

    return BodyLimit(route, limit)


def _of_a_worker(node: Node) -> dict[str, Any]:
    return {"http": Health(http(node), node), "websocket": websockets(node)}


def _of_the_web_process() -> dict[str, Any]:
    """What has no node in it; sockets and devices are the workers'."""
    _import_pages()
    limit = int(settings.NODE["MAX_REQUEST_BYTES"])
    return {"http": Health(BodyLimit(_django, limit), None), "websocket": _refuse}


if settings.REDIS_URL:
    from redis import RedisError  # its client is for who has one

    from msgnode.redis.limits_storage import limits_storage

    try:
        HTTP_LIMITS.share(
            limits_storage(settings.REDIS_URL, f"{settings.DOMAIN} {settings.SECRET_KEY}")
        )
    except RedisError as error:  # a worker says so when it starts
        log.warning("HTTP requests are counted by this process alone: %s", error)

application = BehindProxies(
    ProtocolTypeRouter(
        _of_the_web_process() if settings.ROLE == "web" else _of_a_worker(get_node())
    ),
    settings.PROXIES,
)
