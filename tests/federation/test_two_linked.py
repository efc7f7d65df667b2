"""Two real nodes of this software with a link between them; one of them is two workers.

The short twins in one process are in test_node_links.
"""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests import waiting
from tests.client import Client, code

from .nodes import (
    A,
    B,
    TwoWorkersAndB,
    answer_requests,
    come,
    have_come,
    peer_row,
    subscribe,
    until_row,
)  # fmt: skip

pytestmark = [
    pytest.mark.asyncio,
    pytest.mark.long,
    pytest.mark.usefixtures("sessions_end"),
    pytest.mark.timeout(300),  # three nodes start, one command after the other
]
TO = f"hyperty://{B}/linked"


class Linked(TwoWorkersAndB):
    """Nodes that have approved each other; b knows one worker of a by its URL, the other serves."""

    def introduce(self) -> None:
        self.a.manage("peers", "add", B, "--url", f"http://127.0.0.1:{self.b.port}")
        self.wait(lambda peer: peer["node_found"])
        self.a.manage("peers", "approve", B)
        self.other.start()
        self.b.manage("peers", "add", A, "--url", f"http://127.0.0.1:{self.other.port}")
        self.wait(lambda peer: peer["node_found"], self.b, A)
        self.b.manage("peers", "approve", A)
        for node, domain in ((self.a, B), (self.b, A)):
            self.wait(is_linked, node, domain)


def is_linked(peer: dict[str, object]) -> bool:
    figures = peer["figures"]
    assert isinstance(figures, dict)
    return peer["state"] == "live" and figures.get("link", {}).get("open", False)


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory, template: Path) -> Iterator[Linked]:
    with Linked(tmp_path_factory.mktemp("linked"), template).running() as two:
        yield two


async def answered(asker: Client, to: str, sender: str) -> None:
    """Ask until the other domain answers."""
    asking = partial(asker.ask, "read", to, {"value": 1}, sender=sender)
    await waiting.seen(asking, lambda answer: code(answer) == 200, 60)


async def test_case_63_the_link_carries_what_the_stub_would_though_there_is_one(
    nodes: Linked,
) -> None:
    """Requests, their errors and updates; from the worker that has the link, and another one."""
    answerer = await come(nodes.b, B, "answers")
    assert code(await subscribe(answerer, B, TO)) == 200
    answering = asyncio.create_task(answer_requests(answerer))
    thing = f"comm://{B}/linked"
    reporter = await come(nodes.b, B, "reports")
    for name in ("a", "other"):
        asker, ours = await come(getattr(nodes, name), A, name), f"hyperty://{A}/{name}"
        answer = await asker.ask("read", TO, {"value": 7, "auth": True}, sender=ours)
        assert (code(answer), answer["body"]["value"]) == (200, 7)
        assert code(await asker.ask("read", f"hyperty://{B}/nobody", sender=ours)) == 404
        assert code(await subscribe(asker, A, f"{thing}/changes")) == 200
        await reporter.send("update", f"{thing}/changes", {"value": name}, sender=thing)
        update = await asker.expect(type="update", to=f"{thing}/changes")
        assert update["body"]["value"] == name
    answering.cancel()
    assert peer_row(nodes.a)["figures"]["way"] == "link"
    assert not nodes.sandboxes()


async def test_case_l61_and_l69_a_node_killed_amid_requests_and_begun_with_another_key(
    nodes: Linked,
) -> None:
    """Each request is answered once, and nobody approves the key, which the one before signs."""
    answerer, asker = await come(nodes.b, B, "killed"), await come(nodes.a, A, "asks")
    to, ours = f"{TO}/killed", f"hyperty://{A}/asks"
    assert code(await subscribe(answerer, B, to)) == 200
    answering = asyncio.create_task(answer_requests(answerer))
    before = peer_row(nodes.a)["figures"]["link"]["key"]
    ids = []
    for number in range(300):
        ids.append(await asker.send("read", to, {"value": number}, sender=ours))
        if number == 150:
            nodes.b.kill()
            answering.cancel()
    nodes.b.configure(SECRET_KEY="another", SECRET_KEY_FALLBACKS="only for tests")
    await asyncio.to_thread(nodes.b.start)
    again = Client(f"ws://127.0.0.1:{nodes.b.port}/ws")
    have_come.append(again)
    await (await again.connect()).resume(answerer)  # what waits in its session is answered, too
    answering = asyncio.create_task(answer_requests(again))
    codes = [code(await asker.answer(id_)) for id_ in ids]
    assert set(codes) <= {200, 503, 504}
    await answered(asker, to, ours)
    answering.cancel()
    assert not [each for each in asker.inbox if each["id"] in ids], "answered twice"
    now = await until_row(nodes.a, lambda peer: peer["figures"]["link"]["key"] not in ("", before))
    assert set(now["node_keys"]) >= {before[0]}


async def test_what_would_fail_of_the_link_is_said_and_what_runs_is_left_alone(
    nodes: Linked,
) -> None:
    """Of two real nodes; each single fault is in test_link_trial."""
    key = peer_row(nodes.a)["figures"]["link"]["key"]
    said = await asyncio.to_thread(nodes.a.manage, "peers", "test-link", B)
    assert said.count("ok ") == 4
    assert "both nodes have proved who they are" in said
    await asyncio.to_thread(nodes.b.manage, "peers", "pause", A)
    await until_row(nodes.b, lambda peer: peer["state"] == "stopped", A)  # it is in force
    with pytest.raises(subprocess.CalledProcessError) as failed:
        await asyncio.to_thread(nodes.a.manage, "peers", "test-link", B)
    wrong = f"proof     not allowed: The exchange of messages with {A} is paused."
    assert wrong in failed.value.stdout
    await asyncio.to_thread(nodes.b.manage, "peers", "resume", A)
    await until_row(nodes.a, lambda peer: is_linked(peer) and peer["figures"]["link"]["key"] == key)
