"""The trace context of the W3C recommendation: what is read, what is written, what is none."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from msgnode.core import trace_context
from msgnode.core.trace_context import TraceContext, of_frame, parse

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


def test_a_traceparent_is_read_and_written() -> None:
    for flags, is_sampled in (("01", True), ("00", False)):
        text = f"00-{TRACE}-{SPAN}-{flags}"
        assert parse(text) == TraceContext(TRACE, SPAN, is_sampled)
        assert str(parse(text)) == text


def test_of_a_later_version_what_is_known_of_it_is_read() -> None:
    assert parse(f"01-{TRACE}-{SPAN}-09-more") == TraceContext(TRACE, SPAN)


@pytest.mark.parametrize(
    "text",
    [
        "",
        f"00-{TRACE}-{SPAN}",
        f"00-{TRACE}-{SPAN}-01-more",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
    ],
)
def test_what_is_no_traceparent_is_none(text: str) -> None:
    assert parse(text) is None


def test_a_sender_says_it_beside_the_fields_of_the_envelope_and_nowhere_else() -> None:
    text = f"00-{TRACE}-{SPAN}-01"
    assert of_frame(json.dumps({"type": "read", "traceparent": text}).encode()) == parse(text)
    assert of_frame(json.dumps({"body": {"traceparent": text}}).encode()) is None
    assert of_frame(b'{"traceparent": 7}') is None


@given(st.text(max_size=80))
def test_whatever_is_said_is_read_or_is_none(text: str) -> None:
    found = parse(text)
    assert found is None or str(found)[3:52] == text[3:52]
    of_frame(json.dumps({"traceparent": text}).encode())


def test_new_ids_have_their_form() -> None:
    assert parse(str(TraceContext(trace_context.new_trace(), trace_context.new_span())))
