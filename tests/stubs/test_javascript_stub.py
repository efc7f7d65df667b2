"""Case 54, step by step: runs tests/stubs/protostub.test.mjs in Node.js."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.stubs.runtimes import node_js

STEPS = Path(__file__).with_name("protostub.test.mjs")


def test_case_54_each_step_of_the_javascript_stub() -> None:
    command = [*node_js(), "--test", "--test-reporter=tap", str(STEPS)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    assert "# pass 0" not in done.stdout
