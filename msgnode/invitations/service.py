"""Invitations in a worker: what users ask of the identity manager about them.

    subscribePush {hyperty?}    callers may invite from now on -> {endpoint, userURL, expires}
    unsubscribePush             no longer
    sendInvitation {endpoint, user, hyperty, seconds?, resource?, stay?}
                                posted to a user's endpoint elsewhere
                                -> {invitation, expires, location?}
    withdrawInvitation {invitation, location?}
                                nobody can accept it any more; its receiver's node is told -> {told}
    endInvitation {invitation}  the same, and who has accepted it is a guest no longer, within
                                guests.EVERY seconds; that session stays open
    reopenInvitation {invitation}
                                who has accepted it is a guest no longer, and it can be accepted
                                again until it expires

All of it is for sessions that are logged in at this domain's own provider. What is sent is signed
by it, so that the receiver knows who invites and which code leads to him; and it is posted from
here, to public addresses alone, within SECONDS.
"""

from __future__ import annotations

import json
import secrets
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import Any
from urllib.parse import urljoin, urlsplit

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
    NodeError,
    NotIdentified,
    TooMany,
    Unavailable,
)
from msgnode.core.http_limits import HTTP_LIMITS
from msgnode.core.identity import Identity
from msgnode.identity.provider import cards
from msgnode.net.http import MAX_URL, HttpClient, NoAnswer, NotAllowed
from msgnode.storage.database_threads import DatabaseThreads

from . import endpoints, guests, wire

SECONDS = 10.0
"""Seconds within which a push endpoint must answer."""
AT_ONCE = 64
"""Invitations that are being posted or withdrawn at endpoints; more are answered 503."""
AT_ONCE_PER_USER = 16
"""Most such requests of one user at a time; further ones are answered 429."""
MAX_ANSWER = 4_096
DEFAULT_SECONDS = 60
MAX_STAY = 86_400
"""Most seconds for which a guest may stay one."""


