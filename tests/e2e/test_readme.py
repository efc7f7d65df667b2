"""What README.md and docs/messages.md show is what a node does: a conversation is compared."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from websockets.asyncio.client import connect

from msgnode.launch.readiness import Address, write_address
from tests.node import ROOT, Node

_RANDOM = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def _readme() -> str:
    return (ROOT / "README.md").read_text()


def _block(language: str, after: str) -> str:
    """The first block of a language after a text of docs/messages.md."""
    rest = (ROOT / "docs" / "messages.md").read_text(encoding="utf-8").split(after, 1)[1]
    return rest.split(f"```{language}\n", 1)[1].split("```", 1)[0]


def _with_names_for_what_is_random(text: str) -> list[str]:
    """Lines with tokens and addresses named by their order, so that the same one is the same."""
    names: dict[str, str] = {}
    lines = [line for line in text.splitlines() if line]
    return [
        _RANDOM.sub(lambda found: names.setdefault(found[0], f"<{len(names)}>"), line)
        for line in lines
    ]


def test_the_first_conversation_goes_as_the_page_of_messages_prints_it(node: Node) -> None:
    said = node.manage("first_conversation")
    printed = _block("text", after="<!-- conversation:")
    assert _with_names_for_what_is_random(said) == _with_names_for_what_is_random(printed)


@pytest.mark.long
def test_the_first_conversation_finds_the_node_that_runs_in_data_dir(
    node: Node, tmp_path: Path
) -> None:
    write_address(tmp_path, Address(f"127.0.0.1:{node.port}", "localhost"))
    environment = {**node.environment, "DATA_DIR": str(tmp_path)}
    del environment["PORT"], environment["HOST"]
    command = [sys.executable, "manage.py", "first_conversation"]
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    printed = _block("text", after="<!-- conversation:")
    assert done.stdout.count("alice >") == printed.count("alice >") > 0


@pytest.mark.long
def test_the_first_conversation_may_be_cut_short_by_its_reader(node: Node) -> None:
    command = f"{sys.executable} manage.py first_conversation | head -n 1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=ROOT,
        env=node.environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stderr == ""
    assert done.stdout.splitlines()[-1] == "0"


async def test_the_frame_to_begin_with_by_hand_opens_a_session(node: Node) -> None:
    frame = _block("json", after="Begin with")
    async with connect(f"ws://127.0.0.1:{node.port}/ws") as socket:
        await socket.send(frame)
        answer = json.loads(await socket.recv())
    assert answer["body"]["code"] == 200
    assert answer["body"]["runtimeToken"]


@pytest.mark.parametrize(
    "path", ["/", "/admin/login/", "/health/ready", "/health/live", "/metrics"]
)
def test_an_address_of_the_readme_answers(node: Node, path: str) -> None:
    assert path.removesuffix("login/") in _readme()
    assert node.get(path) == 200


def test_every_page_the_readme_names_is_there() -> None:
    named = re.findall(r"\]\(([\w./-]+)\)", _readme())
    assert named
    assert [page for page in named if not (ROOT / page).exists()] == []
