"""An archive is written whole or not at all, and read only if it is what it says."""

from __future__ import annotations

import gzip
import io
import json
import os
import tarfile
import threading
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from msgnode.backup import archive
from msgnode.backup.manifest import (
    ArchiveFault,
    Database,
    Manifest,
    decode,
    encode,
    refuse_unknown,
)

CONTENT = {"node.sqlite3": os.urandom(300_000), "tables/one": b"1\t2\n", "empty": b""}


def make(place: Path, content: dict[str, bytes] = CONTENT) -> Path:
    output = place / "made.tar.gz"
    with archive.staging(place) as folder:
        for name, text in content.items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_bytes(text)
        parts = {name: archive.digest_of(folder / name) for name in content}
        archive.write(output, folder, manifest(parts))
    return output


def manifest(parts: dict[str, Any]) -> Manifest:
    return Manifest(datetime.now(UTC), "localhost", Database("sqlite", [("a", "0001")], {}), parts)


def extract(file: Path, place: Path) -> Manifest:
    place.mkdir()
    return archive.extract(file, place)


def test_what_was_written_is_read(tmp_path: Path) -> None:
    said = extract(make(tmp_path), tmp_path / "out")
    assert {name: (tmp_path / "out" / name).read_bytes() for name in said.parts} == CONTENT
    modes = {path.stat().st_mode & 0o077 for path in (tmp_path / "out").rglob("*")}
    assert modes == {0}


def test_an_archive_is_for_its_owner_only(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        assert make(tmp_path).stat().st_mode & 0o777 == 0o600
    finally:
        os.umask(old)
    assert [path.name for path in tmp_path.iterdir()] == ["made.tar.gz"]


def test_a_name_that_is_taken_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "made.tar.gz").write_text("yesterday's")
    with pytest.raises(FileExistsError):
        make(tmp_path)
    assert (tmp_path / "made.tar.gz").read_text() == "yesterday's"


def test_what_a_killed_backup_left_is_removed_and_that_of_a_running_one_is_not(
    tmp_path: Path,
) -> None:
    (tmp_path / ".node-backup-1" / "tables").mkdir(parents=True)
    with archive.staging(tmp_path) as running:
        running.rename(tmp_path / ".node-backup-2")  # as if it were another process's
        with archive.staging(tmp_path):
            pass
        assert {path.name for path in tmp_path.iterdir()} == {".node-backup-2"}
    with archive.staging(tmp_path):
        pass
    assert not list(tmp_path.iterdir())


def test_of_many_backups_that_begin_at_once_none_removes_what_is_anothers(tmp_path: Path) -> None:
    crowd = 8

    def staged(_: int) -> bool:
        with archive.staging(tmp_path) as own:
            begun.wait(20)
            return own.is_dir()

    for _ in range(40):
        begun = threading.Barrier(crowd)
        with ThreadPoolExecutor(crowd) as threads:
            assert all(threads.map(staged, range(crowd)))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("keep", [0, 1, 100, -1000, -20, -1])
def test_an_archive_that_was_cut_off_is_refused(tmp_path: Path, keep: int) -> None:
    file = make(tmp_path)
    file.write_bytes(file.read_bytes()[:keep])
    with pytest.raises(ArchiveFault, match="damaged|begin|missing"):
        extract(file, tmp_path / "out")


def rewritten(file: Path, **changes: bytes | None) -> None:
    """The same archive, with other members and its old manifest."""
    with tarfile.open(file) as tar:
        members = [(each.name, tar.extractfile(each).read()) for each in tar]  # type: ignore[union-attr]
    with tarfile.open(file, "w:gz") as tar:
        for name in dict.fromkeys([*dict(members), *changes]):
            new = changes.get(name, dict(members).get(name))
            if new is not None:
                member = tarfile.TarInfo(name)
                member.size = len(new)
                tar.addfile(member, io.BytesIO(new))


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"empty": b"x"}, "empty is damaged"),
        ({"tables/one": b"1\t3\n"}, "tables/one is damaged"),
        ({"node.sqlite3": CONTENT["node.sqlite3"][:-1]}, "node.sqlite3 is damaged"),
        ({"tables/one": None}, "tables/one is missing"),
        ({"more": b"x"}, "more is damaged: it is not in"),
        ({"../more": b"x"}, "../more is damaged: it is not in"),
        ({"manifest.json": b"{}"}, "manifest.json is not that of a backup"),
        ({"manifest.json": b"\xff"}, "manifest.json is not that of a backup"),
        ({"manifest.json": None}, "does not begin with manifest.json"),
    ],
)
def test_the_part_that_is_wrong_is_named(
    tmp_path: Path, changes: dict[str, bytes | None], named: str
) -> None:
    file = make(tmp_path)
    rewritten(file, **changes)
    with pytest.raises(ArchiveFault, match=named.replace("..", r"\.\.")):
        extract(file, tmp_path / "out")


