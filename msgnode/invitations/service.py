"""Invitations in a worker: what users ask of the identity manager about them.

    subscribePush {hyperty?}    callers may invite from now on -> {endpoint, userURL, expires}
    unsubscribePush             no longer
    sendInvitation {endpoint, user, hyperty, seconds?, resource?, stay?}
                                posted to a user's endpoint elsewhere -> {invitation, expires}

All of it is for sessions that are logged in at this domain's own provider. What is sent is signed
by it, so that the receiver knows who invites and which code leads to him; and it is posted from
here, to public addresses alone, within SECONDS.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from django.conf import settings

from msgnode.bus.ports import Body, Listener
from msgnode.bus.table import RoutingTable
from msgnode.connectors.identity_requests import Execute
from msgnode.core import addresses
from msgnode.core.errors import (
    BadGateway,
    BadMessage,
    Forbidden,
    GatewayTimeout,
    Gone,
    NotIdentified,
    TooMany,
    Unavailable,
)
from msgnode.core.http_limits import HTTP_LIMITS
from msgnode.core.identity import Identity
from msgnode.devices.safe_http import NoAnswer, NotAllowed, SafeHttp
from msgnode.identity.provider import cards
from msgnode.storage.database_threads import DatabaseThreads

from . import endpoints, sent, wire

SECONDS = 10.0
"""That somebody's push endpoint has to answer."""
AT_ONCE = 64
"""Invitations that are being posted; more are answered 503."""
MAX_ANSWER = 4_096
DEFAULT_SECONDS = 60
MAX_STAY = 86_400
"""Seconds for which who accepts an invitation may stay a guest."""


