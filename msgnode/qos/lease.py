"""Which worker supervises: the one that has the claim `qos`, for as long as its own lease runs."""

from __future__ import annotations

from functools import partial

from msgnode.storage import claims
from msgnode.storage.claims import NotHolder

__all__ = ["NAME", "NotHolder", "check", "give_up", "hold"]

NAME = "qos"

hold = partial(claims.take, NAME)
check = partial(claims.check, NAME)
give_up = partial(claims.release, NAME)
