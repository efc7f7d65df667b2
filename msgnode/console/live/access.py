"""Who may watch: asked when a console connects, and again every few seconds while it stays.

The cookie is the console's own, and the page's origin the node's. A log-out ends a watcher at once
where it is done, and everywhere else when it is asked for again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from http.cookies import CookieError, SimpleCookie
from importlib import import_module
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.contrib.auth import get_user
from django.contrib.auth.signals import user_logged_out
from django.http import HttpRequest

SEES = "msgnode.view_session"
"""The right that the pages ask for whose figures are told."""


def session_key(scope: dict[str, Any]) -> str:
    """The key of the browser's log-in, "" if it says none."""
    try:
        cookies = SimpleCookie(_header(scope, b"cookie"))
    except CookieError:
        return ""
    morsel = cookies.get(settings.SESSION_COOKIE_NAME)
    return morsel.value if morsel is not None else ""


def is_own_origin(scope: dict[str, Any]) -> bool:
    """Whether a page of this node opens the socket; one without an origin is none."""
    origin = _header(scope, b"origin")
    if not origin:
        return False
    parts = urlsplit(origin)
    if parts.scheme in ("http", "https") and parts.netloc == _header(scope, b"host"):
        return True
    own = urlsplit(settings.PUBLIC_URL)
    return (parts.scheme, parts.netloc) == (own.scheme, own.netloc)


def watchers_allowed(keys: Iterable[str]) -> set[str]:
    """The log-ins of these whose user is still logged in and may still watch. Blocks.

    Raises:
        DatabaseError: nobody can tell.
    """
    engine = import_module(settings.SESSION_ENGINE)
    allowed = set()
    for key in set(keys):
        request = HttpRequest()
        request.session = engine.SessionStore(key)
        user = get_user(request)
        if user.is_authenticated and user.is_active and user.is_staff and user.has_perm(SEES):
            allowed.add(key)
    return allowed


def on_log_out(end: Callable[[str], None]) -> Callable[..., None]:
    """Have `end` called with the key of each log-in that is ended in this process, in its thread.

    Returns:
        the receiver, which lives as long as somebody holds it.
    """

    def ended(sender: Any, request: HttpRequest | None, **_: Any) -> None:
        key = request.session.session_key if request is not None else None
        if key:
            end(key)

    user_logged_out.connect(ended, weak=True)
    return ended


def _header(scope: dict[str, Any], name: bytes) -> str:
    found = next((value for key, value in scope["headers"] if key.lower() == name), b"")
    return str(found.decode("latin1"))
