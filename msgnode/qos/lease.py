"""The supervisor's claim: the worker with the claim `qos` supervises, while its own lease runs."""

from __future__ import annotations

from functools import partial

from msgnode.storage import claims
from msgnode.storage.claims import NotHolder

__all__ = ["NAME", "NotHolder", "check", "give_up", "hold"]

NAME = "qos"

hold = partial(claims.take, NAME)
check = partial(claims.check, NAME)
give_up = partial(claims.release, NAME)
