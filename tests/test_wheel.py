"""The wheel of the node: installed in an environment of its own, it runs as a checkout does."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import httpx
import pytest

from tests.e2e.launched import Launched
from tests.node import ROOT, free_port

pytestmark = [pytest.mark.long, pytest.mark.timeout(400)]

PACKAGES = ("msgnode", "policies", "registry", "spark")


def run(*command: object, cwd: Path = ROOT) -> str:
    """What a program says; it has to succeed."""
    done = subprocess.run(
        [str(word) for word in command], cwd=cwd, capture_output=True, text=True, timeout=200,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As `make wheel` makes it, elsewhere."""
    place = tmp_path_factory.mktemp("dist")
    run(
        sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation",
        "--no-index", "--wheel-dir", place, ".",
    )  # fmt: skip
    return next(place.glob("messaging_node-*.whl"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of programs of a new environment that has the wheel. What it depends on is lent
    by the environment of the tests: nothing is fetched."""
    place = tmp_path_factory.mktemp("installed") / "venv"
    run(sys.executable, "-m", "venv", "--without-pip", place)
    run(
        sys.executable, "-m", "pip", "--python", place / "bin" / "python", "install", "--quiet",
        "--no-deps", "--no-index", wheel,
    )  # fmt: skip
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    lent = place / "lib" / version / "site-packages" / "lent.pth"
    lent.write_text(sysconfig.get_path("purelib") + "\n")
    return place / "bin"


def test_it_has_every_file_that_is_no_test_and_no_other(wheel: Path) -> None:
    tracked = run(
        "git",
        "ls-files",
        "--cached",
        "--others",
        "--exclude-standard",
        "--",
        *PACKAGES,
        "templates",
        "deploy",
    ).splitlines()
    expected = {
        f"msgnode/share/{path}" if path.startswith(("templates/", "deploy/")) else path
        for path in tracked
        if not re.match(r"msgnode/runtime/\w+/tests/", path)
    }
    shared = ("supervisord.conf", ".env.example", "LICENSE")
    expected |= {f"msgnode/share/{name}" for name in shared}
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
        metadata = next(name for name in archive.namelist() if name.endswith("/METADATA"))
        told = archive.read(metadata).decode()
    assert names == expected
    assert "License-File: msgnode/runtime/js/src/vendor/LICENSE" in told
    for line in (ROOT / "requirements.txt").read_text(encoding="utf-8").splitlines():
        if name := re.match(r"[\w-]+", line):
            assert re.search(rf"^Requires-Dist: {name[0]}\b", told, re.MULTILINE | re.IGNORECASE)


def test_it_runs_where_it_is_installed(installed: Path, tmp_path: Path) -> None:
    place = run(installed / "python", "-c", "import msgnode; print(msgnode.__file__)", cwd=tmp_path)
    assert place.startswith(str(installed.parent))
    (tmp_path / ".env").write_text("DOMAIN=wheel.example\n")
    start = f"cd {tmp_path} && unset DATA_DIR DOMAIN && exec {installed}/messaging-node run"
    command = ["sh", "-c", start]
    with Launched(tmp_path / "var", free_port(), command) as node:
        assert "domain wheel.example" in node.ready()
        assert (tmp_path / "var" / "node.sqlite3").exists()
        assert "`messaging-node changepassword operator`" in node.text()
        pages = {
            "/health/ready": '"ready"',
            "/": "wheel.example",  # a template
            "/login/": "Password",
            "/static/msgnode/console.css": "{",
            "/static/msgnode/runtime/minibus.js": "export",
            "/.well-known/protocolstub/": "default",
            "/problems/": "Error codes",
            "/metrics": "msgnode_sessions",
        }
        with httpx.Client(base_url=f"http://127.0.0.1:{node.port}", trust_env=False) as client:
            for path, words in pages.items():
                answer = client.get(path, timeout=20)
                seen = answer.status_code, words in answer.text
                assert seen == (200, True), (path, answer.text)
            packages = client.get("/.well-known/runtime/", timeout=20)
            assert packages.status_code == 200, packages.text
        for words in ("msgnode.servers.main", "msgnode worker", "msgnode beat"):
            assert Path(node.program(words).cwd()) == tmp_path
        node.signal(signal.SIGTERM)
        assert node.status() == 0, node.text()
        assert node.survivors() == []
