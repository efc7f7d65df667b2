"""Checks of what is set for the node itself (E001 to E009, E020, E024, W001, W004)."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from django.conf import settings

from msgnode.bus.ports import LEAST_LEASE
from msgnode.sessions.session import READER_PATIENCE

RESUME_WORDS = ("always", "when-idle", "with-proof")
MODES = ("anonymous", "identified", "strict")
MODES_OF_DOMAINS = (*MODES, "refused")
MAY_BE_ZERO = frozenset(
    {
        *("GRACE_PERIOD", "DRAIN_SECONDS", "DRAIN_STAGGER", "CLOSED_SESSION_DAYS"),
    }
)

_LABEL = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
_DOMAIN = re.compile(rf"(?=.{{1,253}}$){_LABEL}(\.{_LABEL})*")

# A pair means: the first must be less than the second, or one frame evicts its receiver.
_ORDER = (("MAX_FRAME_BYTES", "OUTBOX_BYTES"), ("MAX_FRAME_BYTES", "LINK_BYTES"))


def faults() -> Iterator[tuple[str, str, str]]:
    """Where it keeps its data, what is a word of a few, and its limits."""
    yield from _data_dir()
    yield from (("W004", line, "") for line in settings.REMOVED_SETTINGS)
    yield from _words()
    yield from _limits()


def _nearest_existing(path: Path) -> Path:
    while not path.exists() and path != path.parent:
        path = path.parent
    return path


def _data_dir() -> Iterator[tuple[str, str, str]]:
    place = _nearest_existing(settings.DATA_DIR)
    if not place.is_dir() or not os.access(place, os.W_OK | os.X_OK):
        text = f"DATA_DIR {settings.DATA_DIR} cannot be written."
        yield "E001", text, "Name a directory that belongs to the user who runs the node."


def _words() -> Iterator[tuple[str, str, str]]:
    if not _DOMAIN.fullmatch(settings.DOMAIN):
        text = f"DOMAIN {settings.DOMAIN!r} is not a domain name."
        yield "E002", text, "A host name without scheme, port or path, such as example.org."
    if settings.RESUME not in RESUME_WORDS:
        yield "E003", f"RESUME is {settings.RESUME!r}.", f"It is one of {', '.join(RESUME_WORDS)}."
    for named, words in (
        *((each, MODES_OF_DOMAINS) for each in settings.ADMISSION_DOMAINS.values()),
        (settings.ADMISSION, MODES),
    ):
        if named not in words:
            text = f"ADMISSION or ADMISSION_DOMAINS says {named!r}."
            yield "E020", text, f"It is one of {', '.join(words)}."
    if settings.ADMISSION_DOMAINS.get(settings.DOMAIN) == MODES_OF_DOMAINS[-1]:
        text = "ADMISSION_DOMAINS refuses the node's own domain."
        yield "E020", text, "The setting is for visitors: name their domains, or * for all others."
    if not 0 < settings.PORT < 65536:
        yield "E007", f"PORT is {settings.PORT}.", "It is 1 to 65535."
    if not 0 < settings.WORKERS <= 256:
        yield "E009", f"WORKERS is {settings.WORKERS}.", "It is 1 to 256."
    if "+cluster://" in settings.CELERY_BROKER_URL:
        text = "Celery cannot keep its tasks in the Redis Cluster of REDIS_URL."
        yield "E024", text, "Set CELERY_BROKER_URL to a single Redis server, or one with Sentinels."


def _limits() -> Iterator[tuple[str, str, str]]:
    limits = settings.NODE
    identity = settings.IDENTITY
    numbers = {name: n for name, n in identity.items() if type(n) in (int, float)}
    for name, value in {**limits, **{f"IDENTITY_{n}": v for n, v in numbers.items()}}.items():
        least = "zero or more" if name in MAY_BE_ZERO else "more than zero"
        if value < 0 or (value == 0 and name not in MAY_BE_ZERO) or value != value:
            yield "E004", f"{name} is {value}.", f"It is {least}."
    if 0 < limits["WORKER_TIMEOUT"] < LEAST_LEASE:
        text = f"WORKER_TIMEOUT is {limits['WORKER_TIMEOUT']}."
        hint = (
            f"It is {LEAST_LEASE:g} seconds or more: a worker renews its lease every third "
            "of it, and a busy database may take a second for that."
        )
        yield "E004", text, hint
    for name, value in settings.VISITORS.items():
        if not value >= 0:
            text = f"A limit of visitors, {name}, is {value}."
            yield "E004", text, "It is zero or more."
    for low, high in _ORDER:
        if limits[low] >= limits[high]:
            text = f"{low} ({limits[low]}) is not less than {high} ({limits[high]})."
            yield "E005", text, "A frame of the largest size must fit into the queue."
    if limits["PING_TIMEOUT"] <= READER_PATIENCE:
        text = (
            f"PING_TIMEOUT ({limits['PING_TIMEOUT']}) is not more than the {READER_PATIENCE} "
            "seconds in which a slow reader may catch up."
        )
        hint = "A slow reader answers no ping, and would be closed before it can catch up."
        yield "W001", text, hint
