"""The JavaScript runtime's own tests, in Node.js and in Chromium.

*.test.mjs run in both, *.node.mjs in Node.js only, *.browser.mjs in Chromium only.
"""

from __future__ import annotations

import os
import subprocess
from typing import Any

import pytest

from tests.runtime.pages import PACKAGE, served

TESTS = PACKAGE / "tests"
ANYWHERE = sorted(TESTS.glob("*.test.mjs"))
SANDBOX_BASICS = "answers them|R42|R43|R45|R54"
"""Of the tests of sandboxes, those that do not wait for the end of a stub."""


def files(suffix: str) -> list[Any]:
    """Each file of tests with the pattern of those to run; the long run all of the sandboxes'."""
    found = []
    for path in [*ANYWHERE, *sorted(TESTS.glob(f"*.{suffix}"))]:
        if path.name.startswith("sandbox."):
            found.append(pytest.param(path, SANDBOX_BASICS, id=f"{path.name}, basics"))
            found.append(pytest.param(path, "", id=path.name, marks=pytest.mark.long))
        else:
            found.append(pytest.param(path, "", id=path.name))
    return found


@pytest.mark.parametrize(("path", "pattern"), files("node.mjs"))
def test_in_nodejs(path: Any, pattern: str, nodejs: str) -> None:
    command = [nodejs, "--no-warnings", "--test", "--test-reporter=tap"]
    command += [f"--test-name-pattern={pattern}"] if pattern else []
    done = subprocess.run(
        [*command, str(path)],
        capture_output=True,
        text=True,
        timeout=110,
        cwd=PACKAGE,
        env={**os.environ, "NODE_OPTIONS": "--experimental-websocket"},
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    assert "# pass 0" not in done.stdout


@pytest.mark.parametrize(("path", "pattern"), files("browser.mjs"))
def test_in_chromium(path: Any, pattern: str, browser: Any) -> None:
    with served() as url:
        page = browser.new_page()
        try:
            page.goto(f"{url}/tests/browser/index.html")
            results = page.evaluate("both => window.runTests(...both)", [[path.name], pattern])
        finally:
            page.close()
    assert results
    assert [each for each in results if "error" in each] == []
