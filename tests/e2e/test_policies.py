"""Policies in a running node, over real sockets: what passes, what does not, and what is said."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from tests.e2e.launched import Launched
from tests.e2e.policed import DOMAIN, MANAGER, PolicedNode, Runtime, policed_node
from tests.services import free_port, redis_server

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("policed")]


@pytest.fixture(scope="module")
def node(template: Path) -> Iterator[PolicedNode]:
    with policed_node(template) as running:
        yield running


def rules(*rules: dict[str, Any], **more: Any) -> list[Any]:
    return [{"id": "S", "policies": [{"id": "P", "rules": list(rules)}], **more}]


def deny(condition: Any, **more: Any) -> dict[str, Any]:
    return {"effect": "deny", "condition": condition, **more}


def pair(node: PolicedNode, name: str) -> tuple[Runtime, Runtime]:
    return Runtime(node, f"{name}-a"), Runtime(node, f"{name}-b")


def test_a_blocked_request_is_answered_403_in_both_texts_and_nobody_hears_it(node):
    node.publish(rules(deny({"msgTo": {"like": "*/secret"}})))
    alice, bob = pair(node, "block")
    answer = alice.ask("read", f"{bob.url}/secret")
    assert answer["body"] == {
        "code": 403,
        "desc": "Blocked by policy",
        "description": "Blocked by policy",
    }
    assert answer["from"] == f"{bob.url}/secret"
    assert bob.hears(alice) == []


def test_the_words_of_an_inform_obligation_are_told(node):
    duty = {"inform": "Not before nine."}
    node.publish(rules(deny({"msgTo": {"like": "*/secret"}}, obligations=duty)))
    alice, bob = pair(node, "words")
    assert alice.ask("read", f"{bob.url}/secret")["body"]["description"] == "Not before nine."


def test_a_message_waits_for_what_the_registry_knows_and_keeps_its_place(node):
    duty = {"inform": "Only few are registered."}
    node.publish(rules(deny({"userRegistries": {"lessThan": 5}}, obligations=duty)))
    alice, bob = pair(node, "facts")
    first = alice.send("read", bob.url, {"value": {"user": "user://idp.example/facts"}})
    alice.send("update", bob.url, {"value": "second"})
    refused = alice.receive(lambda m: m.get("id") == first)
    assert refused["body"]["description"] == "Only few are registered."
    assert bob.receive()["body"]["value"] == "second"


def test_a_subscription_is_decided_and_ends_when_its_permission_does(node):
    node.publish(rules(deny({"subscribeTo": {"like": "comm://*/closed/*"}})))
    alice, bob = pair(node, "sub")
    address = f"comm://{DOMAIN}/feed/changes"
    refused = bob.ask("subscribe", MANAGER, {"resources": [f"comm://{DOMAIN}/closed/changes"]})
    assert refused["body"]["code"] == 403
    assert bob.ask("subscribe", MANAGER, {"resources": [address]})["body"]["code"] == 200
    reporter = address.removesuffix("/changes")
    alice.send("update", address, {"value": 1}, sender=reporter)
    assert bob.receive()["body"]["value"] == 1
    node.publish(rules(deny({"subscribeTo": {"like": "comm://*/feed/*"}})))
    told = bob.receive()
    assert (told["to"], told["body"]["value"]) == (f"{bob.url}/status", "gap")
    alice.send("update", address, {"value": 2}, sender=reporter)
    alice.send("update", f"{bob.url}/x", {"value": 3})
    assert bob.receive()["body"]["value"] == 3


def test_publications_under_load_lose_and_misjudge_nothing(node):
    """Each version blocks one of two addresses; whatever is in force, one of a pair passes."""
    here, there = "*/here", "*/there"
    versions = [rules(deny({"msgTo": {"like": blocked}})) for blocked in (here, there)]
    node.publish(versions[0])
    alice, bob = pair(node, "load")
    stop = threading.Event()
    sent: list[int] = []

    def talk() -> None:
        began = monotonic()
        while not stop.is_set():
            for _ in range(10):
                for name in ("here", "there"):
                    sent.append(alice.send("create", f"{bob.url}/{name}", {"value": len(sent)}))
            ahead = len(sent) / 1000 - (monotonic() - began)
            if ahead > 0:
                stop.wait(ahead)

    talking = threading.Thread(target=talk)
    talking.start()
    rounds = 0
    try:
        while rounds < 3 or len(sent) < 5000:
            rounds += 1
            node.publish(versions[rounds % 2])
    finally:
        stop.set()
        talking.join()
    delivered = {m["id"] for m in bob.hears(alice) if m["type"] == "create"}
    refused = {m["id"] for m in alice.waiting if m["body"].get("code") == 403}
    assert delivered | refused == set(sent)
    assert delivered & refused == set()
    pairs = list(zip(sent[::2], sent[1::2], strict=True))
    uneven = [pair for pair in pairs if (pair[0] in delivered) == (pair[1] in delivered)]
    assert len(uneven) <= rounds


def test_what_was_decided_can_be_read_afterwards(node):
    node.publish(rules(deny({"msgTo": {"like": "*/secret"}}, id="R", obligations={"log": "seen"})))
    alice, bob = pair(node, "told")
    alice.ask("read", f"{bob.url}/secret", {"value": "private", "resource": "user://a"})
    node.process.line_with('"seen"')
    code = (
        "from time import sleep\n"
        "from policies.models import *\n"
        "while not RuleHits.objects.filter(path='S/P/R', hits__gt=0).exists():\n"
        "    sleep(0.1)\n"  # it is written down behind what was said, and before that the entry
        "e = DecisionEntry.objects.filter(path='S/P/R').first()\n"
        "print(e.effect, e.message)\n"
    )
    said = node.manage("shell", "-v0", "-c", code)
    assert said.startswith("deny ")
    assert "user://a" in said
    assert "private" not in said


def test_a_default_of_refusal_refuses_what_nobody_permits(template):
    with policed_node(template, POLICY_DELIVER_NOT_APPLICABLE="no") as strict:
        alice = Runtime(strict, "strict")
        assert alice.opened["body"]["code"] == 403


def test_every_worker_puts_a_publication_in_force(template):
    command = (sys.executable, "-m", "msgnode.servers.main")
    with (
        redis_server() as redis,
        policed_node(template, REDIS_URL=redis) as node,
        Launched(
            node.process.data_dir, free_port(), command, {"DOMAIN": DOMAIN, "REDIS_URL": redis}
        ) as second,
    ):
        second.line_with("The worker is ready")
        number = node.publish(rules(deny({"msgTo": {"like": "*/secret"}})))
        second.line_with(f"Policies of version {number} are in force")
