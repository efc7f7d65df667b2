"""What messages to the QoS broker may say."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from msgnode.core.errors import BadMessage
from msgnode.qos.broker import Criteria, Order
from msgnode.qos.component import Inquire, List, Read, Release, Renew, Reserve, request_of

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4)
    ),
    max_leaves=12,
)
NAMES = ("resource", "value", "criteria", "flows", "class", "bitrate", "seconds", "cspId", "near")


def create(**value: Any) -> dict[str, Any]:
    return {"resource": "/reservations", "value": value}


def test_each_form_is_read() -> None:
    """Cases 15 and 17."""
    assert request_of("read", {"resource": "/resources"}) == Inquire(Criteria())
    criteria = {"cspId": "csp1", "mediaTypes": ["audio", "VIDEO"]}
    assert request_of("read", {"resource": "resources/", "criteria": criteria}) == Inquire(
        Criteria("csp1", ("audio", "video"))
    )
    criteria = {"near": ["an1", "an4"]}
    assert request_of("read", {"resource": "/resources", "criteria": criteria}) == Inquire(
        Criteria(near=("an1", "an4"))
    )
    assert request_of("read", {"resource": "/reservations"}) == List()
    assert request_of("read", {"resource": "/reservations/a"}) == Read("a")
    assert request_of("update", {"resource": "/reservations/a"}) == Renew("a", 0)
    assert request_of("update", {"resource": "/reservations/a", "value": {"seconds": 5}}) == Renew(
        "a", 5
    )
    assert request_of("delete", {"resource": "/reservations/a"}) == Release("a")


def test_a_reservation_names_flows_or_a_class() -> None:
    flows = [{"mediaType": "audio", "localAddress": "x"}, {"mediaType": 1}]
    found = request_of("create", create(flows=flows, bitrate=5, cspId="c", sessionId="comm://d/1"))
    assert found == Reserve(
        Order(media=("audio", "video"), bitrate=5, customer="c", about="comm://d/1")
    )
    assert request_of("create", create(**{"class": "data"})) == Reserve(Order(traffic_class="data"))
    with pytest.raises(BadMessage, match="mediaType, or a `class`"):
        request_of("create", create())


@pytest.mark.parametrize(
    ("value", "named"),
    [
        ({"flows": "audio"}, "flows"),
        ({"flows": ["audio"]}, "flows"),
        ({"flows": [{}] * 17}, "flows"),
        ({"flows": [{"mediaType": 7}]}, "mediaType"),
        ({"class": ""}, "class"),
        ({"class": True}, "class"),
        ({"class": "audio", "bitrate": 0}, "bitrate"),
        ({"class": "audio", "bitrate": -1}, "bitrate"),
        ({"class": "audio", "bitrate": 10**12}, "bitrate"),
        ({"class": "audio", "bitrate": 1.5}, "bitrate"),
        ({"class": "audio", "bitrate": True}, "bitrate"),
        ({"class": "audio", "seconds": 10**9}, "seconds"),
        ({"class": "audio", "cspId": 5}, "cspId"),
        ({"class": "audio", "cspId": "a\0b"}, "cspId"),
        ({"class": "audio", "sessionId": "x" * 601}, "sessionId"),
        ({"class": "audio", "near": "an1"}, "near"),
        ({"class": "audio", "near": [1]}, "near"),
        ({"class": "audio", "near": ["an1"] * 9}, "near"),
    ],
)
def test_case_39_what_is_wrong_is_named(value: dict[str, Any], named: str) -> None:
    with pytest.raises(BadMessage, match=named):
        request_of("create", create(**value))


@pytest.mark.parametrize("type_", ["subscribe", "execute", "ping", "read", "update", "delete"])
def test_case_16_other_requests_are_told_what_there_is(type_: str) -> None:
    with pytest.raises(BadMessage, match="takes read of /resources"):
        request_of(type_, {"resource": "/elsewhere"})


@given(st.sampled_from(["read", "create", "update", "delete"]), JSON, st.data())
def test_hostile_bodies_are_read_or_refused(type_: str, value: Any, data: st.DataObject) -> None:
    named = data.draw(st.dictionaries(st.sampled_from(NAMES), JSON, max_size=5))
    resource = data.draw(st.sampled_from(["/reservations", "/resources", "/reservations/x"]))
    body = {"resource": resource, "value": value if data.draw(st.booleans()) else named, **named}
    try:
        request_of(type_, body)
    except BadMessage as refusal:
        assert refusal.description
