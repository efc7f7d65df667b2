"""Each package by itself, in an empty folder: a stub from abroad runs in a sandbox there."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from msgnode.stubs.views import javascript_package
from tests.node import ROOT, Node
from tests.stubs.runtimes import node_js
from tests.stubs.test_docs import fetch_as_the_page_says, found_command, install_as_the_page_says

IN_PYTHON = """
import asyncio

from hyperty_runtime import Runtime, Settings


async def main():
    catalogues = {"localhost": "http://127.0.0.1:PORT"}
    async with Runtime(Settings("visitor.test", catalogues=catalogues)) as runtime:
        asked = {"type": "read", "from": f"{runtime.url}/x", "to": "comm://localhost/nobody"}
        answer = await runtime.bus.request(asked)
        print(answer["body"]["code"], len(runtime.resolver.loader.sandboxes))


asyncio.run(main())
"""
IN_JAVASCRIPT = """
import { Runtime } from "./package/src/node.js";

const catalogues = { localhost: "http://127.0.0.1:PORT" };
const runtime = new Runtime({ domain: "visitor.test", catalogues });
const asked = { type: "read", from: `${runtime.url}/x`, to: "comm://localhost/nobody" };
const error = await runtime.bus.request(asked).catch((error) => error);
console.log(error.code, [...runtime.stubs].filter(({ sandbox }) => sandbox).length);
await runtime.close();
"""


@pytest.mark.parametrize("language", ["javascript", "python"])
def test_a_visitor_from_an_empty_folder(language: str, node: Node, tmp_path: Path) -> None:
    is_python = language == "python"
    script = tmp_path / ("visitor.py" if is_python else "visitor.mjs")
    text = IN_PYTHON if is_python else IN_JAVASCRIPT
    script.write_text(text.replace("PORT", str(node.port)))
    if is_python:
        command = [install_as_the_page_says(tmp_path, found_command("pip install"), node)]
    else:
        command = node_js()
        fetch_as_the_page_says(tmp_path)
    done = subprocess.run(
        [*command, str(script)],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"]},
    )
    assert done.stdout.split() == ["404", "1"], done.stdout + done.stderr


@pytest.mark.long
def test_npm_packs_what_the_node_serves_and_installs_it_in_an_empty_folder(tmp_path: Path) -> None:
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("no npm on this machine")
    source = tmp_path / "source"
    shutil.copytree(ROOT / "msgnode" / "runtime" / "js", source)
    shutil.copy(ROOT / "LICENSE", source)

    def run(*command: str, cwd: Path) -> str:
        home = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
        done = subprocess.run(
            command, cwd=cwd, capture_output=True, text=True, timeout=60, env=home
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    packed = source / run(npm, "pack", "--silent", cwd=source).split()[-1]
    with (
        tarfile.open(packed) as made,
        tarfile.open(fileobj=io.BytesIO(javascript_package())) as served,
    ):
        assert set(made.getnames()) == set(served.getnames())
    empty = tmp_path / "empty"
    empty.mkdir()
    (empty / "package.json").write_text('{"type": "module"}')
    run(npm, "install", "--offline", "--no-audit", "--no-fund", str(packed), cwd=empty)
    program = """
        import { Runtime, Syncher, openid } from "msgnode-runtime";
        import { PolicyEngine } from "msgnode-runtime/policies";
        import { activate } from "msgnode-runtime/protostub";
        const all = [Runtime, Syncher, openid, PolicyEngine, activate];
        console.log(all.map((each) => each.name).join(" "));
    """
    said = run(*node_js(), "--input-type=module", "-e", program, cwd=empty)
    assert said.split() == ["Runtime", "Syncher", "openid", "PolicyEngine", "activate"]
