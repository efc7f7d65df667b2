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


@pytest.mark.parametrize(
    "path", [*ANYWHERE, *sorted(TESTS.glob("*.node.mjs"))], ids=lambda p: p.name
)
def test_in_nodejs(path: Any, nodejs: str) -> None:
    command = [nodejs, "--no-warnings", "--test", "--test-reporter=tap", str(path)]
    environment = {**os.environ, "NODE_OPTIONS": "--experimental-websocket"}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=110, cwd=PACKAGE, env=environment
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    assert "# pass 0" not in done.stdout


@pytest.mark.parametrize(
    "path", [*ANYWHERE, *sorted(TESTS.glob("*.browser.mjs"))], ids=lambda p: p.name
)
def test_in_chromium(path: Any, browser: Any) -> None:
    with served() as url:
        page = browser.new_page()
        try:
            page.goto(f"{url}/tests/browser/index.html")
            results = page.evaluate("files => window.runTests(files)", [path.name])
        finally:
            page.close()
    assert results
    assert [each for each in results if "error" in each] == []
