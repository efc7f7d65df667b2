"""The rows of the builder: conditions read and written by the script decide as they did."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from policies.authoring.cases import run_case
from tests.policies.test_cases import CASES

HERE = Path(__file__).parent
SCRIPT = HERE.parents[1] / "policies/static/policies/condition.js"
REWRITE = """
const { read, write } = await import(process.argv[1]);
const lines = (await import("node:fs")).readFileSync(0, "utf8").split("\\n").filter(Boolean);
for (const line of lines) {
  try { console.log(JSON.stringify(write(read(JSON.parse(line))))); } catch { console.log("null"); }
}
"""
SECONDS = 100


def run(*command: str, text: str = "") -> str:
    done = subprocess.run(
        command, input=text, capture_output=True, text=True, timeout=SECONDS, cwd=HERE
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    return done.stdout


def test_the_script_keeps_its_own_rules(nodejs: str) -> None:
    said = run(nodejs, "--no-warnings", "--test", "--test-reporter=tap", "condition.test.mjs")
    assert "# pass 0" not in said


def test_what_rows_write_decides_as_what_they_read(nodejs: str) -> None:
    cases: list[dict[str, Any]] = [case for case in CASES if "cond" in case]
    lines = "\n".join(json.dumps(case["cond"]) for case in cases)
    said = run(
        nodejs, "--no-warnings", "--input-type=module", "-e", REWRITE, SCRIPT.as_uri(), text=lines
    )
    written = [json.loads(line) for line in said.splitlines()]
    assert len(written) == len(cases)
    shown = [(case, cond) for case, cond in zip(cases, written, strict=True) if cond is not None]
    assert len(shown) > len(cases) * 0.8
    for case, cond in shown:
        assert run_case({**case, "cond": cond}).faults == (), case["id"]
