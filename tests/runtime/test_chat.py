"""The chat of docs/data-objects.md, run as it stands: each language with the other."""

from __future__ import annotations

import os
import queue
import re
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.node import ROOT, Node
from tests.stubs.runtimes import node_js
from tests.stubs.test_docs import fetch_as_the_page_says, install_as_the_page_says

PAGE = (ROOT / "docs" / "data-objects.md").read_text(encoding="utf-8")
SECONDS = 60.0


class Chat:
    """One who chats: a program of the page in a process of its own."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def types(self, text: str) -> None:
        assert self._process.stdin
        self._process.stdin.write(f"{text}\n")
        self._process.stdin.flush()

    def sees(self) -> str:
        return self._lines.get(timeout=SECONDS)

    def leaves(self) -> int:
        assert self._process.stdin
        self._process.stdin.close()
        return self._process.wait(SECONDS)

    def _read(self) -> None:
        assert self._process.stdout
        for line in self._process.stdout:
            self._lines.put(line.rstrip("\n"))


@contextmanager
def chat(command: list[str], place: Path, *words: str) -> Iterator[Chat]:
    with subprocess.Popen(
        [*command, *words],
        cwd=place,
        env={"PATH": os.environ["PATH"], "NODE_NO_WARNINGS": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield Chat(process)
        finally:
            process.kill()


def program(language: str, node: Node, place: Path) -> list[str]:
    """The page's program, and what it needs, in a folder."""
    found = re.search(rf"<!-- example: .*? -->\n```{language}\n(.*?)```", PAGE, re.DOTALL)
    assert found, f"no example in {language}"
    assert len(found[1].splitlines()) <= 36
    file = place / ("chat.mjs" if language == "js" else "chat.py")
    file.write_text(found[1].replace("127.0.0.1:8000", f"127.0.0.1:{node.port}"))
    if language == "js":
        fetch_as_the_page_says(place)
        return [*node_js(), str(file)]
    install = re.search(r"^\$ (.*pip install.*)$", PAGE, re.MULTILINE)
    assert install
    return [install_as_the_page_says(place, install[1], node), str(file)]


@pytest.mark.long
def test_two_chat_in_either_language(node: Node, tmp_path: Path) -> None:
    commands = {language: program(language, node, tmp_path) for language in ("js", "python")}
    for one, other in (("js", "python"), ("python", "js")):
        with chat(commands[one], tmp_path, "Alice") as alice:
            url = alice.sees().removeprefix("The room is ")
            alice.types("Anybody there?")
            assert alice.sees() == "Alice: Anybody there?"
            with chat(commands[other], tmp_path, "Bob", url) as bob:
                assert [bob.sees(), bob.sees()] == [
                    "The topic is the picnic.",
                    "Alice: Anybody there?",
                ]
                bob.types("I bring the bread. Grüße!")
                assert alice.sees() == bob.sees() == "Bob: I bring the bread. Grüße!"
                alice.types("/topic the weather")
                assert bob.sees() == "topic: the weather"
                assert bob.leaves() == 0
            alice.types("He has gone.")
            assert alice.sees() == "Alice: He has gone."
            assert alice.leaves() == 0
