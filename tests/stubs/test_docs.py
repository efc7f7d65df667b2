"""The examples of docs/stubs.md, run as they stand."""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import venv
from pathlib import Path

import pytest
import websockets
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
    if language == "python":
        command = [install_as_the_page_says(tmp_path, found_command("pip install"), node)]
    else:
        command = node_js()
        fetch_as_the_page_says(tmp_path)
    done = subprocess.run(
        [*command, str(example)],
        capture_output=True,
        text=True,
        timeout=30,
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"]},
    )
    assert done.returncode == 0, done.stderr
    told = done.stdout.replace("stub: deploying\n", "").splitlines()  # the runtime's own word
    assert told[:3] == ["stub: created", "stub: in-progress", "stub: live"]
    assert re.fullmatch(r"my object: comm://localhost/[0-9a-f-]{36}", told[3])
    assert told[4:] == ["stub: disconnected"]


def found_command(words: str) -> str:
    found = re.search(rf"^\$ (.*{words}.*)$", PAGE, re.MULTILINE)
    assert found, f"no command with {words}"
    return found[1]


def install_as_the_page_says(place: Path, command: str, node: Node) -> str:
    """An empty virtual environment with the node's wheel; `websockets` comes from this one's, since
    tests reach no index of packages."""
    environment = place / "env"
    venv.create(environment, with_pip=False, symlinks=True)
    python = environment / "bin" / "python"
    address = command.split()[-1].replace("127.0.0.1:8000", f"127.0.0.1:{node.port}")
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--no-deps"]
    done = subprocess.run(
        [*pip, "--no-index", "--no-cache-dir", "--disable-pip-version-check", address],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    (packages,) = environment.glob("lib/python*/site-packages")
    shutil.copytree(Path(websockets.__file__).parent, packages / "websockets")
    return str(python)


def fetch_as_the_page_says(place: Path) -> None:
    answer = Client().get("/.well-known/runtime/js.tgz")
    with tarfile.open(fileobj=io.BytesIO(answer.content)) as archive:
        archive.extractall(place, filter="data")
