"""The settings of production pass Django's own checks, and nothing is served that should not be."""

from __future__ import annotations

import json
import os
import re
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


CLEAN = {"name": "django", "version": "5.2", "vulns": []}
BAD = {"name": "oauth", "version": "1.0", "vulns": [{"id": "PYSEC-1"}, {"id": "PYSEC-2"}]}
SKIPPED = {"name": "anyio", "skip_reason": "not found on PyPI"}


@pytest.mark.parametrize(
    ("said", "result", "strictly", "told"),
    [
        ([CLEAN], 0, 0, "1 dependencies audited, no known vulnerability"),
        ([CLEAN, BAD], 1, 1, "VULNERABLE oauth 1.0: PYSEC-1, PYSEC-2"),
        ([BAD, SKIPPED], 1, 1, "VULNERABLE oauth 1.0"),
        ([CLEAN, SKIPPED], 0, 1, "NOT AUDITED (1 of 2 dependencies were skipped, such as anyio"),
        ([], 0, 1, "NOT AUDITED"),
        ("ConnectionError: no route", 0, 1, "NOT AUDITED (pypi: ConnectionError: no route; osv"),
        ("", 0, 1, "NOT AUDITED (pypi: no answer"),
    ],
)
def test_the_audit_is_green_only_if_every_dependency_was_looked_up(
    tmp_path: Path, said: object, result: int, strictly: int, told: str
) -> None:
    text = said if isinstance(said, str) else json.dumps({"dependencies": said, "fixes": []})
    (tmp_path / "said").write_text(text)
    tool = tmp_path / "pip-audit"
    tool.write_text(f"#!/bin/sh\ncat {tmp_path / 'said'}\n")
    tool.chmod(0o700)
    for options, expected in (([], result), (["--strict"], strictly)):
        done = subprocess.run(
            [ROOT / ".ci" / "audit", *options, tool, "requirements.txt"],
            cwd=ROOT, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert (done.returncode, told in done.stdout) == (expected, True), done.stdout
        if "NOT AUDITED" in told:
            assert "no known" not in done.stdout


def test_an_audit_that_does_not_end_is_none(tmp_path: Path) -> None:
    tool = tmp_path / "pip-audit"
    tool.write_text("#!/bin/sh\nexec sleep 60\n")
    tool.chmod(0o700)
    done = subprocess.run(
        [ROOT / ".ci" / "audit", "--strict", tool, "requirements.txt"],
        env={**os.environ, "AUDIT_SECONDS": "0.2"},
        cwd=ROOT, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert "NOT AUDITED (pypi: no answer in time" in done.stdout


def audit_waiving(tmp_path: Path, waivers: str) -> subprocess.CompletedProcess[str]:
    """The audit of a vulnerable dependency with waivers."""
    (tmp_path / "waivers.toml").write_text(waivers)
    (tmp_path / "said").write_text(json.dumps({"dependencies": [CLEAN, BAD], "fixes": []}))
    tool = tmp_path / "pip-audit"
    tool.write_text(f"#!/bin/sh\ncat {tmp_path / 'said'}\n")
    tool.chmod(0o700)
    return subprocess.run(
        [ROOT / ".ci" / "audit", "--strict", tool, "requirements.txt"],
        env={**os.environ, "AUDIT_WAIVERS": str(tmp_path / "waivers.toml")},
        cwd=ROOT, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


def waiver(id_: str, until: str, reason: str = "not called") -> str:
    return f'[[waiver]]\nid = "{id_}"\nreason = "{reason}"\nuntil = {until}\n'


@pytest.mark.parametrize(
    ("waivers", "status", "told"),
    [
        ("", 1, "VULNERABLE oauth 1.0: PYSEC-1, PYSEC-2"),
        (waiver("PYSEC-1", "9999-12-31"), 1, "VULNERABLE oauth 1.0: PYSEC-2"),
        (
            waiver("PYSEC-1", "9999-12-31") + waiver("PYSEC-2", "9999-12-31"),
            0,
            "waived until 9999-12-31: oauth PYSEC-2",
        ),
        (waiver("PYSEC-1", "2001-01-01"), 1, "PYSEC-1: the waiver ended on 2001-01-01: not called"),
        (waiver("PYSEC-1", "9999-12-31", ""), 1, "a waiver has an id, a reason and until"),
        ('[[waiver]]\nid = "PYSEC-1"\nreason = "x"\n', 1, "a waiver has an id, a reason and until"),
    ],
)
def test_a_waiver_holds_until_its_last_day_and_says_why(
    tmp_path: Path, waivers: str, status: int, told: str
) -> None:
    done = audit_waiving(tmp_path, waivers)
    assert (done.returncode, told in done.stdout) == (status, True), done.stdout


def test_what_a_running_node_needs_has_licences_that_are_allowed() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / ".ci" / "licences"],
        cwd=ROOT, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.long
def test_the_bill_of_materials_has_every_locked_package(tmp_path: Path) -> None:
    """The command of `make sbom`, which validates what it writes."""
    program = Path(sys.executable).with_name("cyclonedx-py")
    if not program.exists():
        pytest.skip("cyclonedx-py is for who makes releases")
    made = tmp_path / "sbom.json"
    done = subprocess.run(
        [program, "requirements", "--pyproject", "pyproject.toml", "--mc-type", "application",
         "--output-reproducible", "--validate", "--output-file", made, "requirements.lock"],
        cwd=ROOT, capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    bill = json.loads(made.read_text(encoding="utf-8"))
    assert bill["bomFormat"] == "CycloneDX"
    parts = {(part["name"].lower(), part.get("version")) for part in bill["components"]}
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    locked = re.findall(r"^([\w.-]+)(?:\[[\w,-]+\])?==([\w.+!]+)", lock, re.MULTILINE)
    assert len(locked) > 80
    assert {(name.lower(), version) for name, version in locked} <= parts
    assert all(part.get("hashes") or part.get("externalReferences") for part in bill["components"])
