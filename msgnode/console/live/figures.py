"""What the overview is told each second: the figures of all workers added up, and what stands.

One document for all who watch. Names and times are put into words by the page.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec
from django.urls import reverse
from django.utils import timezone

from msgnode.console import key_figures
from msgnode.core.explanations import ALARMS
from msgnode.models import Alarm, NodeSample
from msgnode.monitoring.sampler import Reader, WorkerFigures
from msgnode.monitoring.samples import Sample, by_time, of_all_workers, rates
from msgnode.monitoring.talkers import TOP, Talker

ALARMS_SHOWN = 5
STEP = {"minutes": 5, "day": 300, "week": 3600}
"""Seconds of a point of a chart, by its length."""
_LENGTH = {"day": timedelta(hours=24), "week": timedelta(days=7)}
_SPAN = {"day": 60, "week": 3600}
_DIGITS = dict.fromkeys(("messages", "copies", "p50", "p99", "cpu"), 1)
_DIGITS |= dict.fromkeys(("refused", "undeliverable"), 2)  # the others are whole numbers


def now_of(
    workers: Sequence[WorkerFigures], missing: Sequence[str], bounds: Sequence[float]
) -> dict[str, Any]:
    """The figures of this second: of the node, and of each worker.

    Args:
        workers: who has told.
        missing: names of those who have not.
        bounds: limits that latencies are counted by.
    """
    latest = [each.samples[-1] for each in workers if each.samples]
    return {
        "node": point(of_all_workers(latest), bounds) if latest else None,
        "workers": [
            *(_worker(each, bounds) for each in workers if each.samples),
            *({"name": name, "is_heard": False} for name in missing),
        ],
        "talkers": [_told(each) for each in _largest(each.senders for each in workers)],
        "addresses": [_told(each) for each in _largest(each.addresses for each in workers)],
        "readers": [_reader(each) for each in _slowest(each.readers for each in workers)],
    }


def history_of(
    of_workers: Iterable[Iterable[Sample]], step: int, bounds: Sequence[float]
) -> list[dict[str, Any]]:
    """The points of a chart."""
    return [point(sample, bounds) for sample in by_time(of_workers, step)]


def kept_history(length: str, bounds: Sequence[float]) -> list[dict[str, Any]]:
    """The points of a chart of 24 hours or 7 days, from the database. Blocks."""
    since = timezone.now() - _LENGTH[length]
    rows = NodeSample.objects.filter(span=_SPAN[length], at__gte=since).order_by("worker", "at")
    of_workers: dict[str, list[Sample]] = {}
    for worker, figures in rows.values_list("worker", "figures"):
        of_workers.setdefault(worker, []).append(msgspec.convert(figures, Sample))
    return history_of(of_workers.values(), STEP[length], bounds)


def standing() -> dict[str, Any]:
    """Alarms and lights, from the database. Blocks. Raises DatabaseError."""
    now = timezone.now()
    alarms = list(Alarm.objects.filter(cleared_at=None).order_by("-last_at")[: ALARMS_SHOWN + 1])
    more = len(alarms) > ALARMS_SHOWN
    return {
        "alarms": [_alarm(each) for each in alarms[:ALARMS_SHOWN]],
        "alarms_standing": Alarm.objects.filter(cleared_at=None).count() if more else len(alarms),
        "lights": lights(now),
    }


def lights(now: datetime) -> list[dict[str, str]]:
    """One light for each part the node depends on: its state in a word, and where to look."""
    kinds = Counter(Alarm.objects.filter(cleared_at=None).values_list("kind", flat=True)[:500])
    workers = key_figures.links(now)
    links = [link for line in workers for link in line["links"]]
    up = sum(link["state"] == "up" for link in links)
    silent = [line["worker"] for line in workers if line["state"] == "not heard of"]
    components = key_figures.components(now)
    gone = [line["name"] for line in components if not line["is_heard"]]
    died = kinds["unclean-stop"] + kinds["worker-down"]
    redis = sorted(kind for kind in kinds if kind.startswith("redis"))
    reports = kinds["reports-late"]
    workers_url, components_url = _list("worker"), _list("componentstatus")
    return [
        _light("Database", "", "answers", ""),
        _light(
            "Workers",
            _workers_fault(len(silent), len(workers), died),
            f"{len(workers)} running",
            f"{_list('alarm')}?standing=yes" if died and not silent else workers_url,
        ),
        _light(
            "Links",
            f"{len(links) - up} of {len(links)} down" if up < len(links) else "",
            f"{up} up" if links else "one worker",
            workers_url,
        ),
        _light("Redis", ", ".join(redis), "no alarm", f"{_list('alarm')}?standing=yes"),
        _light(
            "Components",
            f"{len(gone)} not reporting" if gone else "",
            f"{len(components)} reporting",
            components_url,
        ),
        _light(
            "Reports",
            "late" if reports else "",
            "on time",
            reverse("admin:spark_reportrun_changelist"),
        ),
    ]


def _workers_fault(silent: int, known: int, died: int) -> str:
    """What is wrong with the workers: one that died is known no more, but its alarm stands."""
    if silent:
        return f"{silent} of {known} not responding"
    return f"{died} alarm{'' if died == 1 else 's'} of one that died" if died else ""


def point(sample: Sample, bounds: Sequence[float]) -> dict[str, Any]:
    """A sample as rates a second, for a chart."""
    figures = rates(sample, bounds).items()
    shown = {name: round(value, _DIGITS.get(name)) for name, value in figures}
    return {"at": round(sample.at, 1), **shown}


def _worker(told: WorkerFigures, bounds: Sequence[float]) -> dict[str, Any]:
    return {"name": told.worker, "is_heard": True, **point(told.samples[-1], bounds)}


def _largest(lists: Iterable[list[Talker]]) -> list[Talker]:
    """The first of the top lists of all workers; the same name is added up."""
    found: dict[tuple[str, str], Talker] = {}
    for each in (talker for talkers in lists for talker in talkers):
        key = each.name, each.session
        before = found.get(key)
        found[key] = (
            each
            if before is None
            else Talker(
                *key,
                before.messages + each.messages,
                before.bytes + each.bytes,
                before.failed + each.failed,
            )
        )
    return sorted(found.values(), key=lambda each: -each.messages)[:TOP]


def _slowest(lists: Iterable[list[Reader]]) -> list[Reader]:
    every = [reader for readers in lists for reader in readers]
    return sorted(every, key=lambda each: -each.waiting)[:TOP]


def _told(talker: Talker) -> dict[str, Any]:
    return {
        "name": talker.name,
        "session": talker.session,
        "messages": round(talker.messages, 1),
        "bytes": round(talker.bytes),
        "failed": round(talker.failed, 1),
    }


def _reader(reader: Reader) -> dict[str, Any]:
    return {"name": reader.runtime, "session": reader.session, "waiting": reader.waiting}


def _alarm(alarm: Alarm) -> dict[str, Any]:
    return {
        "url": reverse("admin:msgnode_alarm_change", args=[alarm.pk]),
        "kind": alarm.kind,
        "help": reverse("problem", args=["alarms", alarm.kind]) if alarm.kind in ALARMS else "",
        "text": alarm.text,
        "subject": alarm.subject,
        "count": alarm.count,
        "at": alarm.last_at.timestamp(),
    }


def _light(name: str, fault: str, well: str, url: str) -> dict[str, str]:
    return {
        "name": name,
        "state": "fault" if fault else "well",
        "text": fault or well,
        "url": url,
    }


def _list(model: str) -> str:
    return reverse(f"admin:msgnode_{model}_changelist")
