"""What the node uses of what it may, and when that is full at the growth that was measured.

Of the samples of each hour (monitoring.sampler) and of the last minutes, which are read in one
query; limits are the settings', or the machine's.

Rules
- Growth is the median slope between any two points (Theil and Sen), so that a restart or one bad
  day does not decide it. From three days on the points are the highest value of each day, because
  a node breathes with its users' days; before that, the hours.
- With less than six hours nothing is said about growth.
- What workers hold is added up and compared with their limits together. Memory and disk are those
  of the machine that has the least share left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import combinations
from statistics import median
from typing import Any

import msgspec
from django.conf import settings
from django.contrib import admin
from django.contrib.admin.views.decorators import staff_member_required
from django.contrib.auth.decorators import permission_required
from django.db.models import Q
from django.http import HttpRequest, HttpResponse
from django.template.defaultfilters import filesizeformat
from django.template.response import TemplateResponse
from django.utils import timezone

from msgnode.models import NodeSample, Worker
from msgnode.monitoring.samples import HOUR, MINUTE, Sample

from . import key_figures
from .live.access import SEES

DAY = 86_400.0
LEAST = 6 * 3600.0
"""Seconds of samples without which nothing is said about growth."""
BY_DAYS = 3 * DAY
FAR = 2 * 365.0
"""Days after which "full in" is a guess that is not made."""
LATELY = timedelta(minutes=3)
_BUSY = 5.0
"""Percent of a core from which on the processor's share tells what a message costs."""
_WIDTH, _HEIGHT = 120, 28