class InvitationService:
    """One instance per worker.

    Args:
        domain: the node's domain.
        issuer: the issuer of its own provider.
        table: the routing table.
        http: the HTTP client for endpoints given by callers.
        threads: runs database calls.
        clock: seconds since the epoch.
    """

    def __init__(
        self,
        domain: str,
        issuer: str,
        table: RoutingTable,
        http: HttpClient,
        threads: DatabaseThreads,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._domain = domain
        self._issuer = issuer
        self._table = table
        self._http = http
        self._threads = threads
        self._clock = clock
        self._posting: Counter[str] = Counter()  # by subject
        self.steps: Counter[str] = Counter()

    def answer(self, request: Execute, sender: str, caller: Listener) -> Awaitable[Body]:
        """What the connector hands over; raises NodeError."""
        identity = caller.speaker.identity
        if identity is None or identity.issuer != self._issuer:
            raise NotIdentified("Invitations are for users who are logged in at this domain.")
        if request.method == "sendInvitation":
            return self._send(request, identity, caller)
        if request.method == "withdrawInvitation":
            return self._withdraw(request, identity)
        if request.method == "endInvitation":
            return self._end(request, identity)
        if request.method == "reopenInvitation":
            return self._reopen(request, identity)
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
            raise request.lacks("endpoint")
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
        name = said["invitation"]
        with self._one_of_many(who.subject):
            body = await self._signed(who.subject, said, expires)
            await self._threads.run(
                lambda: guests.note_sent(name, who.subject, hyperty, resource, expires, int(stay))
            )
            try:
                location = await self._post(endpoint, body, int(seconds))
            except NodeError:
                if await self._threads.run(lambda: guests.drop(name)):
                    raise
                location = ""  # it came all the same: somebody has accepted it
            if location:
                await self._threads.run(lambda: guests.note_location(name, location))
        self.steps["sent"] += 1
        value = {"invitation": name, "expires": expires}
        return {"code": 200, "value": value | ({"location": location} if location else {})}

    async def _withdraw(self, request: Execute, who: Identity) -> Body:
        name, location = _name(request), request.text("location")
        most: int = settings.INVITATIONS["PER_MINUTE"]

        def withdraw() -> None:
            _take("push-withdrawn", who.subject, most)
            guests.withdraw(name, who.subject, location)

        await self._threads.run(withdraw)
        self.steps["withdrawn"] += 1
        is_told = bool(location) and await self._is_deleted(who.subject, location)
        self.steps["withdrawal_untold"] += not is_told
        return {"code": 200, "value": {"told": is_told}}

    async def _end(self, request: Execute, who: Identity) -> Body:
        name = _name(request)
        most: int = settings.INVITATIONS["PER_MINUTE"]

        def end() -> None:
            _take("push-withdrawn", who.subject, most)
            guests.end(name, who.subject)

        await self._threads.run(end)
        self.steps["ended_by_user"] += 1
        return {"code": 200}

    async def _reopen(self, request: Execute, who: Identity) -> Body:
        name = _name(request)
        most: int = settings.INVITATIONS["PER_MINUTE"]

        def reopen() -> datetime:
            _take("push-withdrawn", who.subject, most)
            return guests.reopen(name, who.subject)

        expires = await self._threads.run(reopen)
        self.steps["reopened"] += 1
        return {"code": 200, "value": {"expires": int(expires.timestamp())}}

    async def _is_deleted(self, subject: str, location: str) -> bool:
        """Whether the receiver's node was told; if not, acceptance is refused here all the same."""
        try:
            with self._one_of_many(subject):
                status = (await self._http.delete(location)).status
        except (NotAllowed, NoAnswer, TooMany, Unavailable):
            return False
        return 200 <= status < 300

    @contextmanager
    def _one_of_many(self, subject: str) -> Iterator[None]:
        """While something is posted for a user. Raises Unavailable and TooMany."""
        if self._posting.total() >= AT_ONCE:
            raise Unavailable("Too many invitations are being sent at the moment.")
        if self._posting[subject] >= AT_ONCE_PER_USER:
            raise TooMany(f"{AT_ONCE_PER_USER} invitations of this user are being sent already.")
        self._posting[subject] += 1
        try:
            yield
        finally:
            self._posting[subject] -= 1
            if not self._posting[subject]:
                del self._posting[subject]

    async def _signed(self, subject: str, said: Mapping[str, str], expires: int) -> bytes:
        """The message, in the form that receivers take. Raises NodeError."""
        most: int = settings.INVITATIONS["PER_MINUTE"]

        def sign() -> str | None:
            _take("push-sent", subject, most)
            return cards.signed_invitation(subject, said, expires)

        assertion = await self._threads.run(sign)
        if assertion is None:
            raise Forbidden("The user of this session does not belong to this domain.")
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

    async def _post(self, endpoint: str, body: bytes, seconds: int) -> str:
        """The URL for its withdrawal, "" if the endpoint gives none. Raises NodeError."""
        headers = {"TTL": str(seconds), "Urgency": "high"}
        try:
            answer = await self._http.post(endpoint, body, headers)
        except NotAllowed as error:
            raise BadMessage(f"The endpoint: {error}") from None
        except NoAnswer as error:
            raise GatewayTimeout(f"The endpoint: {error}") from None
        status = answer.status
        if 200 <= status < 300:
            return _beside(endpoint, answer.location)
        if status in (404, 410):
            raise Gone("The endpoint is no longer valid: the user's card has a newer one, or none.")
        if status == 429:
            raise TooMany("The endpoint accepts no more invitations at the moment.")
        raise BadGateway(f"The endpoint answered {status}.")

    def _check_held(self, hyperty: str, caller: Listener) -> None:
        """Check that the session holds the address for answers. Raises BadMessage and Forbidden."""
        if hyperty and (len(hyperty) > addresses.MAX_HELD or addresses.fault(hyperty)):
            raise BadMessage(
                f"params.hyperty must be an address of at most {addresses.MAX_HELD} characters."
            )
        is_below = addresses.is_under(hyperty, caller.runtime_url) if hyperty else False
        holder: Any = self._table.owners.get(hyperty)
        if not is_below and (holder is None or holder.id != caller.id):
            raise Forbidden("params.hyperty must be an address that this session holds.")

    def _check_owned(self, resource: str, caller: Listener) -> None:
        """Check that the session may invite to an object. Raises Forbidden."""
        holder: Any = self._table.owners.get(resource)
        if holder is None or holder.id != caller.id:
            raise Forbidden("params.resource must be an object that this session holds.")


def _beside(endpoint: str, location: str) -> str:
    """A location as a URL, "" if it is none of the endpoint's own server."""
    try:
        url = urljoin(endpoint, location) if location else ""
        is_its_own = urlsplit(url)[:2] == urlsplit(endpoint)[:2]
    except ValueError:
        return ""
    return url if is_its_own and len(url) <= MAX_URL else ""


def _take(kind: str, subject: str, per_minute: int) -> None:
    """Count against the limit of a user. Raises TooMany."""
    if wait := HTTP_LIMITS.take(kind, subject, per_minute):
        raise TooMany(f"Too many invitations; the next one in {int(wait) + 1} seconds.")


def _name(request: Execute) -> str:
    """Of an invitation. Raises BadMessage."""
    name = request.text("invitation")
    if not name or len(name) > wire.MAX_NAME:
        raise BadMessage(f"{request.method} needs params.invitation, the name that was given.")
    return name


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
