"""What the page of traces is told each second. Its topic is what it watches, as a query."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs, urlencode

import msgspec

from msgnode.monitoring.tracer import TraceFilter, TracesTold

TOPIC = "traces?"
LENGTH = "traces"
"""What a page asks for that wants all that is kept."""
NAMES = tuple(field.name for field in msgspec.structs.fields(TraceFilter))
LONGEST = 600


def topic_of(query: str) -> str:
    """The topic of a page with this query: what is equal is one topic."""
    said = parse_qs(query[: 4 * LONGEST], max_num_fields=20)
    known = {name: said[name][0].strip()[:LONGEST] for name in NAMES if name in said}
    return TOPIC + urlencode(known)


def wanted_by(topic: str) -> TraceFilter:
    """What the pages of a topic watch."""
    said = parse_qs(topic.removeprefix(TOPIC))
    return TraceFilter(**{name: values[0] for name, values in said.items()})


def now_of(told: dict[str, TracesTold | None]) -> dict[str, Any]:
    """The traces since the last time.

    Args:
        told: by each worker, by name; None by one that did not answer.
    """
    return {
        "traces": history_of(told),
        "untraced": {name: each.untraced for name, each in told.items() if each is not None},
        "missing": [name for name, each in told.items() if each is None],
    }


def history_of(told: dict[str, TracesTold | None]) -> list[Any]:
    """All parts that were told, as JSON."""
    return [msgspec.Raw(part) for each in told.values() if each is not None for part in each.parts]
