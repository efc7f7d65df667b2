"""Topics, what they stand for, and readings: for whatever a broker may bring."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from msgnode.core.errors import BadMessage
from msgnode.devices.mqtt import topics
from msgnode.devices.mqtt.readings import value_of
from msgnode.devices.mqtt.topics import DeviceTopic, DeviceTopics

DEVICES = DeviceTopics("rethink", "example.org")
LEVEL = st.text(min_size=1, max_size=20).filter(lambda each: not set(each) & set("/+#\0"))


@pytest.mark.parametrize(
    ("topic", "found"),
    [
        ("rethink/example.org/lamp/out", DeviceTopic("lamp", "out")),
        ("rethink/example.org/lamp-1.a~b/status", DeviceTopic("lamp-1.a~b", "status")),
        ("rethink/example.org/lamp/in", None),
        ("rethink/example.org/lamp", None),
        ("rethink/example.org//out", None),
        ("rethink/example.org/a/b/out", None),
        ("rethink/other.org/lamp/out", None),
        ("rethink/example.org/../out", None),
        ("rethink/example.org/.lamp/out", None),
        ("rethink/example.org/la mp/out", None),
        (f"rethink/example.org/{'x' * 129}/out", None),
        ("", None),
    ],
)
def test_a_device_is_named_by_its_topic_or_not_at_all(
    topic: str, found: DeviceTopic | None
) -> None:
    assert DEVICES.read(topic) == found


@given(st.text(max_size=300))
def test_whatever_a_topic_is_reading_it_names_no_other_device(topic: str) -> None:
    found = DEVICES.read(topic)
    if found is not None:
        assert topic == f"rethink/example.org/{found.device}/{found.kind}"


@given(st.lists(LEVEL, min_size=1, max_size=4))
def test_an_object_leads_back_to_the_topic_it_was_met_on(levels: list[str]) -> None:
    topic_filter = "/".join(["s", *["+"] * len(levels)])
    template = "context://d/" + "-".join(f"x{{{n}}}" for n in range(1, len(levels) + 1))
    parts = topics.met(topic_filter, "/".join(["s", *levels]))
    assert parts == tuple(levels)
    address = topics.filled(template, tuple(levels), escapes=True)
    assert "/" not in address.removeprefix("context://d/")
    back = topics.unfilled(template, address, topic_filter)
    assert back is not None
    assert topics.filled(template, back, escapes=True) == address


@pytest.mark.parametrize("text", ["", "a/#/b", "a+", "a/b#", "$SYS/x", "x" * 1025, "a\0b"])
def test_what_is_no_topic_filter_is_named(text: str) -> None:
    assert topics.filter_fault(text)


def test_a_template_names_wildcards_that_there_are() -> None:
    assert not topics.template_fault("context://d/{1}{2}", 2)
    for wrong in ("{3}", "{0}", "{", "{x}", "}"):
        assert topics.template_fault(wrong, 2)


@given(st.binary(max_size=200))
def test_a_reading_is_json_text_or_refused(payload: bytes) -> None:
    for path in ((), ("a",), ("a", "0")):
        try:
            value = value_of(payload, path)
        except BadMessage:
            continue
        json.loads(value)


def test_a_reading_is_found_by_its_path() -> None:
    payload = b'{"a": [{"t": 20.5}], "b": null}'
    assert value_of(payload, ("a", "0", "t")) == b"20.5"
    assert value_of(payload, ("b",)) == b"null"
    for path in (("c",), ("a", "1"), ("a", "x"), ("b", "c")):
        with pytest.raises(BadMessage):
            value_of(payload, path)
