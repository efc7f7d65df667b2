"""The trace context of a message, in the form of the W3C recommendation Trace Context. Pure.

    traceparent: 00-<trace id, 32 hex>-<span id, 16 hex>-<flags, 2 hex>

A sender gives it as an additional field of the envelope, or in the header of an HTTP request. An
invalid one is ignored: a message is never refused for it.
"""

from __future__ import annotations

import re
from secrets import randbits
from typing import NamedTuple

import msgspec

FIELD = "traceparent"
IN_FRAME = b'"traceparent"'
"""Every frame that has a trace context contains this."""
_SAMPLED = 1
_FORM = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")


class _Beside(msgspec.Struct):
    traceparent: str = ""


_beside = msgspec.json.Decoder(_Beside)


class TraceContext(NamedTuple):
    """A position in a trace.

    Attributes:
        trace: the trace id, 32 hexadecimal digits.
        span: the id of the parent span of what follows, 16 hexadecimal digits.
        is_sampled: whether the sender records the trace.
    """

    trace: str
    span: str
    is_sampled: bool = True

    def __str__(self) -> str:
        return f"00-{self.trace}-{self.span}-{int(self.is_sampled):02x}"


def parse(text: str) -> TraceContext | None:
    """Parse a `traceparent`; None if it is invalid. Later versions are read where compatible."""
    found = _FORM.fullmatch(text)
    if found is None or found[1] == "ff" or (found[1] == "00" and found[5]):
        return None
    if not int(found[2], 16) or not int(found[3], 16):
        return None
    return TraceContext(found[2], found[3], bool(int(found[4], 16) & _SAMPLED))


def of_frame(frame: bytes) -> TraceContext | None:
    """The trace context in a frame, None if it has none.

    Args:
        frame: the frame of a valid message.
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
