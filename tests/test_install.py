"""What `make` installs: locked with digests, from where pip is told to, and said if it is not."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.node import ROOT
from tests.scripts_of_ci import load

LOCKED = re.compile(r"^([\w.-]+)(?:\[[\w,-]+\])?==([\w.+!]+)(?: ; (.+?))? \\$", re.MULTILINE)
SETS = ("requirements", "requirements-dev")


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return load(ROOT / ".ci" / "install")


def allowed(name: str) -> list[Requirement]:
    lines = (ROOT / f"{name}.txt").read_text(encoding="utf-8").splitlines()
    texts = [line.partition(" #")[0].strip() for line in lines]
    return [Requirement(text) for text in texts if text and not text.startswith(("#", "-r"))]


@pytest.mark.parametrize("name", SETS)
def test_the_lock_has_what_is_allowed(name: str) -> None:
    """`make lock` writes it after a change."""
    locked: dict[str, list[str]] = {}
    for package, version, _ in LOCKED.findall((ROOT / f"{name}.lock").read_text(encoding="utf-8")):
        locked.setdefault(canonicalize_name(package), []).append(version)
    for each in allowed(name):
        versions = locked.get(canonicalize_name(each.name))
        assert versions, f"{name}.lock lacks {each}: make lock"
        assert all(map(each.specifier.contains, versions)), f"{name}.lock: {each} is {versions}"


def test_what_runs_has_the_same_version_in_both_locks() -> None:
    runs, checks = (
        set(LOCKED.findall((ROOT / f"{name}.lock").read_text(encoding="utf-8"))) for name in SETS
    )
    names = {package for package, _, _ in runs}
    versions = {(package, version) for package, version, _ in runs}
    assert {(p, v) for p, v, _ in checks if p in names} <= versions


@pytest.mark.parametrize("path", ["requirements.lock", "requirements-dev.lock", ".ci/uv.lock"])
def test_every_package_is_locked_with_digests_and_no_place_is_named(path: str) -> None:
    text = (ROOT / path).read_text(encoding="utf-8")
    entries = re.split(r"^(?=[a-zA-Z])", text, flags=re.MULTILINE)[1:]
    assert entries
    for entry in entries:
        first, *digests = entry.strip().splitlines()
        assert "==" in first, first
        assert digests and all("--hash=sha256:" in line for line in digests), first
    assert not re.search(r"://|--index-url|--find-links|file:", text)


CONFIGURED = """:env:.index-url='https://mirror.example/simple'
:env:.cert='/etc/hosts'
global.index-url='https://other.example/simple'
global.extra-index-url='https://more.example/simple file:///not/there'
user.find-links='/etc /not/there'
global.trusted-host='mirror.example'
"""


def test_uv_is_told_what_pip_is_told(script: ModuleType) -> None:
    pip = script.settings_of_pip(CONFIGURED)
    made = script.environment_for_uv(pip, {"PATH": "/bin"})
    assert made == {
        "PATH": "/bin",
        "UV_DEFAULT_INDEX": "https://mirror.example/simple",
        "UV_INDEX": "https://more.example/simple",
        "UV_FIND_LINKS": "/etc",
        "UV_INSECURE_HOST": "mirror.example",
        "SSL_CERT_FILE": "/etc/hosts",
        "UV_INDEX_STRATEGY": "unsafe-best-match",
    }


@pytest.mark.parametrize("variable", ["UV_DEFAULT_INDEX", "UV_INDEX_URL"])
def test_what_uv_is_told_itself_wins(script: ModuleType, variable: str) -> None:
    made = script.environment_for_uv({"index-url": "https://a/"}, {variable: "https://b/"})
    assert {made.get("UV_DEFAULT_INDEX"), made.get("UV_INDEX_URL")} == {"https://b/", None}


UV = "uv pip install"
LOCK = "pip --require-hashes"
OPEN = "pip --requirement"
UNREACHABLE = "Retrying (Retry(total=0)) after connection broken by 'NewConnectionError'"


@pytest.mark.parametrize(
    ("fails", "strict", "status", "asked", "told"),
    [
        ({}, False, 0, [UV], "done in"),
        ({UV: "No solution found"}, False, 0, [UV, LOCK], "pip tries"),
        ({UV: "Hash mismatch for `a`"}, False, 1, [UV], "not the one that was locked"),
        ({UV: "x", LOCK: "DO NOT MATCH THE HASHES"}, False, 1, [UV, LOCK], "was locked"),
        ({UV: "x", LOCK: "No matching"}, False, 0, [UV, LOCK, OPEN], "NOT LOCKED"),
        ({UV: "x", LOCK: "No matching"}, True, 1, [UV, LOCK], "LOCKED=yes asks for it"),
        ({UV: "x", LOCK: UNREACHABLE}, False, 1, [UV, LOCK], "PIP_INDEX_URL, then call make again"),
        ({UV: "No space left on device (os error 28)"}, False, 1, [UV], "the disk is full"),
        ({UV: "x", LOCK: "x", OPEN: "x"}, False, 1, [UV, LOCK, OPEN], "could not be installed"),
    ],
)
def test_a_wrong_file_ends_it_and_a_poor_index_is_said(
    tmp_path: Path, fails: dict[str, str], strict: bool, status: int, asked: list[str], told: str
) -> None:
    """With a uv and a pip that only write down how they are called."""
    bin_ = tmp_path / ".venv" / "bin"
    bin_.mkdir(parents=True)
    for name in ("uv", "python"):
        program = bin_ / name
        program.write_text(
            f"#!{sys.executable}\n"
            "import sys\n"
            "words = ' '.join(sys.argv[1:])\n"
            "if 'config list' in words or words.startswith('-c '): sys.exit(0)\n"
            f"kind = {LOCK!r} if '--require-hashes' in words else {OPEN!r}\n"
            f"kind = {UV!r} if {name!r} == 'uv' else kind\n"
            f"open({str(tmp_path / 'asked')!r}, 'a').write(kind + '\\n')\n"
            f"fails = {fails!r}\n"
            "print(fails.get(kind, 'installed'))\n"
            "sys.exit(kind in fails)\n"
        )
        program.chmod(0o700)
    done = subprocess.run(
        [sys.executable, ROOT / ".ci" / "install", tmp_path / ".venv", "requirements"],
        env={**os.environ, "PATH": str(bin_), "LOCKED": "yes" if strict else ""},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == status, done.stdout + done.stderr
    assert told in done.stdout + done.stderr
    assert (tmp_path / "asked").read_text().splitlines() == asked


def test_a_python_without_venv_is_said_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "ensurepip.py").write_text("raise ImportError")  # as Debian's without python3-venv
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    (tmp_path / ".venv" / "bin" / "python").symlink_to("/bin/false")  # half made by somebody else
    done = subprocess.run(
        [sys.executable, ROOT / ".ci" / "install", tmp_path / ".venv", "requirements"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert "is broken: it is made anew" in done.stdout
    assert len(done.stderr.splitlines()) == 1 and "apt install python3-venv" in done.stderr


def test_a_node_starts_without_what_only_reports_need(script: ModuleType) -> None:
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    part = script.without_reports(lock)
    left_out = set(LOCKED.findall(lock)) - set(LOCKED.findall(part))
    assert {package for package, _, _ in left_out} == set(script.REPORTS)
    assert part.count("--hash=") < lock.count("--hash=")
    entries = re.split(r"^(?=[a-zA-Z])", part, flags=re.MULTILINE)[1:]
    assert all("--hash=sha256:" in each for each in entries)


def test_without_reports_the_installer_is_given_a_lock_that_lacks_them(tmp_path: Path) -> None:
    bin_ = tmp_path / ".venv" / "bin"
    bin_.mkdir(parents=True)
    for name in ("uv", "python"):
        (bin_ / name).write_text(
            f"#!{sys.executable}\n"
            "import shutil, sys\n"
            f"got = {str(tmp_path / 'got')!r}\n"
            "if '--requirement' in sys.argv: shutil.copy(sys.argv[-1], got)\n"
        )
        (bin_ / name).chmod(0o700)
    done = subprocess.run(
        [sys.executable, ROOT / ".ci" / "install", tmp_path / ".venv", "requirements",
         "--without-reports"],
        env={**os.environ, "PATH": str(bin_)},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Spark" in done.stdout
    got = (tmp_path / "got").read_text(encoding="utf-8")
    assert "django==" in got
    assert "pyspark" not in got


def test_make_run_has_the_rest_installed_once_the_node_is_ready() -> None:
    said = subprocess.run(
        ["make", "--dry-run", "run", "VENV=/nowhere"],
        cwd=ROOT, capture_output=True, text=True, timeout=60, check=True,
    ).stdout  # fmt: skip
    assert "install /nowhere requirements --without-reports" in said
    assert "NODE_WHEN_READY=" in said and "echo make setup" in said
