"""Pipelines of the MessageBUS: what a message passes on its way out of the runtime, or in.

    handler(message, context)   context: {"direction": "in" or "out", "via": URL of the stub or ""}

A handler returns None or the message to let it pass, another message in its place, or
{"code": …, "desc": …} to refuse it: the sender is answered. It may be a coroutine function.

Rules
- No handler sees: what stays in this runtime, answers, reads, what a hyperty deletes, P2P
  signalling, and what runtimes and back-end components say to each other.
- P2P signalling is known by the segment directly behind a runtime's URL or a domain, in addresses
  of runtimes only; an address that merely contains the word is none.
- A handler that breaks lets nothing through, and neither does one that takes too long.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable

from msgnode.core import addresses

from .messages import Message, body_of

Handled = Message | None
Handler = Callable[[Message, dict[str, str]], Handled | Awaitable[Handled]]

HANDLER_SECONDS = 10.0

_UNHANDLED_TYPES = frozenset({"response", "read"})
_BACK_END = frozenset({"domain", "domain-idp", "global", "hyperty-runtime", "runtime"})


class Refused(Exception):
    """A handler stopped the message; `code` and the text go to its sender."""

    def __init__(self, text: str, code: int = 403) -> None:
        super().__init__(text)
        self.code = code


class Pipeline:
    """Handlers in the order in which they were added."""

    def __init__(self, direction: str) -> None:
        self._direction = direction
        self._handlers: list[Handler] = []

    def __bool__(self) -> bool:
        return bool(self._handlers)

    def use(self, handler: Handler) -> Callable[[], None]:
        """Append a handler; the result takes it out again."""
        self._handlers.append(handler)
        return lambda: self._handlers.remove(handler)

    def run(self, message: Message, via: str = "") -> Message | Awaitable[Message]:
        """Pass a message through all handlers: at once, unless one of them has to be awaited.

        Raises:
            Refused: by a handler, or because one broke (500).
        """
        handlers = tuple(self._handlers)
        context = {"direction": self._direction, "via": via}
        for index, handler in enumerate(handlers):
            handled = _handled(handler, message, context)
            if inspect.isawaitable(handled):
                return self._go_on(message, handled, handlers[index + 1 :], context)
            message = _passed(message, handled)
        return message

    async def _go_on(
        self,
        message: Message,
        awaited: Awaitable[Handled],
        rest: tuple[Handler, ...],
        context: dict[str, str],
    ) -> Message:
        try:
            async with asyncio.timeout(HANDLER_SECONDS):
                message = _passed(message, await awaited)
                for handler in rest:
                    handled = _handled(handler, message, context)
                    if inspect.isawaitable(handled):
                        handled = await handled
                    message = _passed(message, handled)
        except Refused:
            raise
        except TimeoutError:
            raise Refused("A check of the runtime did not end in time.", 503) from None
        except Exception as error:
            raise Refused("A check of the runtime failed.", 500) from error
        return message


def _handled(
    handler: Handler, message: Message, context: dict[str, str]
) -> Handled | Awaitable[Handled]:
    try:
        return handler(message, context)
    except Exception as error:
        raise Refused("A check of the runtime failed.", 500) from error


def _passed(message: Message, handled: Handled) -> Message:
    """The message that goes on. Raises Refused."""
    if handled is None:
        return message
    if "type" not in handled and "code" in handled:
        raise Refused(str(handled.get("desc", "Refused.")), int(handled["code"]))
    return handled


def is_exempt(message: Message) -> bool:
    """Whether a message between this runtime and another passes no handler."""
    if message["type"] in _UNHANDLED_TYPES:
        return True
    sender, to = addresses.parse(message["from"]), addresses.parse(message["to"])
    if message["type"] == "delete" and sender.scheme == "hyperty":
        return True
    if sender.scheme in _BACK_END and to.scheme in _BACK_END:
        return True
    body = body_of(message)
    named = (message["from"], message["to"], body.get("source"), body.get("subscriber"))
    return any(isinstance(text, str) and addresses.is_p2p_stub(text) for text in named)
