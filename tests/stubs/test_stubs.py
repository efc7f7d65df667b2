"""Cases 53 and 54 on real nodes: our stubs in Python, Node.js and Chromium, by socket and HTTP."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import pytest

from tests.node import Node
from tests.stubs.runtimes import KINDS, Cast, Runtime

pytestmark = pytest.mark.long

SM = "domain://msg-node.localhost/sm"
ALLOCATION = "domain://msg-node.localhost/address-allocation"
QUEUED = 25


@pytest.fixture(params=[each for each in KINDS if each != "node-start"])
def kind(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def start_node(start_node: Callable[..., Node]) -> Callable[..., Node]:
    """Starts nodes that have everything a stub may need."""
    return partial(start_node, DEVICE_HTTP=True)


@pytest.fixture
def cast_on(kind: str, request: pytest.FixtureRequest) -> Iterator[Callable[[Node], Cast]]:
    """Brings runtimes of the kind to a node."""
    made: list[Cast] = []

    def bring(node: Node) -> Cast:
        made.append(Cast(kind, node.port, request))
        return made[-1]

    yield bring
    for cast in made:
        cast.__exit__()


def reported_object(reporter: Runtime, observer: Runtime) -> str:
    """The address of an object that one reports and the other observes."""
    body = {"scheme": "comm", "value": {"number": 1}}
    address: str = reporter.ask("create", ALLOCATION, body)["value"]["allocated"][0]
    answer = observer.ask("subscribe", SM, {"resources": [f"{address}/changes"]})
    assert answer["code"] == 200
    return address


def report(reporter: Runtime, address: str, value: int) -> None:
    body = {"value": value}
    changes = f"{address}/changes"
    reporter.post(id=value, type="update", to=changes, body=body, **{"from": address})


def values(observer: Runtime, address: str) -> list[int]:
    return [each["body"]["value"] for each in observer.seen if each["to"] == f"{address}/changes"]


@pytest.mark.parametrize("kind", KINDS, indirect=True)
def test_case_53_54_live_killed_back_resumed_and_nothing_queued_is_lost(
    start_node: Callable[..., Node], cast_on: Callable[[Node], Cast]
) -> None:
    node = start_node()
    cast = cast_on(node)
    alice, bob = cast.enter("alice"), cast.enter("bob")
    address = reported_object(alice, bob)  # the first message connects
    report(alice, address, 0)
    bob.wait_for(lambda each: each["to"] == f"{address}/changes")
    assert alice.statuses() == ["created", "in-progress", "live"]

    node.kill()
    alice.status("disconnected")
    bob.status("disconnected")
    for value in range(1, QUEUED + 1):
        report(alice, address, value)
    node.start()
    while values(bob, address)[-1] < QUEUED:
        bob.wait_for(lambda each: each["to"] == f"{address}/changes")
    assert values(bob, address) == list(range(QUEUED + 1))
    alice.status("live")
    states = ["created", "in-progress", "live", "disconnected", "live"]
    assert [each for each in alice.statuses() if each != "gap"] == states
    assert [each for each in bob.statuses() if each != "gap"] == states


def test_case_53_54_a_node_that_restarts_in_peace_leaves_no_gap(
    start_node: Callable[..., Node], cast_on: Callable[[Node], Cast]
) -> None:
    node = start_node(DRAIN_SECONDS=1)
    cast = cast_on(node)
    alice, bob = cast.enter("alice", stagger=0), cast.enter("bob", stagger=0)
    address = reported_object(alice, bob)
    node.terminate()
    assert node.status() == 0
    said = alice.status("disconnected")["body"]["desc"]
    assert "restarts" in said
    node.start()
    report(alice, address, 1)
    bob.wait_for(lambda each: each["to"] == f"{address}/changes")
    assert "gap" not in alice.statuses() + bob.statuses()


def test_case_53_54_disconnect_frees_what_the_runtime_held_and_a_message_connects_again(
    node: Node, cast_on: Callable[[Node], Cast]
) -> None:
    cast = cast_on(node)
    alice, bob = cast.enter("alice"), cast.enter("bob")
    address = reported_object(alice, bob)
    alice.call("disconnect")
    assert bob.ask("read", address, {})["code"] == 404
    assert alice.ask("create", ALLOCATION, {"value": {"number": 1}})["code"] == 200
    once = ["in-progress", "live"]
    assert alice.statuses() == ["created", *once, "disconnected", *once]


END_ALL = """
from msgnode.models import Session
from msgnode.storage import control
for session in Session.objects.all():
    control.post("session.end", session=session.pk.hex)
"""
