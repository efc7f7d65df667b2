"""Each package by itself, in an empty folder: a stub from abroad runs in a sandbox there."""

from __future__ import annotations

import gzip
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path
from typing import Any

import pytest

from msgnode.runtime.python import __version__
from msgnode.stubs import wheel
from msgnode.stubs.views import find_package, javascript_package
from tests.node import ROOT, Node
from tests.runtime.pages import served
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


JAVASCRIPT = ROOT / "msgnode" / "runtime" / "js"
_STATIC = re.compile(r'^(?:import|export)\b[^;]*?\bfrom\s+"(\.[^"]+)";', re.MULTILINE)
MOST = 64 * 1024
"""Bytes of the modules that a page loads before it has used anything, each gzipped by itself."""


def modules_of(path: Path, found: dict[str, bytes] | None = None) -> dict[str, bytes]:
    """A module and all that it imports at once, by its path in the package."""
    found = {} if found is None else found
    name = path.relative_to(JAVASCRIPT / "src").as_posix()
    if name not in found:
        found[name] = path.read_bytes()
        for other in _STATIC.findall(found[name].decode()):
            modules_of((path.parent / other).resolve(), found)
    return found


def test_a_page_loads_what_it_uses() -> None:
    core = modules_of(JAVASCRIPT / "src" / "index.js")
    folders = {name.partition("/")[0] for name in core if "/" in name}
    assert folders == {"sandbox", "syncher"}
    names = ("qos", "invitations", "cards", "openid", "log-in", "rest-registries", "sha256")
    others = (*(f"{name}.js" for name in names), "sandbox/browser.js", "syncher/syncher.js")
    assert not set(others) & set(core)
    assert all((JAVASCRIPT / "src" / name).is_file() for name in others)
    size = sum(len(gzip.compress(each, 9)) for each in core.values())
    print(f"{len(core)} modules, {size} bytes gzipped")
    assert size <= MOST


@pytest.mark.parametrize("language", ["js", "python"])
def test_a_package_has_a_version_of_its_own(language: str) -> None:
    package = find_package(language)
    assert package
    if language == "js":
        said = (JAVASCRIPT / "src" / "runtime.js").read_text()
        assert f'export const VERSION = "{package.version}";' in said
    else:
        assert package.version == __version__ == wheel.VERSION
    assert package.descriptor()["version"] == package.version


def test_pages_install_the_wheel_of_this_version() -> None:
    pages = [
        *ROOT.glob("docs/*.md"),
        *ROOT.glob("examples/*/*.md"),
        ROOT / "msgnode/runtime/python/README.md",
    ]
    named = re.findall(r"hyperty_runtime-([\d.]+)-py3", "".join(map(Path.read_text, pages)))
    assert len(named) >= 6 and set(named) == {__version__}


