"""The current actor, known to the audit wherever a row is changed, without being passed along.

A request of a logged-in account acts as that account; `manage.py` acts under its own name. What the
node does by itself (a worker's commit, a scheduled task) has no actor and is not an operator's
change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from django.http import HttpRequest
from django.http.response import HttpResponseBase

_actor: ContextVar[Callable[[], str]] = ContextVar("actor", default=lambda: "")


def actor() -> str:
    """The name of the actor, empty for the node itself."""
    return _actor.get()()


@contextmanager
def acting_as(name: str | Callable[[], str]) -> Iterator[None]:
    """Set the actor within the block."""
    token = _actor.set(name if callable(name) else lambda: name)
    try:
        yield
    finally:
        _actor.reset(token)


class ActorMiddleware:
    """A request acts as its user.

    The user is looked up when asked for, so that reading costs nothing; an API key names itself
    (see msgnode.identity.api_keys).
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        """Serve a request; what it changes is audited under the name of its user."""
        with acting_as(lambda: request.user.get_username() if hasattr(request, "user") else ""):
            return self._get_response(request)
