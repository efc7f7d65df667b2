"""`make release`: what it refuses, what it signs, and, at night, all that it makes."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from docs.hooks import terms_of_the_theme
from tests.node import ROOT
from tests.scripts_of_ci import load

VERSION_LINE = "## [1.0.0] - 2030-01-01\n"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository that has what the script looks at first."""
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "release", tmp_path / ".ci" / "release")
    (tmp_path / "pyproject.toml").write_text('[project]\nversion = "1.0.0"\n')
    (tmp_path / "CHANGELOG.md").write_text(VERSION_LINE)
    git(tmp_path, "init", "--quiet")
    commit(tmp_path)
    return tmp_path


def git(place: Path, *words: str) -> None:
    name = ("-c", "user.name=n", "-c", "user.email=n@mail.example")
    subprocess.run(["git", *name, *words], cwd=place, check=True, capture_output=True, timeout=60)


def commit(place: Path) -> None:
    git(place, "add", "--all")
    git(place, "commit", "--quiet", "--message", "m")


def refusal(checkout: Path) -> str:
    done = subprocess.run(
        [checkout / ".ci" / "release", "--without-image"],
        cwd=checkout, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    return done.stderr


def test_what_is_not_committed_is_not_released(checkout: Path) -> None:
    (checkout / "new").touch()
    assert "something is not committed" in refusal(checkout)


def test_a_version_that_the_changelog_does_not_have_with_its_date_is_not_released(
    checkout: Path,
) -> None:
    (checkout / "CHANGELOG.md").write_text("## [1.0.0] - not released yet\n")
    commit(checkout)
    assert "CHANGELOG.md has no `## [1.0.0] - <date>`" in refusal(checkout)


def test_what_the_changelog_calls_unreleased_is_not_released(checkout: Path) -> None:
    (checkout / "CHANGELOG.md").write_text(f"## [Unreleased]\n\n- A line.\n\n{VERSION_LINE}")
    commit(checkout)
    assert "CHANGELOG.md has lines under `Unreleased`" in refusal(checkout)


def test_a_release_that_is_there_is_not_replaced(checkout: Path) -> None:
    (checkout / ".gitignore").write_text("/dist/\n")
    commit(checkout)
    (checkout / "dist" / "release").mkdir(parents=True)
    (checkout / "CHANGELOG.md").write_text(f"## [Unreleased]\n\n{VERSION_LINE}\n- A line.\n")
    commit(checkout)
    assert "is there already" in refusal(checkout)


def test_the_notices_have_the_terms_of_each_package_and_of_all_that_others_wrote() -> None:
    said = subprocess.run(
        [sys.executable, ROOT / ".ci" / "licences", "--notices"],
        capture_output=True, text=True, timeout=60, check=True,
    ).stdout  # fmt: skip
    script = load(ROOT / ".ci" / "licences")
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    for name in (*script.locked(), "mkdocs-material"):
        if script.licence_of(name) is None:
            assert re.search(rf"^{name}==\S+ ; ", lock, re.MULTILINE), f"{name} is not for all"
        else:
            terms = rf"^={{80}}\n{re.escape(name)} \d\S*: \S.*\n\n\S"
            assert re.search(terms, said, re.MULTILINE), f"{name} has no text"
    explained = {Path(each).parent for each in script.BUNDLED}
    for path in written_by_others():
        assert path.parent in explained, f"{path}: whose is it?"
    assert all((ROOT / each).read_text(encoding="utf-8").strip() in said for each in script.BUNDLED)
    of_the_site = terms_of_the_theme()
    assert "Martin Donath" in of_the_site and "Pictogrammers" in of_the_site


def written_by_others() -> list[Path]:
    """Scripts of the repository that no person can have written as they stand."""
    tracked = subprocess.run(
        ["git", "ls-files", "*.js", "*.mjs", "*.css"],
        cwd=ROOT, capture_output=True, text=True, timeout=60, check=True,
    ).stdout  # fmt: skip
    return [
        Path(name)
        for name in tracked.splitlines()
        if max(map(len, (ROOT / name).read_text(encoding="utf-8").splitlines()), default=0) > 3000
    ]


def test_an_archive_is_decided_by_its_content_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    script = load(ROOT / ".ci" / "release")
    for name, order, mode in (("one", "ab", 0o600), ("two", "ba", 0o644)):
        (tmp_path / name).mkdir()
        for each in order:
            path = tmp_path / name / each
            path.write_text(each)
            path.chmod(mode)
            os.utime(path, (len(name), mode))
        script.pack(tmp_path / name, str(tmp_path / f"{name}.tar.gz"), "top")
    one, two = ((tmp_path / f"{name}.tar.gz").read_bytes() for name in ("one", "two"))
    assert one == two
    (tmp_path / "two" / "a").write_text("A")
    script.pack(tmp_path / "two", str(tmp_path / "two.tar.gz"), "top")
    assert (tmp_path / "two.tar.gz").read_bytes() != one


def test_of_a_node_that_ends_at_once_the_last_words_are_told(tmp_path: Path) -> None:
    script = load(ROOT / ".ci" / "release")
    command = ["sh", "-c", "echo no such setting; exit 1"]
    with (
        pytest.raises(script.CannotRelease, match="no such setting"),
        script.serving(command, script.free_port(), tmp_path, "1.0.0", dict(os.environ)),
    ):
        pytest.fail("it serves")


def test_the_sums_are_signed_and_a_changed_file_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = load(ROOT / ".ci" / "release")
    key, out = tmp_path / "a key", tmp_path / "out"
    out.mkdir()
    (out / "artefact").write_text("content")
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    monkeypatch.setenv("RELEASE_KEY", str(key))
    script.sign(out)
    assert _verifies(out)
    assert _check(out) == 0
    (out / "artefact").write_text("other content")
    assert _check(out) != 0
    with (out / "SHA256SUMS").open("a") as sums:
        sums.write("\n")
    assert not _verifies(out)


@pytest.mark.parametrize("name", ["requirements.lock", "messaging_node-1.0.0.requirements.lock"])
def test_the_page_installs_by_the_lock_of_a_checkout_and_by_that_of_a_release(
    tmp_path: Path, name: str
) -> None:
    for other in (name, "requirements.txt", "requirements-dev.lock"):
        (tmp_path / other).touch()
    page = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    named = re.findall(r"--require-hashes .*?-r (\S+)", page)
    assert len(named) == 3
    for each in named:
        assert [path.name for path in tmp_path.glob(each)] == [name]


def _check(out: Path) -> int:
    command = ["sha256sum", "--check", "--quiet", "SHA256SUMS"]
    return subprocess.run(command, cwd=out, capture_output=True, timeout=60).returncode


def _verifies(out: Path) -> bool:
    """As docs/install.md says."""
    page = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    command = next(line for line in page.splitlines() if "ssh-keygen -Y verify" in line)
    done = subprocess.run(command, shell=True, cwd=out, capture_output=True, timeout=60)  # noqa: S602
    return done.returncode == 0


@pytest.mark.long
@pytest.mark.timeout(3000)
def test_all_is_made_twice_equal_and_works_in_an_empty_place(tmp_path: Path) -> None:
    """Of what is committed; the image has a test of its own (tests/e2e/test_image.py)."""
    source, key = tmp_path / "a checkout", tmp_path / "key"
    git(tmp_path, "clone", "--quiet", str(ROOT), str(source))
    changes = source / "CHANGELOG.md"  # what is unreleased still comes in
    text = re.sub(r"(?s)^## \[Unreleased\].*?(?=^## )", "", changes.read_text(), flags=re.MULTILINE)
    changes.write_text(text)
    git(source, "commit", "--quiet", "--all", "--allow-empty", "--message", "m")
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    done = subprocess.run(
        [str(ROOT / ".venv" / "bin" / "python"), ".ci/release", "--without-image"],
        cwd=source, env={**os.environ, "RELEASE_KEY": str(key), "TMPDIR": str(tmp_path)},
        capture_output=True, text=True, timeout=2900, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "have the same digests" in done.stdout
    made = source / "dist" / "release"
    assert _verifies(made) and _check(made) == 0
    kinds = (".whl", ".tar.gz", ".tgz", ".sbom.json", ".requirements.lock")
    for kind in (*kinds, ".notices.txt", "-docs.tar.gz"):
        assert any(path.name.endswith(kind) for path in made.iterdir()), kind
    with tarfile.open(next(made.glob("*-docs.tar.gz"))) as site:
        terms = {Path(name).name for name in site.getnames() if name.endswith(".LICENSE.txt")}
    assert terms == {"mermaid.LICENSE.txt", "mkdocs-material.LICENSE.txt"}