@pytest.mark.long
def test_the_source_distribution_makes_the_same_wheel_and_it_has_types(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "msgnode.stubs.wheel", str(tmp_path)], cwd=ROOT, timeout=60
    )
    assert done.returncode == 0
    with tarfile.open(tmp_path / f"{wheel.NAME}-{__version__}.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    source = tmp_path / f"{wheel.NAME}-{__version__}"
    shutil.rmtree(source / "dist", ignore_errors=True)
    command = [
        sys.executable,
        "-m",
        "hatchling",
        "build",
        "-t",
        "wheel",
    ]  # as `python -m build` does
    subprocess.run(command, cwd=source, check=True, capture_output=True, timeout=60)
    made = zipfile.ZipFile(source / "dist" / wheel.FILE_NAME)
    ours = zipfile.ZipFile(io.BytesIO(wheel.build()))
    code = [name for name in ours.namelist() if ".dist-info/" not in name]
    assert set(made.namelist()) == set(ours.namelist())
    assert all(made.read(name) == ours.read(name) for name in code)

    environment = tmp_path / "empty"
    venv.create(environment, with_pip=False, symlinks=True)
    python = str(environment / "bin" / "python")
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index"]
    subprocess.run(
        [*pip, str(source / "dist" / wheel.FILE_NAME)], check=True, capture_output=True, timeout=60
    )
    program = tmp_path / "program.py"
    program.write_text(TYPED)
    checked = subprocess.run(
        [*f"{sys.executable} -m mypy --strict --python-executable {python}".split(), str(program)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=240,
    )
    errors = re.findall(r"^program.py:(\d+): error: .*$", checked.stdout, re.MULTILINE)
    wrong = [str(n) for n, line in enumerate(TYPED.splitlines(), 1) if "# wrong" in line]
    assert errors == wrong, checked.stdout


TYPED = """
from hyperty_runtime import Message, Runtime, Settings, openid


def echo(value: str, message: Message) -> str:
    return value


async def main() -> str:
    async with Runtime(Settings("example.org")) as runtime:
        await runtime.log_in(openid(issuer="https://example.org/o", client_id="app"))
        me = await runtime.hyperty("me", handlers=echo)
        bob, *_ = await runtime.find(user="bob")
        await me.request(bob, "hello", p2p="yes")  # wrong
        await runtime.find(users="bob")  # wrong
        return runtime.explain(bob).why + runtime.version
"""


TOOLS = ROOT / ".ci" / "js" / "node_modules"
MINIFIED = 26 * 1024
"""Most bytes, gzipped, that a page loads of the minified package before it uses more; now 25."""


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `npm pack` makes."""
    if shutil.which("npm") is None:
        pytest.skip("no npm on this machine")
    if not all((TOOLS / each).is_dir() for each in ("esbuild", "terser")):
        pytest.skip("the tools of .ci/js are not installed: .ci/js/lint does it")
    source = tmp_path_factory.mktemp("packed") / "source"
    shutil.copytree(JAVASCRIPT, source)
    shutil.copy(ROOT / "LICENSE", source)
    (source / "node_modules").symlink_to(TOOLS)
    return source / npm("pack", "--silent", cwd=source).split()[-1]


def npm(*words: str, cwd: Path) -> str:
    home = {"PATH": os.environ["PATH"], "HOME": str(cwd.parent)}
    done = subprocess.run(
        ["npm", *words], cwd=cwd, capture_output=True, text=True, timeout=120, env=home
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.long
def test_npm_packs_what_the_node_serves_and_installs_it_in_an_empty_folder(
    packed: Path, tmp_path: Path
) -> None:
    with (
        tarfile.open(packed) as made,
        tarfile.open(fileobj=io.BytesIO(javascript_package())) as ours,
    ):
        minified = {name for name in made.getnames() if name.startswith("package/src/min/")}
        assert set(made.getnames()) - minified == set(ours.getnames())
    (tmp_path / "package.json").write_text('{"type": "module"}')
    npm("install", "--offline", "--no-audit", "--no-fund", str(packed), cwd=tmp_path)
    program = """
        import { Runtime } from "msgnode-runtime";
        import { openid } from "msgnode-runtime/openid";
        import { Syncher } from "msgnode-runtime/syncher";
        import { PolicyEngine } from "msgnode-runtime/policies";
        import { activate } from "msgnode-runtime/protostub";
        const all = [Runtime, Syncher, openid, PolicyEngine, activate];
        console.log(all.map((each) => each.name).join(" "));
    """
    done = subprocess.run(
        [*node_js(), "--input-type=module", "-e", program],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout.split() == ["Runtime", "Syncher", "openid", "PolicyEngine", "activate"]


IN_A_PAGE = """async (port) => {
  const { Runtime } = await import("/package/src/min/index.js");
  const { Syncher } = await import("/package/src/min/syncher.js");
  const catalogues = { localhost: `http://127.0.0.1:${port}` };
  const runtime = new Runtime({ domain: "localhost", catalogues, p2p: {} });
  await runtime.logIn();
  const me = await runtime.hyperty("me", { handlers: (value) => value });
  const said = [await me.request(me.url, "hello")];
  const room = await new Syncher(me).create({ topic: "Picnic" });
  said.push(room.data.topic, runtime.p2p.connections.length);
  const visitor = new Runtime({ domain: "visitor.test", catalogues });
  const asked = { type: "read", from: `${visitor.url}/x`, to: "comm://localhost/nobody" };
  said.push(await visitor.bus.request(asked).catch(({ code, name }) => `${name} ${code}`));
  said.push(document.querySelectorAll("iframe[sandbox]").length);
  await Promise.all([runtime, visitor].map((each) => each.close()));
  return said;
}"""


@pytest.mark.long
def test_the_minified_package_is_small_and_works_in_a_page(
    packed: Path, node: Node, browser: Any, tmp_path: Path
) -> None:
    with tarfile.open(packed) as archive:
        archive.extractall(tmp_path, filter="data")
    core = (tmp_path / "package" / "src" / "min" / "index.js").read_bytes()
    size = len(gzip.compress(core, 9))
    print(f"{size} bytes gzipped")
    assert size <= MINIFIED
    assert not re.search(rb'(?:^|;)(?:import|export)[^;("]*"', core), "it is one file"
    (tmp_path / "index.html").write_text("<!doctype html><title>A page</title>")
    with served(tmp_path) as url:
        page = browser.new_page()
        try:
            page.goto(f"{url}/index.html")
            said = page.evaluate(IN_A_PAGE, node.port)
        finally:
            page.close()
    assert said == ["hello", "Picnic", 0, "AnswerError 404", 1]
