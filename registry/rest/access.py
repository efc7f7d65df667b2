"""Who may use the registry over HTTP, and how often.

ACCESS   open: anybody · read-open: anybody reads, accounts write · account: accounts only
An account needs the permission `registry.view_hyperty` to read, `registry.change_hyperty` to write.
A client without an account changes only entries that no session has registered. A service account
has these permissions by its scopes, and is bound to them even where anybody is allowed, so that a
key never allows more than it says. Each client (account, else source address) has a number of reads
and writes per minute, at all workers together.
"""

from __future__ import annotations

from typing import Any

from django.conf import settings
from rest_framework.permissions import SAFE_METHODS, BasePermission
from rest_framework.request import Request
from rest_framework.throttling import BaseThrottle

from msgnode.core.http_limits import HTTP_LIMITS
from msgnode.core.rates import source_of
from registry import api

READ_PERMISSION = "registry.view_hyperty"
WRITE_PERMISSION = "registry.change_hyperty"


class RegistryAccess(BasePermission):
    """The rule of the setting ACCESS."""

    def has_permission(self, request: Request, view: Any) -> bool:
        access = settings.REGISTRY["ACCESS"]
        is_read = request.method in SAFE_METHODS
        is_open = access == "open" or (access == "read-open" and is_read)
        is_program = request.auth is not None  # a key; accounts come with a password or cookie
        if is_open and not is_program:
            return True
        user = request.user
        if not user.is_authenticated:
            return False
        return bool(user.has_perm(READ_PERMISSION if is_read else WRITE_PERMISSION))


def claimant(request: Request) -> api.Claimant | None:
    """The client of a request; None for accounts and keys that may change every entry."""
    return None if request.user.has_perm(WRITE_PERMISSION) else api.PUBLIC


def who(request: Request) -> str:
    """The client whose requests are counted together: an account, else a source."""
    if request.user.is_authenticated:
        return f"account {request.user.pk}"
    return source_of(BaseThrottle().get_ident(request) or "")  # None over a Unix socket


class RegistryThrottle(BaseThrottle):
    """The rate CLIENT_REQUESTS_PER_MINUTE, of reads and of writes."""

    def __init__(self) -> None:
        self._wait = 0.0

    def allow_request(self, request: Request, view: Any) -> bool:
        kind = "READS" if request.method in SAFE_METHODS else "WRITES"
        self._wait = HTTP_LIMITS.take(self.counted_as(kind), who(request), self.rate(kind))
        return self._wait == 0

    def rate(self, kind: str) -> int:
        """The limit of READS or WRITES in a minute."""
        return int(settings.CLIENT_REQUESTS_PER_MINUTE)

    def counted_as(self, kind: str) -> str:
        """With which other requests it is counted."""
        return kind

    def wait(self) -> float:
        return self._wait
