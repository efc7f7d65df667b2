"""Who asks a connector: for what, behind its port, is shared among those who ask."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable
from contextvars import ContextVar

from msgnode.bus.ports import Body, Listener
from msgnode.core.rates import source_of

ASKING: ContextVar[Listener | None] = ContextVar("asking", default=None)
"""The session whose request is being answered; None for what the node does of its own accord."""


def source_of_caller(caller: Listener) -> str:
    """Where a request comes from: a source address, or the node of a peer."""
    speaker = caller.speaker
    return speaker.peer or source_of(speaker.remote_address or speaker.runtime_url)


def asked_by(caller: Listener, answer: Body | Awaitable[Body]) -> Body | Awaitable[Body]:
    """An answer; if it is a coroutine, one that runs with the caller as ASKING.

    A future, as the embedded registry's, is worked out elsewhere already, and stays as it is.
    """
    return _asked(caller, answer) if inspect.iscoroutine(answer) else answer


async def _asked(caller: Listener, answer: Awaitable[Body]) -> Body:
    ASKING.set(caller)
    return await answer