@pytest.mark.parametrize("name", ["../up", "/etc/passwd", "a/b/c", ".hidden", "manifest.json", ""])
def test_a_part_that_would_lie_elsewhere_is_refused(name: str) -> None:
    said = json.loads(encode(manifest({})))
    said["parts"] = {name: {"bytes": 1, "sha256": ""}}
    with pytest.raises(ArchiveFault, match="which no backup has"):
        decode(json.dumps(said).encode())


def test_a_link_is_no_part(tmp_path: Path) -> None:
    file = make(tmp_path, {"one": b""})
    with tarfile.open(file) as tar:
        first = tar.extractfile("manifest.json").read()  # type: ignore[union-attr]
    with tarfile.open(file, "w:gz") as tar:
        member = tarfile.TarInfo("manifest.json")
        member.size = len(first)
        tar.addfile(member, io.BytesIO(first))
        link = tarfile.TarInfo("one")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(link)
    with pytest.raises(ArchiveFault, match="one is damaged"):
        extract(file, tmp_path / "out")


def _headers(*headers: bytes) -> bytes:
    """A tar file that begins so."""
    return b"".join(headers) + b"\0" * 1024


def _pax(text: bytes, size: int = 0) -> bytes:
    head = tarfile.TarInfo("x")
    head.type, head.size = tarfile.XHDTYPE, size or len(text)
    return head.tobuf() + text.ljust(-(-head.size // 512) * 512, b"\0")


LONG_NAME = tarfile.TarInfo("././@LongLink")
LONG_NAME.type, LONG_NAME.size = tarfile.GNUTYPE_LONGNAME, 4
MALICE = {
    "a header of 64 MiB": _headers(_pax(b"", 64 * 1024 * 1024)),
    "headers in headers": _headers(*[LONG_NAME.tobuf() + b"a".ljust(512, b"\0")] * 3000),
    "a size that is none": _headers(
        _pax(b"22 GNU.sparse.major=1\n22 GNU.sparse.minor=0\n"),
        tarfile.TarInfo("x").tobuf(),
        b"no number\n".ljust(512, b"\0"),
    ),
}


@pytest.mark.parametrize("content", MALICE.values(), ids=MALICE)
def test_headers_that_nothing_but_malice_has_made_are_refused(
    tmp_path: Path, content: bytes
) -> None:
    file = tmp_path / "hostile.tar.gz"
    file.write_bytes(gzip.compress(content))
    tracemalloc.start()
    try:
        with pytest.raises(ArchiveFault, match="damaged|begin"):
            extract(file, tmp_path / "out")
        assert tracemalloc.get_traced_memory()[1] < 16 * 1024 * 1024
    finally:
        tracemalloc.stop()


def test_what_follows_the_last_part_is_not_unpacked_to_its_end(tmp_path: Path) -> None:
    file = make(tmp_path)
    file.write_bytes(gzip.compress(gzip.decompress(file.read_bytes()) + bytes(2 * 1024 * 1024)))
    with pytest.raises(ArchiveFault, match="goes on behind its last part"):
        extract(file, tmp_path / "out")


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"parts": {"x": {"bytes": -5, "sha256": ""}}}, "bytes"),
        ({"parts": {n: {"bytes": 1, "sha256": ""} for n in ("x", "x/y")}}, "names a part 'x/y'"),
        ({"database": {"engine": "postgresql", "migrations": [], "rows": {"t": 1}}}, "columns"),
    ],
)
def test_a_manifest_that_no_backup_writes_is_refused(changes: dict[str, Any], named: str) -> None:
    said = json.loads(encode(manifest({}))) | changes
    with pytest.raises(ArchiveFault, match=named):
        decode(json.dumps(said).encode())


def test_a_manifest_that_is_nested_without_end_is_refused() -> None:
    with pytest.raises(ArchiveFault, match="not that of a backup"):
        decode(b"[" * 100_000)


def test_a_later_format_is_named() -> None:
    said = json.loads(encode(manifest({})))
    said["format"] = 2
    with pytest.raises(ArchiveFault, match="has format 2; this node reads 1"):
        decode(json.dumps(said).encode())


def test_migrations_that_are_not_known_are_named() -> None:
    known = [("msgnode", "0001_initial"), ("msgnode", "0002_more")]
    refuse_unknown(known[:1], known)
    with pytest.raises(ArchiveFault, match=r"msgnode\.0003_later"):
        refuse_unknown([*known, ("msgnode", "0003_later")], known)


@given(st.binary(max_size=400) | st.recursive(
    st.none() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.sampled_from(["kind", "format", "parts", "database"]), inner, max_size=4),
).map(lambda value: json.dumps(value).encode()))  # fmt: skip
def test_any_text_is_a_manifest_or_refused(text: bytes) -> None:
    with pytest.raises(ArchiveFault):
        decode(text)