class InvitationService:
    """One instance per worker.

    Args:
        domain: this node's.
        issuer: of its own provider.
        table: who holds which address.
        http: posts to endpoints that callers name.
        threads: calls that use the database.
        clock: seconds since the epoch.
    """

    def __init__(
        self,
        domain: str,
        issuer: str,
        table: RoutingTable,
        http: SafeHttp,
        threads: DatabaseThreads,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._domain = domain
        self._issuer = issuer
        self._table = table
        self._http = http
        self._threads = threads
        self._clock = clock
        self._posting = 0

    def answer(self, request: Execute, sender: str, caller: Listener) -> Awaitable[Body]:
        """What the connector hands over; raises NodeError."""
        identity = caller.speaker.identity
        if identity is None or identity.issuer != self._issuer:
            raise NotIdentified("Invitations are for users who are logged in at this domain.")
        if request.method == "sendInvitation":
            return self._send(request, identity, caller)
        if request.method == "subscribePush":
            hyperty = request.text("hyperty")
            if hyperty:
                self._check_held(hyperty, caller)
            return self._open(identity, caller.runtime_url, sender, hyperty)
        return self._close(identity, caller.runtime_url)

    async def stop(self) -> None:
        """The worker ends."""
        self._threads.stop()
        await self._http.close()

    async def _open(self, who: Identity, runtime_url: str, address: str, hyperty: str) -> Body:
        row = await self._threads.run(
            lambda: endpoints.open_for(who.subject, who.user_url, runtime_url, address, hyperty)
        )
        value = {
            "endpoint": endpoints.url_of(row.pk),
            "userURL": row.user_url,
            "expires": int(row.expires_at.timestamp()),
        }
        return {"code": 200, "value": value}

    async def _close(self, who: Identity, runtime_url: str) -> Body:
        await self._threads.run(lambda: endpoints.close(who.subject, runtime_url))
        return {"code": 200}

    async def _send(self, request: Execute, who: Identity, caller: Listener) -> Body:
        endpoint, hyperty = request.text("endpoint"), request.text("hyperty")
        if not endpoint:
            raise BadMessage("sendInvitation needs params.endpoint.")
        self._check_held(hyperty, caller)
        seconds = _number(request, "seconds", DEFAULT_SECONDS, 1, wire.MAX_SECONDS)
        stay = _number(request, "stay", 0, 0, MAX_STAY)
        said = {
            "invitation": secrets.token_urlsafe(24),
            "from": hyperty,
            "to": request.text("user", "to"),
        }
        if resource := request.text("resource"):
            self._check_owned(resource, caller)
            said["resource"] = resource
        expires = wire.expiry(self._clock(), seconds)
        if self._posting >= AT_ONCE:
            raise Unavailable("Too many invitations are being sent at the moment.")
        self._posting += 1
        try:
            body = await self._signed(who.subject, said, expires)
            await self._threads.run(
                lambda: sent.keep(
                    said["invitation"], who.subject, hyperty, resource, expires, int(stay)
                )
            )
            await self._post(endpoint, body, int(seconds))
        finally:
            self._posting -= 1
        return {"code": 200, "value": {"invitation": said["invitation"], "expires": expires}}

    async def _signed(self, subject: str, said: Mapping[str, str], expires: int) -> bytes:
        """The message, in the form that receivers take. Raises NodeError."""
        most: int = settings.INVITATIONS["PER_MINUTE"]

        def sign() -> str | None:
            if wait := HTTP_LIMITS.take("push-sent", subject, most):
                raise TooMany(f"Too many invitations; the next one in {int(wait) + 1} seconds.")
            return cards.signed_invitation(subject, said, expires)

        assertion = await self._threads.run(sign)
        if assertion is None:
            raise Forbidden("The user of this session is none of this domain's.")
        value = {"invitation": said["invitation"], "expires": expires}
        value |= {"resource": said["resource"]} if "resource" in said else {}
        message = {
            "type": "create",
            "id": said["invitation"],
            "from": said["from"],
            "to": said["to"],
            "body": {
                "value": value,
                "identity": {"assertion": assertion, "idp": {"domain": self._domain}},
                "protostub": cards.protostub(),
            },
        }
        body = json.dumps(message, separators=(",", ":")).encode()
        wire.read(body, self._clock())  # as its receiver will
        if len(body) > wire.MAX_BYTES:
            raise BadMessage("The addresses are too long for an invitation.")
        return body

    async def _post(self, endpoint: str, body: bytes, seconds: int) -> None:
        headers = {"TTL": str(seconds), "Urgency": "high"}
        try:
            status = (await self._http.post(endpoint, body, headers)).status
        except NotAllowed as error:
            raise BadMessage(f"The endpoint: {error}") from None
        except NoAnswer as error:
            raise GatewayTimeout(f"The endpoint: {error}") from None
        if 200 <= status < 300:
            return
        if status in (404, 410):
            raise Gone("The endpoint is none any more: the user's card has a newer one, or none.")
        if status == 429:
            raise TooMany("The endpoint takes no more invitations at the moment.")
        raise BadGateway(f"The endpoint answered {status}.")

    def _check_held(self, hyperty: str, caller: Listener) -> None:
        """Whether the session holds the address at which others are to answer. Raises Forbidden."""
        is_below = addresses.is_under(hyperty, caller.runtime_url) if hyperty else False
        holder: Any = self._table.owners.get(hyperty)
        if not is_below and (holder is None or holder.id != caller.id):
            raise Forbidden("params.hyperty must be an address that this session holds.")

    def _check_owned(self, resource: str, caller: Listener) -> None:
        """Whether the session may let somebody in at an object. Raises Forbidden."""
        holder: Any = self._table.owners.get(resource)
        if holder is None or holder.id != caller.id:
            raise Forbidden("params.resource must be an object that this session holds.")


def _number(request: Execute, name: str, default: float, least: float, most: float) -> float:
    """A number of the request. Raises BadMessage."""
    number = request.params.get(name, default)
    is_one = isinstance(number, int | float) and not isinstance(number, bool)
    if not is_one or not least <= number <= most:
        raise BadMessage(f"params.{name} must be {least} to {most}.")
    return float(number)


def threads() -> DatabaseThreads:
    """Those of one worker."""
    return DatabaseThreads("invitations", 2, 256, "Too many requests about invitations wait.")
