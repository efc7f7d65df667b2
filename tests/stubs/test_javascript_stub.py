"""Case 54, step by step: the test files of the JavaScript stub, and of it over HTTP, in Node.js."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.stubs.runtimes import node_js

HERE = Path(__file__).parent


@pytest.mark.parametrize("name", ["protostub", "http-protostub"])
def test_case_54_each_step_of_the_javascript_stub(name: str) -> None:
    steps = HERE / f"{name}.test.mjs"
    command = [*node_js(), "--test", "--test-reporter=tap", str(steps)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    assert "# pass 0" not in done.stdout
