"""Wakes a sleeping device by a push message without content.

A push service (RFC 8030) takes a message for one browser or app at the URL of its subscription; the
node identifies itself by a signed token (VAPID, RFC 8292). Messages are never sent to it.

A device that reads nothing gets one wake-up when a message begins to wait; the next one after it
has come or fetched and more has come, at the earliest 30 seconds later. It may do so, and get more,
between two looks, and before the push service has answered.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from joserfc import jwt
from joserfc.jwk import ECKey

from msgnode.bus.periodic import every
from msgnode.core import base64url
from msgnode.core.errors import BadMessage, Unavailable
from msgnode.net.http import HttpClient, Network, NoAnswer, NotAllowed, is_allowed, url_fault
from msgnode.sessions.session import LiveSession

from .devices import Device, Devices

ALARM = "push-refused"
LEAST_SECONDS = 30.0
"""Between two wake-ups of a device."""
TOKEN_SECONDS = 12 * 3600
_LOOKS_EVERY = 1.0
_HTTPS = 443
_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
AT_ONCE = 32
"""Most concurrent wake-ups at one of the `hosts`, so that a frozen one delays only its own."""


class PushKey:
    """The key that push services know the node by: the same at every worker, made of SECRET_KEY."""

    def __init__(self, secret: str, contact: str) -> None:
        derive = HKDF(hashes.SHA256(), 48, salt=None, info=b"messaging-node web push")
        number = int.from_bytes(derive.derive(secret.encode()), "big") % (_ORDER - 1) + 1
        key = ec.derive_private_key(number, ec.SECP256R1())
        pem = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        self._signer = ECKey.import_key(pem)
        self._contact = contact
        form = serialization.PublicFormat.UncompressedPoint
        point = key.public_key().public_bytes(serialization.Encoding.X962, form)
        self.public = base64url.encode(point)

    def authorization(self, endpoint: str, now: float) -> str:
        """The header with which the node identifies itself to an endpoint."""
        parts = urlsplit(endpoint)
        claims = {
            "aud": f"{parts.scheme}://{parts.netloc}",
            "exp": int(now) + TOKEN_SECONDS,
            "sub": self._contact,
        }
        token = jwt.encode({"typ": "JWT", "alg": "ES256"}, claims, self._signer, ["ES256"])
        return f"vapid t={token}, k={self.public}"


def read_endpoint(body: Any, hosts: Sequence[str], http: HttpClient) -> str:
    """The endpoint of a subscription, as browsers write it. Raises BadMessage."""
    endpoint = body.get("endpoint") if isinstance(body, dict) else None
    if not isinstance(endpoint, str) or not endpoint:
        raise BadMessage("`endpoint` must be that of a push subscription.")
    if fault := url_fault(endpoint, http.networks):
        raise BadMessage(f"The endpoint {fault}.")
    parts = urlsplit(endpoint)
    host = parts.hostname or ""
    if parts.scheme != "https" and not is_allowed(host, http.networks, is_tls=False):
        raise BadMessage("The endpoint must begin with https://.")
    if not _service(endpoint, hosts, http.networks):
        port = f":{parts.port}" if parts.port not in (None, _HTTPS) else ""
        raise BadMessage(f"{host}{port} is none of the push services of this node (PUSH_HOSTS).")
    return endpoint


def _service(endpoint: str, hosts: Sequence[str], networks: Sequence[Network]) -> str:
    """Which of the allowed hosts an endpoint is at, "" if at none.

    The port is that of HTTPS, or the one that the allowed host names; at an IP address in the
    operator's own networks it is any.
    """
    parts = urlsplit(endpoint)
    host, port = (parts.hostname or "").lower(), parts.port or _HTTPS
    is_any = is_allowed(host, networks, is_tls=False)
    for each in hosts:
        name, _, named = each.lower().partition(":")
        fits = host.endswith(name[1:]) if name.startswith("*.") else host == name
        if fits and (is_any or str(port) == (named or str(_HTTPS))):
            return each
    return ""


@dataclass(slots=True)
class _Subscription:
    session: LiveSession
    endpoint: str
    service: str  # which of the hosts
    woken_in: tuple[str, int] | None = None  # who had read last, and how often it had come back
    woken_at: float = 0.0
    is_busy: bool = False


@dataclass(slots=True)
class PushCounters:
    """Since the start of the worker."""

    sent: int = 0
    failed: int = 0


class PushWakeups:
    """One instance per worker; a subscription is at the worker that has its session.

    Args:
        key: of the node.
        hosts: of push services.
        http: posts to them.
        devices: of this worker.
        seconds: that a push service may keep a wake-up.
        raise_alarm: of the node.
        forget: the push service of a session knows its subscription no longer.
    """

    def __init__(
        self,
        key: PushKey,
        hosts: Sequence[str],
        http: HttpClient,
        devices: Devices,
        seconds: float,
        raise_alarm: Callable[[str, str, str], None],
        forget: Callable[[str], object],
    ) -> None:
        self.key = key
        self.counters = PushCounters()
        self._hosts = hosts
        self._http = http
        self._devices = devices
        self._seconds = seconds
        self._raise_alarm = raise_alarm
        self._forget = forget
        self._subscriptions: dict[str, _Subscription] = {}
        self._sending: set[asyncio.Task[None]] = set()
        self._under_way: Counter[str] = Counter()  # by service

    def __len__(self) -> int:
        return len(self._subscriptions)

    def read(self, body: Any) -> str:
        """The endpoint of a subscription. Raises BadMessage."""
        return read_endpoint(body, self._hosts, self._http)

    def subscribe(self, session: LiveSession, endpoint: str) -> None:
        """Wake the device of this session from now on."""
        service = _service(endpoint, self._hosts, self._http.networks)
        self._subscriptions[session.id] = _Subscription(session, endpoint, service)

    def unsubscribe(self, device: Device) -> None:
        """Wake it no longer."""
        self._subscriptions.pop(device.session.id, None)

    async def run(self) -> None:
        """Runs until cancelled."""
        await every(_LOOKS_EVERY, lambda: self.look(time.monotonic()), "push")

    async def close(self) -> None:
        """The worker ends."""
        for task in tuple(self._sending):
            task.cancel()
        await self._http.close()

    def look(self, now: float) -> None:
        """Wake the devices that have messages waiting and do not read."""
        for id_, each in tuple(self._subscriptions.items()):
            if each.session.has_ended:
                del self._subscriptions[id_]
                if each.session.is_closed:
                    self._forget(id_)
            elif (
                self._waits(each.session)
                and each.woken_in != self._reads(each.session)
                and not each.is_busy
                and now - each.woken_at >= LEAST_SECONDS
                and self._under_way[each.service] < AT_ONCE
            ):
                each.is_busy, each.woken_at = True, now
                self._under_way[each.service] += 1
                task = asyncio.create_task(self._wake(id_, each))
                self._sending.add(task)
                task.add_done_callback(self._sending.discard)

    def _waits(self, session: LiveSession) -> bool:
        """Whether something waits for a device that reads nothing."""
        device = self._devices.of_session(session.id)
        if device is not None and device.is_here:
            return device.stop_reading is None and device.buffer.has_unsent
        return not session.is_connected and session.outbox.waiting_bytes > 0

    def _reads(self, session: LiveSession) -> tuple[str, int]:
        device = self._devices.of_session(session.id)
        return device.reader if device is not None else "", session.resumptions

    async def _wake(self, id_: str, to: _Subscription) -> None:
        woken_in = self._reads(to.session)
        try:
            status = await self._post(id_, to.endpoint)
        except (NotAllowed, NoAnswer, Unavailable):
            status = 0
        finally:
            to.is_busy = False
            self._under_way[to.service] -= 1
        if 200 <= status < 300:
            to.woken_in = woken_in
            self.counters.sent += 1
            return
        self.counters.failed += 1
        if status in (404, 410):
            if self._subscriptions.get(id_) is to:
                del self._subscriptions[id_]
                self._forget(id_)
        elif status in (400, 401, 403):
            host = urlsplit(to.endpoint).hostname or ""
            text = f"The push service {host} refuses the node's wake-ups: it answered {status}."
            self._raise_alarm(ALARM, host, text)

    async def _post(self, id_: str, endpoint: str) -> int:
        headers = {
            "TTL": str(int(self._seconds)),
            "Urgency": "high",
            "Topic": base64url.encode(hashlib.sha256(id_.encode()).digest()[:24]),
            "Authorization": self.key.authorization(endpoint, time.time()),
        }
        return (await self._http.post(endpoint, b"", headers)).status
