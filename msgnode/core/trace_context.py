"""The trace context of a message, as the W3C recommendation Trace Context writes it. Pure.

    traceparent: 00-<trace id, 32 hex>-<span id, 16 hex>-<flags, 2 hex>

A sender says it beside the fields of the envelope, or in the header of an HTTP request. What cannot
be read is none: a message is never refused for it.
"""

from __future__ import annotations

import re
from secrets import randbits
from typing import NamedTuple

import msgspec

FIELD = "traceparent"
IN_FRAME = b'"traceparent"'
"""Stands in a frame whose sender may say it."""
_SAMPLED = 1
_FORM = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")


class _Beside(msgspec.Struct):
    traceparent: str = ""


_beside = msgspec.json.Decoder(_Beside)


class TraceContext(NamedTuple):
    """A place in a trace: the trace, the span that what follows is part of, and its mark.

    Attributes:
        trace: 32 hexadecimal digits.
        span: 16 hexadecimal digits.
        is_sampled: whether who made it follows the trace.
    """

    trace: str
    span: str
    is_sampled: bool = True

    def __str__(self) -> str:
        return f"00-{self.trace}-{self.span}-{int(self.is_sampled):02x}"


def parse(text: str) -> TraceContext | None:
    """Read a `traceparent`; None for what is none. Later versions are read as far as they agree."""
    found = _FORM.fullmatch(text)
    if found is None or found[1] == "ff" or (found[1] == "00" and found[5]):
        return None
    if not int(found[2], 16) or not int(found[3], 16):
        return None
    return TraceContext(found[2], found[3], bool(int(found[4], 16) & _SAMPLED))


def of_frame(frame: bytes) -> TraceContext | None:
    """What the sender of a frame says beside the fields of its envelope.

    Args:
        frame: a frame that has been read as a message.
    """
    if IN_FRAME not in frame:
        return None
    try:
        return parse(_beside.decode(frame).traceparent)
    except (msgspec.DecodeError, RecursionError):
        return None


def new_trace() -> str:
    """A random trace id."""
    return f"{randbits(128) or 1:032x}"


def new_span() -> str:
    """A random span id."""
    return f"{randbits(64) or 1:016x}"
