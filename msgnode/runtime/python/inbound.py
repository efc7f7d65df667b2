"""Checks every message that a stub posts before it reaches the bus.

| from                       | to                                | becomes of it        |
| the stub's own URL         | its own `/status`                 | a status event       |
| the stub's own URL         | anything else                     | ignored, counted     |
| an address of this runtime |                                   | refused 403, counted |

What the home domain's stub brings beyond that comes from outside: its node has judged it. Of
another domain's stub:

| from                       | to                                | becomes of it        |
| anybody                    | `/status` of the runtime, a stub  | ignored, counted     |
| the home domain            |                                   | refused 403, counted |
| reached through this stub  |                                   | comes from outside   |
| anybody else               | subscribed through this stub      | comes from outside   |
| anybody else               | anything else                     | refused 403, counted |

An answer has to be one to what went out through that stub as well, else it is counted as one that
nobody takes; and the marks of a node are taken off.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from msgnode.core import addresses

from .destinations import NoDestination, destination
from .message_bus import MessageBus
from .messages import (
    BadMessage,
    Message,
    answer_to,
    is_answerable,
    recipients,
    without_marks,
)
from .settings import Settings
from .stub_list import StubEntry


class InboundCheck:
    """What stubs may say, for one runtime."""

    def __init__(self, settings: Settings, bus: MessageBus) -> None:
        self._home = settings.domain
        # How messages to a domain leave does not say whose a stub is.
        self._settings = dataclasses.replace(settings, routing={})
        self._bus = bus

    def check(
        self, raw: Any, stub_url: str, entry: StubEntry
    ) -> tuple[Message | None, Message | None]:
        """The message to go on with, and an answer for the stub that posted it; or None each."""
        if not isinstance(raw, dict):
            return self._ignore("a line that is no message", stub_url)
        try:
            message = dict(raw)
            named = recipients(message)
        except BadMessage as error:
            return self._ignore(str(error), stub_url)
        sender = message["from"]
        if sender == stub_url:
            if named == [f"{stub_url}/status"]:
                message["to"] = named[0]
                return message, None
            return self._ignore(f"a message of its own to {named[0]}", stub_url)
        if self._bus.is_local(sender):
            return self._refuse(message, stub_url, f"{sender} is an address of this runtime.")
        if entry.key == self._home:
            return message, None
        return self._check_foreign(message, named, stub_url, entry)

    def _check_foreign(
        self, message: Message, named: list[str], stub_url: str, entry: StubEntry
    ) -> tuple[Message | None, Message | None]:
        sender = message["from"]
        if any(is_private_status(to, self._bus.runtime_url) for to in named):
            return self._ignore(f"a message to {named[0]}", stub_url)
        if addresses.parse(sender).home == self._home:
            text = f"{sender} is an address of the domain {self._home}."
            return self._refuse(message, stub_url, text)
        if self._key_of(sender) != entry.key and not all(to in entry.held for to in named):
            text = f"{sender} is not reached through the stub of {entry.domain}."
            return self._refuse(message, stub_url, text)
        if message["type"] == "response" and not self._bus.is_expected(message, stub_url):
            self._bus.unclaimed(message)
            return None, None
        return without_marks(message), None

    def _key_of(self, sender: str) -> str:
        """The key of the stub that reaches a sender, "" if none does."""
        try:
            return destination(sender, self._settings).key
        except NoDestination:
            return ""

    def _ignore(self, what: str, stub_url: str) -> tuple[None, None]:
        self._bus.report("stub.ignored", f"{stub_url} posted {what}")
        return None, None

    def _refuse(self, message: Message, stub_url: str, text: str) -> tuple[None, Message | None]:
        self._bus.report("stub.forged", f"{stub_url} posted as another: {text}")
        answer = answer_to(message, 403, text) if is_answerable(message) else None
        return None, answer


def is_private_status(address: str, runtime_url: str) -> bool:
    """Whether only the runtime itself and its stubs say anything to this address."""
    twin = addresses.runtime_twin(address)
    return address.endswith("/status") and (
        any(addresses.is_under(each, runtime_url) for each in (address, twin))
        or "/protostub/" in address
        or addresses.is_p2p_stub(address)
    )
