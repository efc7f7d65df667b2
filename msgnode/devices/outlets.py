"""The outlets of a device, which push messages to it: a webhook, or wake-ups by a push service."""

from __future__ import annotations

from collections.abc import Callable

from msgnode.core.errors import Forbidden, NotFound
from msgnode.core.identity import Identity

from .devices import Device
from .http import Exchange, encode
from .outlet_store import PUSH, WEBHOOK, OutletStore
from .push import PushWakeups
from .session_router import key_of
from .webhook import Webhooks, challenge, read_target

WEBHOOK_SECONDS = 10.0
"""Seconds that a server has to answer."""


class Outlets:
    """One instance per worker; `webhooks` and `wakeups` are None if they are disabled.

    `may_have_webhooks` says whether sessions of an identity may have webhooks; `store` stores what
    is needed to continue at another worker.
    """

    def __init__(
        self,
        max_body: int,
        store: OutletStore,
        webhooks: Webhooks | None = None,
        may_have_webhooks: Callable[[Identity | None], bool] = lambda _: False,
        wakeups: PushWakeups | None = None,
    ) -> None:
        self._max_body = max_body
        self._store = store
        self._webhooks = webhooks
        self._may_have_webhooks = may_have_webhooks
        self._wakeups = wakeups

    async def webhook(self, exchange: Exchange, device: Device) -> None:
        """Set, read or remove the webhook of a session."""
        webhooks = self._webhooks
        if webhooks is None:
            raise NotFound("Webhooks are switched off at this node (DEVICE_WEBHOOKS).")
        if exchange.method == "GET":
            known = webhooks.of(device)
            if known is None:
                raise NotFound("The session has no webhook at this worker.")
            await exchange.answer(200, encode({"url": known.target.url, "state": known.state}))
        elif exchange.method == "DELETE":
            await self._store.forget(device.session.id, WEBHOOK)
            webhooks.end(device)
            await exchange.answer(204)
        else:
            await self._set_webhook(exchange, device, webhooks)

    async def push(self, exchange: Exchange, device: Device) -> None:
        """Set or remove the push subscription by which the device is woken."""
        wakeups = self._push()
        if exchange.method == "DELETE":
            await self._store.forget(device.session.id, PUSH)
            wakeups.unsubscribe(device)
            await exchange.answer(204)
            return
        endpoint = wakeups.read(await exchange.json(self._max_body))
        await self._store.keep_push(device.session.id, endpoint)
        wakeups.subscribe(device.session, endpoint)
        await exchange.answer(201, encode({"key": wakeups.key.public}))

    async def push_key(self, exchange: Exchange) -> None:
        """The key that a browser subscribes with (`applicationServerKey`)."""
        await exchange.answer(200, encode({"key": self._push().key.public}))

    async def _set_webhook(self, exchange: Exchange, device: Device, webhooks: Webhooks) -> None:
        if not self._may_have_webhooks(device.session.speaker.identity):
            raise Forbidden("A webhook is for sessions of an API key with device:many.")
        asked = await exchange.json(self._max_body)
        target, secret = read_target(asked, webhooks.http)
        webhooks.check_room(device)
        await challenge(webhooks.http, target)
        key = key_of(exchange)
        await self._store.keep_webhook(device.session.id, target, key.token)
        webhooks.begin(device, target)
        await exchange.answer(200, encode({"url": target.url, "secret": secret}))

    def _push(self) -> PushWakeups:
        if self._wakeups is None:
            raise NotFound("Wake-ups by push are switched off at this node (PUSH_CONTACT).")
        return self._wakeups
