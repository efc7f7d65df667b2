"""The endpoint of links, `/federation/link`, and the document with the keys of this node."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from . import link_keys
from . import link_protocol as protocol
from .link_keys import OwnKey
from .link_socket import Find, LinkConnection, OwnNode

HANDSHAKES_AT_ONCE = 100
"""Sockets of a worker that are not proved yet, at most."""


class LinkEndpoint:
    """The endpoint of one worker, an ASGI application.

    Args:
        own: this node.
        find: finds the link to a domain.
    """

    def __init__(self, own: OwnNode, find: Find) -> None:
        self._own = own
        self._find = find
        self._unproved: set[LinkConnection] = set()

    async def __call__(
        self,
        scope: dict[str, Any],
        receive: Callable[[], Awaitable[dict[str, Any]]],
        send: Callable[[dict[str, Any]], Awaitable[None]],
    ) -> None:
        """Serve one socket from its upgrade to its end."""
        await receive()
        self._unproved = {each for each in self._unproved if each.is_unproved}
        is_known = protocol.SUBPROTOCOL in (scope.get("subprotocols") or ())
        if not is_known or len(self._unproved) >= HANDSHAKES_AT_ONCE:
            await send({"type": "websocket.close", "code": 4403})
            return
        await send({"type": "websocket.accept", "subprotocol": protocol.SUBPROTOCOL})
        link = scope["extensions"]["msgnode.link"]
        connection = LinkConnection(link, self._own, self._find)
        self._unproved.add(connection)
        try:
            await link.run(connection.received)
        finally:
            self._unproved.discard(connection)
            connection.lost(protocol.LinkFault(1006, ""))


def keys_of_this_node() -> list[OwnKey]:
    """The keys of this node, as the settings have them."""
    return link_keys.own_keys(
        [settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS], settings.DOMAIN
    )


@require_safe
@never_cache
def own_node(request: HttpRequest) -> HttpResponse:
    """`/.well-known/rethink-node`: the public keys of this node, 404 if it makes no links."""
    if settings.FEDERATION == "off":
        return HttpResponse(status=404)
    return JsonResponse(link_keys.document(keys_of_this_node(), settings.DOMAIN, time.time()))
