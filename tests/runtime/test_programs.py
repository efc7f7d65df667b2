"""The programs of docs/hyperties.md and of the packages' pages, run as they stand."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from msgnode.stubs import wheel
from msgnode.stubs.views import javascript_package
from tests.node import ROOT, Node, running
from tests.stubs.runtimes import node_js
from tests.stubs.test_docs import install_as_the_page_says

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("p2p")]

PAGE = (ROOT / "docs" / "hyperties.md").read_text(encoding="utf-8")
PROGRAMS = dict(re.findall(r"<!-- program: (\S+) -->\n```\w+\n(.*?)```", PAGE, re.DOTALL))
LOOPBACK = """import aioice.ice, runpy, sys
aioice.ice.get_host_addresses = lambda use_ipv4, use_ipv6: ["127.0.0.1"]
sys.argv.pop(0)
runpy.run_path(sys.argv[0], run_name="__main__")"""
"""aioice never offers 127.0.0.1 by itself."""


class Place:
    """A folder with both packages installed, and programs that reach the nodes of these ports."""

    def __init__(self, folder: Path, *ports: int) -> None:
        self._folder = folder
        self._ports = ports
        with tarfile.open(fileobj=io.BytesIO(javascript_package())) as archive:
            archive.extractall(folder / "node_modules", filter="data")
        (folder / "node_modules" / "package").rename(folder / "node_modules" / "msgnode-runtime")
        with zipfile.ZipFile(io.BytesIO(wheel.build())) as packed:
            packed.extractall(folder / "wheel")  # noqa: S202 (our own)

    @contextmanager
    def started(self, name: str, text: str = "", *words: str) -> Iterator[subprocess.Popen[str]]:
        """A program that runs."""
        text = text or PROGRAMS[name]
        for number, port in enumerate(self._ports):
            text = text.replace(f"127.0.0.1:{8000 + number}", f"127.0.0.1:{port}")
        path = self._folder / name
        path.write_text(text, encoding="utf-8")
        command = node_js() if path.suffix == ".mjs" else [sys.executable, "-c", LOOPBACK]
        environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(self._folder / "wheel")}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        with subprocess.Popen(
            [*command, str(path), *words], cwd=self._folder, env=environment, text=True, **pipes
        ) as process:
            try:
                yield process
            finally:
                process.kill()

    def said(self, name: str, text: str = "") -> list[str]:
        """What a program has written, when it has ended well."""
        with self.started(name, text) as process:
            out, errors = process.communicate(timeout=60)
            assert process.returncode == 0, errors
        return out.splitlines()


def reachable(process: subprocess.Popen[str]) -> str:
    assert process.stdout
    line = process.stdout.readline()
    assert line.startswith("reachable at hyperty://"), line or process.communicate()
    return line.split()[-1]


@pytest.mark.parametrize(("answer", "ask"), [("answer.mjs", "ask.py"), ("answer.py", "ask.mjs")])
def test_a_hyperty_in_one_language_is_found_and_reached_in_the_other(
    answer: str, ask: str, node: Node, tmp_path: Path
) -> None:
    place = Place(tmp_path, node.port)
    with place.started(answer) as process:
        reachable(process)
        assert place.said(ask) == ["You said hello."]


def test_a_hyperty_of_another_domain_is_found_and_reached(
    node: Node, tmp_path: Path, template: Path
) -> None:
    with running(tmp_path / "b", template, DOMAIN="b.localhost") as other:
        there = Place(tmp_path / "there", other.port)
        program = PROGRAMS["answer.mjs"].replace('"localhost"', '"b.localhost"')
        program = program.replace("{ localhost:", '{ "b.localhost":')
        here = Place(tmp_path / "here", node.port, other.port)
        with there.started("answer.mjs", program) as process:
            reachable(process)
            for name in ("abroad.mjs", "abroad.py"):
                assert here.said(name) == ["You said hello.", "node"]


def test_two_talk_directly(node: Node, tmp_path: Path) -> None:
    (said,) = Place(tmp_path, node.port).said("direct.py")
    assert said.startswith("hello, directly Its runtime is runtime://localhost/")


def test_an_object_is_shared(node: Node, tmp_path: Path) -> None:
    place = Place(tmp_path, node.port)
    with place.started("share.mjs") as process:
        reachable(process)
        assert place.said("observe.py") == ["Picnic ['Bob']"]


def test_a_chat_has_a_history_and_a_bot(node: Node, tmp_path: Path) -> None:
    home = f"http://127.0.0.1:{node.port}"
    place = Place(tmp_path, node.port)
    programs = {path.name: path.read_text() for path in (ROOT / "examples" / "chat").iterdir()}

    def says(process: subprocess.Popen[str]) -> str:
        assert process.stdout
        return process.stdout.readline().strip() or str(process.communicate(timeout=10))

    def say(process: subprocess.Popen[str], text: str) -> None:
        assert process.stdin
        process.stdin.write(f"{text}\n")
        process.stdin.flush()

    with (
        place.started("room.mjs", programs["room.mjs"], home) as room,
        ExitStack() as others,
    ):
        assert says(room) == "The room is open."
        bot = others.enter_context(place.started("bot.py", programs["bot.py"], home))
        assert says(bot) == "The bot listens."
        program = programs["chat.mjs"]
        alice = others.enter_context(place.started("chat.mjs", program, "Alice", home))
        say(alice, "@bot echo hello, all")
        assert says(alice) == "Alice: @bot echo hello, all"
        assert says(alice) == "bot: hello, all"
        ben = others.enter_context(place.started("chat.mjs", program, "Ben", home))
        assert [says(ben), says(ben)] == ["Alice: @bot echo hello, all", "bot: hello, all"]


def test_hyperties_of_one_runtime_need_no_node(tmp_path: Path) -> None:
    assert Place(tmp_path).said("alone.mjs") == ["hello"]


@pytest.mark.parametrize(
    ("page", "name"), [("js/README.md", "readme.mjs"), ("python/README.md", "readme.py")]
)
def test_every_block_of_a_packages_page_runs(
    page: str, name: str, node: Node, tmp_path: Path
) -> None:
    text = (ROOT / "msgnode" / "runtime" / page).read_text(encoding="utf-8")
    blocks = re.findall(r"```(\w+)\n(.*?)```", text, re.DOTALL)
    assert blocks
    home = f"http://127.0.0.1:{node.port}"
    for language, block in blocks:
        if language == "console":
            first, second = (line.removeprefix("$ ") for line in block.splitlines())
            assert first == "python3 -m venv env"
            assert install_as_the_page_says(tmp_path / "empty", second, node)
            continue
        program = block.replace(
            'Runtime({ domain: "node.example" })',
            f'Runtime({{ domain: "localhost", catalogues: {{ localhost: "{home}" }} }})',
        )
        program = program.replace(
            'Settings("node.example")',
            f'Settings("localhost", catalogues={{"localhost": "{home}"}})',
        )
        assert program != block
        program = program.replace('"bob"', f'"{name}"')  # others of this node are called bob
        assert Place(tmp_path, node.port).said(name, program) == ["You said hello."]
