"""Webhooks: the messages for a network server's session are posted to its URL.

One request is pending at a time, with up to 100 messages, to keep their order; 2xx confirms them. A
failed request is retried after 1, 2, 4 … 300 seconds, for a day. Requests are signed according to
Standard Webhooks: HMAC-SHA-256 over `<id>.<timestamp>.<body>`. A receiver drops what comes under a
known id, so the id is made of the body: the same at a repetition, wherever that comes from.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import secrets
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import msgspec

from msgnode.core.back_off import BackOff
from msgnode.core.errors import BadMessage, Forbidden, NodeError, TooMany
from msgnode.core.faults import FAULTS
from msgnode.net.http import Answer, HttpClient, NoAnswer, NotAllowed, url_fault
from msgnode.sessions.frame_connection import Closed
from msgnode.sessions.rules import CloseCode, State
from msgnode.sessions.session import LiveSession

from . import calls
from .devices import Device
from .downstream import Downstream, with_events
from .http import encode

SECRET_PREFIX = "whsec_"  # noqa: S105  (says what follows)
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 300.0
GIVES_UP = 24 * 3600.0
"""Seconds of failures until a webhook is removed."""
MAX_URL = 2_000
_QUIET = 60.0
_STOP_SECONDS = 2.0  # for what is still to be posted when the worker stops
_SECRET_BYTES = range(24, 65)


@dataclass(slots=True)
class WebhookCounters:
    """Since the start of the worker.

    `removed` counts webhooks that their servers did not ask for, `refused` messages in their
    answers that were not carried.
    """

    delivered: int = 0
    failed: int = 0
    removed: int = 0
    refused: int = 0


@dataclass(frozen=True, slots=True)
class WebhookTarget:
    """Where to post, and the key of the signatures."""

    url: str
    key: bytes


def read_target(body: Any, http: HttpClient) -> tuple[WebhookTarget, str]:
    """The target that a request names, and its secret as text. Raises BadMessage and Forbidden."""
    url = body.get("url") if isinstance(body, dict) else None
    if not isinstance(url, str) or not url:
        raise BadMessage("`url` must say where to post.")
    if len(url) > MAX_URL:
        raise BadMessage(f"`url` may have {MAX_URL:,} characters.")
    if fault := url_fault(url, http.networks):
        raise Forbidden(f"The URL {fault}.")
    secret = str(body.get("secret") or _new_secret())
    try:
        key = base64.b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not secret.startswith(SECRET_PREFIX) or len(key) not in _SECRET_BYTES:
        raise BadMessage("`secret` is whsec_ and 24 to 64 bytes in base64, or left out.")
    return WebhookTarget(url, key), secret


def _new_secret() -> str:
    return SECRET_PREFIX + base64.b64encode(secrets.token_bytes(32)).decode()


def signed(target: WebhookTarget, id_: str, moment: int, body: bytes) -> dict[str, str]:
    """The headers that a receiver checks."""
    text = f"{id_}.{moment}.".encode() + body
    signature = base64.b64encode(hmac.new(target.key, text, hashlib.sha256).digest()).decode()
    return {
        "webhook-id": id_,
        "webhook-timestamp": str(moment),
        "webhook-signature": f"v1,{signature}",
    }


async def post(http: HttpClient, target: WebhookTarget, id_: str, body: bytes) -> Answer:
    """Post a signed body. Raises NotAllowed and NoAnswer."""
    return await http.post(target.url, body, signed(target, id_, int(time.time()), body))


async def challenge(http: HttpClient, target: WebhookTarget) -> None:
    """Have a server show that it wants to be posted to.

    Raises:
        Forbidden: the URL leads where the node does not go.
        BadMessage: the server did not give the challenge back.
    """
    word = secrets.token_urlsafe(24)
    body = encode({"type": "challenge", "challenge": word})
    try:
        answer = await post(http, target, f"challenge-{uuid.uuid4().hex}", body)
        told = msgspec.json.decode(answer.body) if answer.status == 200 else None
    except NotAllowed as error:
        raise Forbidden(str(error)) from None
    except NoAnswer as error:
        raise BadMessage(f"The challenge was not answered: {error}") from None
    except (msgspec.DecodeError, RecursionError):
        told = None
    if not isinstance(told, dict) or told.get("challenge") != word:
        raise BadMessage('The server must answer the challenge with 200 and {"challenge": …}.')


class Webhook:
    """One webhook of a device. `state` is live, or why it is not."""

    def __init__(
        self,
        device: Device,
        target: WebhookTarget,
        http: HttpClient,
        counters: WebhookCounters,
        is_held: Callable[[], bool],
    ) -> None:
        self.device = device
        self.target = target
        self.state = "live"
        self.has_posted = asyncio.Event()  # set while there is nothing to post
        self._http = http
        self._counters = counters
        self._is_held = is_held

    async def run(self) -> Closed | None:
        """Post messages until the session goes, another reader comes, or the server wants no more.

        Returns:
            Why the session's connection ended; None if the server wants no more.
        """
        device = self.device
        with Downstream(device) as downstream:
            device.buffer.rewind()
            while True:
                if downstream.is_over:
                    await self._say_closed(downstream)
                    return downstream.closed
                if not downstream.has_news:
                    self.has_posted.set()
                    await downstream.wait(_QUIET)
                    self.has_posted.clear()
                    continue
                gap = downstream.take_gap()
                events = downstream.take()
                if not events and not gap:
                    continue
                sent = device.buffer.last_sent
                body = with_events({"next": str(sent), "gap": gap}, events)
                if not await self._deliver(downstream, body):
                    return downstream.closed
                downstream.confirm(sent)

    async def _deliver(self, downstream: Downstream, body: bytes) -> bool:
        """Post until it is taken; False if it will not be."""
        id_ = f"{self.device.session.id}-{hashlib.sha256(body).hexdigest()[:32]}"
        back_off, began = BackOff(FIRST_PAUSE, LONGEST_PAUSE), time.monotonic()
        while True:
            if not self._is_held():  # the session is another worker's, or is about to be
                await asyncio.sleep(FIRST_PAUSE)
                if downstream.closed is not None:
                    return False
                continue
            try:
                answer = await post(self._http, self.target, id_, body)
            except (NotAllowed, NoAnswer) as error:
                self.state = str(error)
            else:
                if 200 <= answer.status < 300:
                    self.state = "live"
                    self._counters.delivered += 1
                    await self._carry(answer.body)
                    return True
                self.state = f"It answered {answer.status}."
                if answer.status == 410:
                    self._counters.removed += 1
                    return False
            self._counters.failed += 1
            if time.monotonic() - began > GIVES_UP:
                self._counters.removed += 1
                return False
            until = time.monotonic() + back_off.failed()
            while (left := until - time.monotonic()) > 0:
                if downstream.closed is not None:
                    return False
                downstream.news.clear()
                try:
                    async with asyncio.timeout(left):
                        await downstream.news.wait()
                except TimeoutError:
                    break

    async def _carry(self, body: bytes) -> None:
        """Carry the messages in the server's response as its own."""
        if not body.strip():
            return
        try:
            told = msgspec.json.decode(body)
        except (msgspec.DecodeError, RecursionError):
            return  # an "OK" of some framework
        listed = told.get("messages") if isinstance(told, dict) else told
        if not isinstance(listed, list) or not listed:
            return
        try:
            told = await calls.post(self.device, encode(listed), 0.0, expects=False)
        except NodeError as error:
            self._note_refused(len(listed), error.description)
            return
        refused = [each for each in msgspec.json.decode(told.body) if each["code"] >= 400]
        if refused:
            self._note_refused(len(refused), refused[0].get("detail", "its session has ended"))

    def _note_refused(self, number: int, why: str) -> None:
        self._counters.refused += number
        self.state = f"Of its last answer {number} messages were not carried: {why}"

    def goes_on(self, closed: Closed) -> bool:
        """Whether it continues with its session, here or elsewhere, after this end."""
        session = self.device.session
        is_kept = closed.code in (CloseCode.TOO_SLOW, CloseCode.GOING_AWAY)
        return session.state is State.MOVED or (is_kept and not session.is_closed)

    async def _say_closed(self, downstream: Downstream) -> None:
        closed = downstream.closed
        if closed is None or self.goes_on(closed):
            return
        said = {"code": closed.code, "reason": closed.reason}
        body = encode({"next": "", "gap": False, "messages": [], "close": said})
        try:
            await post(self._http, self.target, f"close-{uuid.uuid4().hex}", body)
        except (NotAllowed, NoAnswer):
            self._counters.failed += 1


