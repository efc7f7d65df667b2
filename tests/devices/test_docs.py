"""The walk through docs/connectors.md, run as it stands."""

from __future__ import annotations

import os
import re
import subprocess

from tests.node import ROOT, Node
from tests.services import needs_program

PAGE = (ROOT / "docs" / "connectors.md").read_text(encoding="utf-8")


def test_curl_alone_gets_an_address_and_hears_an_update(node: Node) -> None:
    for program in ("curl", "jq"):
        needs_program(program)
    found = re.search(r"<!-- example: .*? -->\n```sh\n(.*?)```", PAGE, re.DOTALL)
    assert found
    script = found[1].replace("127.0.0.1:8000", f"127.0.0.1:{node.port}")
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        capture_output=True,
        text=True,
        timeout=60,
        env={"PATH": os.environ["PATH"]},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    said = re.search(r"It prints\n\n```text\n(.*?)```", PAGE, re.DOTALL)
    assert said
    expected = re.escape(said[1]).replace("…", "[0-9a-f-]{36}")
    assert re.fullmatch(expected, done.stdout), done.stdout
