"""README.md and docs/install.md followed to the letter by a user of the machine who is not root.

The checkout is in a path with a blank. /opt and /srv are empty folders of the test's own, in which
that user may write.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.e2e.launched import Launched
from tests.node import ROOT, free_port

USER = "64321"
SET_UP_SECONDS = 1500.0

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(2 * SET_UP_SECONDS),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user"),
]


@pytest.fixture
def checkout() -> Iterator[Path]:
    """A clone of what is committed, of which the user is the owner; its home is beside it."""
    with tempfile.TemporaryDirectory(prefix="newcomer-") as place:
        clone = Path(place) / "a node"
        subprocess.run(["git", "clone", "--quiet", ROOT, clone], check=True)
        (Path(place) / "home").mkdir()
        subprocess.run(["chown", "--recursive", f"{USER}:{USER}", place], check=True)
        yield clone


def as_user(place: Path, script: str) -> list[str]:
    """The command that has the user run a shell's script in a folder, /opt and /srv empty."""
    begin = (
        'mount -t tmpfs -o mode=0777 none /opt; mount -t tmpfs -o mode=0777 none /srv; cd "$1"; '
        f'exec setpriv --reuid {USER} --regid {USER} --clear-groups --no-new-privs sh -euc "$0"'
    )
    return [
        "unshare",
        "--mount",
        "--propagation",
        "private",
        "sh",
        "-euc",
        begin,
        script,
        str(place),
    ]


def environment(checkout: Path) -> dict[str, str]:
    """Python as the tests have it; nothing of root's home."""
    path = f"{Path(sys.executable).resolve().parent}:{os.environ['PATH']}"
    return {"HOME": str(checkout.parent / "home"), "PATH": path, "VIRTUAL_ENV": "", "CI": ""}


def commands(page: str, section: str) -> list[str]:
    """What a section of a page has set as code, block by block."""
    text = (ROOT / page).read_text(encoding="utf-8")
    text = text.split(f"\n## {section}\n")[1].split("\n## ")[0]
    blocks = re.findall(r"(?:^ {4,}\S.*\n)+", text, re.MULTILINE)
    return [re.sub(r"^ +", "", block, flags=re.MULTILINE) for block in blocks]


def serves_until_it_is_told_to_stop(node: Launched) -> None:
    node.line_with("ready:", SET_UP_SECONDS)
    with httpx.Client(base_url=f"http://127.0.0.1:{node.port}", trust_env=False) as client:
        for path in ("/health/ready", "/", "/login/", "/static/msgnode/console.css"):
            assert client.get(path, timeout=60).status_code == 200, path
    node.line_with("in the background:", SET_UP_SECONDS)
    assert node.program("msgnode.servers.main").uids().real == int(USER)
    os.killpg(node.pid, signal.SIGINT)  # as Ctrl-C does
    node.status()
    assert node.survivors(20.0) == []
    assert "Traceback" not in node.text()


def test_make_run_sets_everything_up_in_a_path_with_a_blank(checkout: Path) -> None:
    command = as_user(checkout, "exec make run")
    data = checkout / "var"
    with Launched(data, free_port(), command, environment(checkout)) as node:
        serves_until_it_is_told_to_stop(node)
    assert data.stat().st_uid == int(USER)


def test_the_wheel_is_installed_and_run_by_the_pages_commands(checkout: Path) -> None:
    install, _without_network = commands("docs/install.md", "From the wheel")
    assert "--require-hashes" in install
    assert "messaging-node run" in install
    fetch = "make wheel && cd dist && cp ../requirements.lock messaging_node.requirements.lock"
    command = as_user(checkout, f"{fetch}\n{install}")
    with Launched(Path("/srv/node/var"), free_port(), command, environment(checkout)) as node:
        serves_until_it_is_told_to_stop(node)
