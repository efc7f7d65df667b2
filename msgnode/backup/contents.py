"""The contents of an archive: database, the node's secret key, definitions, the list of the record.

The provider's signing keys are in the database, encrypted; the key that decrypts them is in the
archive if the node made it itself (DATA_DIR/secret_key). Keys from the environment are not
included. The record's files are large and never change once written; they are listed with their
digests, so that any tool can copy them and `restore` can tell what is missing. Logs, queued tasks
and caches are not included.
"""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from django.conf import settings
from django.db import connection
from django.utils import timezone

from msgnode.console import definitions

from . import archive, postgresql, sqlite
from .manifest import DEFINITIONS, RECORD, SECRET_KEY, Database, Manifest

if TYPE_CHECKING:
    from pyarrow import fs

_BLOCK = 1024 * 1024
_IN_AN_HOUR = re.compile(r"((?:raw/)?date=\d{4}-\d\d-\d\d/hour=\d\d)/([^/_.][^/]*\.parquet)")


class RecordFile(msgspec.Struct, forbid_unknown_fields=True):
    """A file of the traffic record, below RECORD_URL."""

    path: str
    bytes: int
    sha256: str = ""


def make(output: Path, *, with_digests: bool = True) -> tuple[Manifest, int]:
    """Back the node up into a file that is not there yet.

    Args:
        output: the archive.
        with_digests: whether the files of the record are read for their digests.

    Returns:
        What the archive has, and its size in bytes.

    Raises:
        FileExistsError: there is a file of that name.
        OSError, sqlite3.Error: the disk does not take it; then nothing is there.
    """
    if output.exists():
        raise FileExistsError(f"{output} exists")
    with archive.staging(output.parent) as folder:
        database, names = _database(folder)
        own = settings.OWN_SECRET_KEY
        if own is not None:
            (folder / SECRET_KEY).touch(mode=0o600)
            (folder / SECRET_KEY).write_bytes(own.read_bytes())
            names.append(SECRET_KEY)
        found = msgspec.json.encode(definitions.collect())
        (folder / DEFINITIONS).write_bytes(msgspec.json.format(found, indent=2))
        (folder / RECORD).write_bytes(msgspec.json.encode(record_files(with_digests=with_digests)))
        names += [DEFINITIONS, RECORD]
        parts = {name: archive.digest_of(folder / name) for name in names}
        manifest = Manifest(timezone.now(), settings.DOMAIN, database, parts)
        return manifest, archive.write(output, folder, manifest)


def _database(folder: Path) -> tuple[Database, list[str]]:
    if connection.vendor == "sqlite":
        return sqlite.dump(Path(connection.settings_dict["NAME"]), folder)
    return postgresql.dump(folder)


def record_files(*, with_digests: bool) -> list[RecordFile]:
    """The files of the record that are whole now."""
    from msgnode.traffic.files import files_below  # with Arrow
    from spark.jobs.places import place

    system, root = place(settings.RECORD["URL"])
    listed = []
    for info in files_below(system, root):
        if info.base_name.startswith(("_", ".")):
            continue  # being written
        try:
            sha256 = _digest(system, info.path) if with_digests else ""
        except FileNotFoundError:  # retention or a report was faster
            continue
        path = info.path.removeprefix(root).lstrip("/")
        listed.append(RecordFile(path, int(info.size), sha256))
    return sorted(listed, key=lambda each: each.path)


def lacking(listed: list[RecordFile]) -> list[str]:
    """Which files of an archive's list are not at RECORD_URL, or not as they were."""
    from pyarrow import fs

    from spark.jobs.places import place

    system, root = place(settings.RECORD["URL"])
    missing = []
    for each in listed:
        info = system.get_file_info(f"{root}/{each.path}")
        is_there = info.type == fs.FileType.File and info.size == each.bytes
        if not is_there or (each.sha256 and _digest(system, info.path) != each.sha256):
            missing.append(each.path)
    return missing


def note_missing(paths: list[str]) -> None:
    """Say in the record which of its files are missing, so that reports name their hours.

    Raises OSError.
    """
    from spark.jobs.storage import MISSING_LIST, Storage

    record = Storage(settings.RECORD["URL"])
    folders: dict[str, list[str]] = {}
    for path in paths:
        if (found := _IN_AN_HOUR.fullmatch(path)) is not None:
            folders.setdefault(found[1], []).append(found[2])
    for folder, names in folders.items():
        record.replace(record.at(folder, MISSING_LIST), json.dumps(sorted(names)))


def _digest(system: fs.FileSystem, path: str) -> str:
    digest = hashlib.sha256()
    with system.open_input_stream(path) as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()
