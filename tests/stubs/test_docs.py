"""The examples of docs/stubs.md, run as they stand."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from django.test import Client

from tests.node import ROOT, Node
from tests.stubs.runtimes import node_js

PAGE = (ROOT / "docs" / "stubs.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("language", ["js", "python"])
def test_the_example_gets_an_object_and_leaves(language: str, node: Node, tmp_path: Path) -> None:
    found = re.search(rf"<!-- example: .*? -->\n```{language}\n(.*?)```", PAGE, re.DOTALL)
    assert found, f"no example in {language}"
    example = tmp_path / ("example.mjs" if language == "js" else "example.py")
    example.write_text(found[1].replace("127.0.0.1:8000", f"127.0.0.1:{node.port}"))
    command = [sys.executable] if language == "python" else node_js()
    if language == "js":
        fetch_as_the_page_says(tmp_path)
    done = subprocess.run(
        [*command, str(example)],
        capture_output=True,
        text=True,
        timeout=30,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr
    told = done.stdout.splitlines()
    assert told[:3] == ["stub: created", "stub: in-progress", "stub: live"]
    assert re.fullmatch(r"my object: comm://localhost/[0-9a-f-]{36}", told[3])
    assert told[4:] == ["stub: disconnected"]


def fetch_as_the_page_says(place: Path) -> None:
    answer = Client().get("/.well-known/runtime/js.tgz")
    with tarfile.open(fileobj=io.BytesIO(answer.content)) as archive:
        archive.extractall(place, filter="data")