class Webhooks:
    """The webhooks of this worker: at most one per session.

    `on_lost` callbacks are called for sessions whose webhook must be set again here.

    Args:
        http: the HTTP client.
        is_held: whether the worker's lease is held; without it nothing is posted.
        forget: called when a session no longer has this webhook.
        at_most: most webhooks in all.
    """

    def __init__(
        self,
        http: HttpClient,
        is_held: Callable[[], bool],
        forget: Callable[[str], object],
        at_most: int = 10_000,
    ) -> None:
        self.counters = WebhookCounters()
        self.http = http
        self.on_lost: list[Callable[[LiveSession], None]] = []
        self._is_held = is_held
        self._forget = forget
        self._at_most = at_most
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._webhooks: dict[str, Webhook] = {}

    def __len__(self) -> int:
        return len(self._tasks)

    def of(self, device: Device) -> Webhook | None:
        """The webhook of a device."""
        return self._webhooks.get(device.session.id)

    def check_room(self, device: Device) -> None:
        """Raises TooMany where there is no room."""
        if device.session.id not in self._tasks and len(self._tasks) >= self._at_most:
            raise TooMany("This worker of the node has reached its limit of webhooks.")

    def begin(self, device: Device, target: WebhookTarget) -> None:
        """Post to this target from now on. Raises TooMany where there is no room."""
        id_ = device.session.id
        self.check_room(device)
        self.end(device)
        webhook = Webhook(device, target, self.http, self.counters, self._is_held)
        task = asyncio.create_task(self._run(webhook))
        self._tasks[id_], self._webhooks[id_] = task, webhook

        def ended(_: asyncio.Task[None]) -> None:
            if self._tasks.get(id_) is task:
                del self._tasks[id_], self._webhooks[id_]

        task.add_done_callback(ended)

    def end(self, device: Device) -> bool:
        """Post nothing more; whether there was a webhook."""
        task = self._tasks.pop(device.session.id, None)
        self._webhooks.pop(device.session.id, None)
        if task is not None:
            task.cancel()
        return task is not None

    async def stop(self) -> None:
        """Stop at the end of the worker, after the last messages were posted."""
        tasks = list(self._tasks.values())
        with suppress(TimeoutError):
            async with asyncio.timeout(_STOP_SECONDS):
                await asyncio.sleep(0)  # one that was just given something notices it
                for webhook in tuple(self._webhooks.values()):
                    await webhook.has_posted.wait()
        for task in tasks:
            task.cancel()
        await self.http.close()

    async def _run(self, webhook: Webhook) -> None:
        session = webhook.device.session
        with FAULTS.kept_to("webhook"):
            try:
                closed = await webhook.run()
            finally:
                webhook.has_posted.set()
            if closed is None or not webhook.goes_on(closed):
                self._forget(session.id)
                return
        if not session.has_ended:
            for on_lost in self.on_lost:
                on_lost(session)
