"""Who may use the registry over HTTP, and how often.

ACCESS   open: anybody · read-open: anybody reads, accounts write · account: accounts only
An account reads with the permission `registry.view_hyperty`, writes with `registry.change_hyperty`.
A service account has them by its scopes, and is held to them where anybody may come in, too, so
that a key is never good for more than it says. Each client (account, or else
source address) has a bucket of requests for reads and one for writes that refills evenly. A bucket
belongs to one worker: with n workers a client may reach n times the rate.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from typing import Any

from django.conf import settings
from rest_framework.permissions import SAFE_METHODS, BasePermission
from rest_framework.request import Request
from rest_framework.throttling import BaseThrottle

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


class Buckets:
    """Token buckets by client. Old clients are forgotten when there are too many."""

    def __init__(self, capacity: int = 10_000) -> None:
        self._levels: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self._capacity = capacity
        self._lock = threading.Lock()

    def wait(self, client: str, per_minute: int, now: float) -> float:
        """0 if one request is granted, else the seconds until the next would be."""
        rate = max(per_minute, 1) / 60
        with self._lock:
            level, since = self._levels.pop(client, (float(per_minute), now))
            level = min(float(per_minute), level + (now - since) * rate)
            granted = level >= 1
            self._levels[client] = (level - granted, now)
            if len(self._levels) > self._capacity:
                self._levels.popitem(last=False)
        return 0.0 if granted else (1 - level) / rate


_buckets = Buckets()


class RegistryThrottle(BaseThrottle):
    """The rates READS_PER_MINUTE and WRITES_PER_MINUTE."""

    def __init__(self) -> None:
        self._wait = 0.0

    def allow_request(self, request: Request, view: Any) -> bool:
        kind = "READS" if request.method in SAFE_METHODS else "WRITES"
        who = (
            f"account {request.user.pk}" if request.user.is_authenticated
            else self.get_ident(request)
        )  # fmt: skip
        rate = int(settings.REGISTRY[f"{kind}_PER_MINUTE"])
        self._wait = _buckets.wait(f"{kind} {who}", rate, time.monotonic())
        return self._wait == 0

    def wait(self) -> float:
        return self._wait