Points = list[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Resource:
    """Something that can be full: what is used now and was at most in 24 hours, of how much."""

    title: str
    help: str
    now: float | None
    most: float | None
    limit: float
    points: Points
    shown: Callable[[float], str]
    breathes: bool = True  # with the users' days, so that the highest value counts

    @property
    def share(self) -> float | None:
        """Percent of the limit that is used."""
        return None if self.now is None or not self.limit else 100 * self.now / self.limit

    @property
    def growth(self) -> float | None:
        """What is added in a day; None: there is too little history."""
        return growth(self.points)

    @property
    def days_left(self) -> float | None:
        """Days until it is full; None: it does not grow, or nobody knows."""
        if not self.limit or self.now is None or not (added := self.growth) or added <= 0:
            return None
        used = max(self.now, self.most or 0.0) if self.breathes else self.now
        return max(self.limit - used, 0.0) / added


def growth(points: Sequence[tuple[float, float]]) -> float | None:
    """The growth in a day of points in time (seconds), None if they tell too little."""
    if len(points) < 2 or points[-1][0] - points[0][0] < LEAST:
        return None
    if points[-1][0] - points[0][0] >= BY_DAYS:
        highest: dict[float, float] = {}
        for at, value in points:  # days that end with the newest point
            day = (at - points[-1][0]) // DAY * DAY
            highest[day] = max(highest.get(day, value), value)
        points = sorted(highest.items())
    slopes = [(b - a) / (until - at) for (at, a), (until, b) in combinations(points, 2)]
    return median(slopes) * DAY


@staff_member_required
@permission_required(SEES, raise_exception=True)
def capacity(request: HttpRequest) -> HttpResponse:
    """Serve `/admin/capacity/`."""
    now = timezone.now()
    resources, seconds = measured(now)
    context = {
        **admin.site.each_context(request),
        "title": "Capacity",
        "lines": [_line(each) for each in resources],
        "history": _duration(seconds / DAY) if seconds else "",
        "tells_growth": seconds >= LEAST,
        "least": int(LEAST // 3600),
        "sees_days": seconds >= BY_DAYS,
    }
    return TemplateResponse(request, "console/capacity.html", context)


def measured(now: datetime) -> tuple[list[Resource], float]:
    """What can be full, and the seconds of history that there are. Two queries."""
    number = max(1, sum(key_figures.is_heard(each, now) for each in Worker.objects.all()))
    wanted = Q(span=HOUR) | Q(span=MINUTE, at__gte=now - LATELY)
    rows = NodeSample.objects.filter(wanted).order_by("at", "worker")
    hours: dict[float, list[Sample]] = {}
    latest: dict[str, Sample] = {}
    for worker, span, at, figures in rows.values_list("worker", "span", "at", "figures"):
        sample = msgspec.convert(figures, Sample)
        if span == HOUR:
            hours.setdefault(at.timestamp(), []).append(sample)
        else:
            latest[worker] = sample
    present = list(latest.values())
    seconds = max(hours) - min(hours) + HOUR if hours else 0.0
    return [_resource(each, hours, present, now) for each in _kinds(number, present)], seconds


@dataclass(frozen=True, slots=True)
class _Kind:
    """How a resource is read: from the samples of all workers of one moment."""

    title: str
    help: str
    limit: float
    read: Callable[[Sequence[Sample]], float | None]
    shown: Callable[[float], str]
    breathes: bool = True


def _kinds(workers: int, present: Sequence[Sample]) -> list[_Kind]:
    limits = settings.NODE
    memory, disk = _machine(present, 0), _machine(present, 2)
    each = f", of {workers} workers" if workers > 1 else ""
    return [
        _Kind("Connections", f"MAX_CONNECTIONS{each}", limits["MAX_CONNECTIONS"] * workers,
              _added("sockets"), _number),
        _Kind("Sessions", f"open and detached; twice MAX_CONNECTIONS{each}",
              limits["MAX_SESSIONS"] * workers, _added("sessions"), _number),
        _Kind("Messages a second", "the limit is estimated from the processor's share now",
              _most_messages(present), _rate, _number),
        _Kind("Processor", f"percent of a core{each}; a worker uses one", 100.0 * workers,
              _processor, lambda value: f"{value:,.1f} %"),
        _Kind("Waiting for readers", f"MAX_QUEUE_BYTES{each}",
              limits["MAX_QUEUE_BYTES"] * workers, _added("waiting"), _size),
        _Kind("Memory", "of the machine, all its programs", memory[0], _used(0), _size),
        _Kind("Disk", "of the data directory's file system", disk[0], _used(2), _size,
              breathes=False),
    ]  # fmt: skip


def _resource(
    kind: _Kind, hours: dict[float, list[Sample]], present: Sequence[Sample], now: datetime
) -> Resource:
    read = ((at, kind.read(samples)) for at, samples in sorted(hours.items()))
    points = [(at, value) for at, value in read if value is not None]
    current = kind.read(present) if present else None
    lately = [value for at, value in points if at >= now.timestamp() - DAY]
    most = max([*lately, *([] if current is None else [current])], default=None)
    return Resource(
        kind.title, kind.help, current, most, kind.limit, points, kind.shown, kind.breathes
    )


def _added(name: str) -> Callable[[Sequence[Sample]], float | None]:
    return lambda samples: float(sum(getattr(each, name) for each in samples))


def _machine(samples: Iterable[Sample], place: int) -> tuple[float, float]:
    """Bytes in all and left, at a place of `Sample.machine`, where the least share is left."""
    told = [tuple(each.machine[place : place + 2]) for each in samples if len(each.machine) == 4]
    known = [(float(total), float(left)) for total, left in told if total]
    return min(known, key=lambda each: each[1] / each[0], default=(0.0, 0.0))


def _used(place: int) -> Callable[[Sequence[Sample]], float | None]:
    """What is used of a machine's; samples of earlier versions do not tell."""

    def read(samples: Sequence[Sample]) -> float | None:
        total, left = _machine(samples, place)
        return total - left if total else None

    return read


def _rate(samples: Sequence[Sample]) -> float | None:
    return sum(each.messages / (each.seconds or 1.0) for each in samples)


def _processor(samples: Sequence[Sample]) -> float | None:
    return sum(100 * each.cpu / (each.seconds or 1.0) for each in samples)


def _most_messages(present: Sequence[Sample]) -> float:
    """Messages a second at which the workers' processors are full; 0 while they do too little."""
    share = _processor(present) or 0.0
    if not present or share < _BUSY * len(present):
        return 0.0
    return (_rate(present) or 0.0) * 100 * len(present) / share


def _line(resource: Resource) -> dict[str, Any]:
    """A resource in words, and its curve."""
    share, days, shown = resource.share, resource.days_left, resource.shown
    added = resource.growth
    if share is not None and share >= 100:
        when = "full"
    elif added is None:
        when = "too little history"
    elif not resource.limit:
        when = "no limit known"
    elif days is None or days > FAR:
        when = "not in two years" if days is not None else "does not grow"
    else:
        when = f"about {_duration(days)}"
    return {
        "title": resource.title,
        "help": resource.help,
        "now": shown(resource.now) if resource.now is not None else "–",
        "most": shown(resource.most) if resource.most is not None else "–",
        "limit": shown(resource.limit) if resource.limit else "–",
        "share": round(share, 1) if share is not None else None,
        "is_high": share is not None and share >= 80,
        "is_near": when == "full" or (days is not None and days < 30),
        "growth": f"{'+' if added >= 0 else '−'}{shown(abs(added))}" if added is not None else "–",
        "when": when,
        "curve": _curve(resource.points),
    }


def _curve(points: Points) -> str:
    """The points of a polyline, at most one for each column of it."""
    if len(points) < 2:
        return ""
    begin, end = points[0][0], points[-1][0]
    top = max(value for _, value in points) or 1.0
    columns: dict[int, float] = {}
    for at, value in points:
        column = round((at - begin) / (end - begin) * _WIDTH)
        columns[column] = max(columns.get(column, 0.0), value)
    last = _HEIGHT - 2
    return " ".join(f"{x},{last - y / top * (last - 2) + 1:.1f}" for x, y in columns.items())


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:,.3g}"


def _size(value: float) -> str:
    return filesizeformat(value).replace("\xa0", " ")


def _duration(days: float) -> str:
    """A time span in words, in its one largest unit."""
    for unit, size in (("year", 365.0), ("month", 30.4), ("week", 7.0), ("day", 1.0)):
        if days >= 2 * size:
            return f"{days / size:.0f} {unit}s"
    return f"{days * 24:.0f} hours" if days * 24 >= 2 else "an hour"
