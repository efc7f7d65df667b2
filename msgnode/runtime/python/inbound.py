"""Checks every message that a stub posts before it reaches the bus.

| from                                | to                    | becomes of it                      |
| the stub's own URL                  | its own `/status`     | a status event                     |
| the stub's own URL                  | anything else         | ignored, counted                   |
| an address of this runtime          |                       | refused 403, counted               |
| the home domain, by a foreign stub  |                       | refused 403, counted               |
| any other                           | `/status` of the      | ignored unless the stub is home's  |
|                                     | runtime or of a stub  |                                    |
| any other                           | any other             | a message from outside             |
"""

from __future__ import annotations

from typing import Any

from msgnode.core import addresses

from .message_bus import MessageBus
from .messages import BadMessage, Message, answer_to, is_answerable, recipients


class InboundCheck:
    """What stubs may say, for one runtime."""

    def __init__(self, home: str, bus: MessageBus) -> None:
        self._home = home
        self._bus = bus

    def check(
        self, raw: Any, stub_url: str, is_home: bool
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
        if not is_home:
            if addresses.parse(sender).home == self._home:
                text = f"{sender} is an address of the domain {self._home}."
                return self._refuse(message, stub_url, text)
            if any(self._is_private(to) for to in named):
                return self._ignore(f"a message to {named[0]}", stub_url)
        return message, None

    def _is_private(self, to: str) -> bool:
        """Whether only the runtime itself and its stubs say anything to this address."""
        return to.endswith("/status") and (
            addresses.is_under(to, self._bus.runtime_url) or "/protostub/" in to
        )

    def _ignore(self, what: str, stub_url: str) -> tuple[None, None]:
        self._bus.report("stub.ignored", f"{stub_url} posted {what}")
        return None, None

    def _refuse(self, message: Message, stub_url: str, text: str) -> tuple[None, Message | None]:
        self._bus.report("stub.forged", f"{stub_url} posted as another: {text}")
        answer = answer_to(message, 403, text) if is_answerable(message) else None
        return None, answer
