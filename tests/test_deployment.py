"""The settings of production pass Django's own checks, and nothing is served that should not be."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.node import ROOT

PRODUCTION = {
    "NODE_MODE": "production",
    "SECRET_KEY": "k3-Jv0yT8wq1Zs4Lr7Xn2Bm9Pd6Gf5Hc0Ua-Qe8Wo3Ri1Ty7Ip4",
    "DATABASE_URL": "postgres://node:secret@localhost:5432/node",
    "REDIS_URL": "redis://localhost:6379/0",
    "ALLOWED_HOSTS": "node.example.org",
    "DOMAIN": "node.example.org",
}


def check(place: Path, **more: str) -> subprocess.CompletedProcess[str]:
    """`manage.py check --deploy`; it asks no database and no Redis."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    return subprocess.run(
        [sys.executable, "manage.py", "check", "--deploy", "--fail-level", "WARNING"],
        cwd=ROOT, env={**kept, **PRODUCTION, "DATA_DIR": str(place), **more},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


def test_production_is_clean(tmp_path: Path) -> None:
    done = check(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "no issues" in done.stdout + done.stderr
    assert "0 silenced" in done.stdout + done.stderr


def test_a_weak_secret_is_told(tmp_path: Path) -> None:
    done = check(tmp_path, SECRET_KEY="short")
    assert done.returncode == 1
    assert "security.W009" in done.stderr


@pytest.mark.parametrize(
    ("said", "status", "result", "told"),
    [
        ("No known vulnerabilities found", 0, 0, "no known vulnerability"),
        ("Found 2 known vulnerabilities in 1 package", 1, 1, "Found 2"),
        ("ConnectionError: no route", 1, 0, "LEFT OUT"),
        ("", 1, 0, "no answer in time"),
    ],
)
def test_the_audit_fails_for_what_it_finds_and_never_for_the_want_of_a_network(
    tmp_path: Path, said: str, status: int, result: int, told: str
) -> None:
    tool = tmp_path / "pip-audit"
    tool.write_text(f"#!/bin/sh\necho '{said}'\nexit {status}\n")
    tool.chmod(0o700)
    done = subprocess.run(
        [ROOT / ".ci" / "audit", tool, "requirements.txt"],
        cwd=ROOT, capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip
    assert done.returncode == result
    assert told in done.stdout
