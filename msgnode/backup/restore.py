"""Restores an archive to a node that can be started. Existing data is kept, and no step half done.

SQLite: everything is checked in files beside the database first. Then a plan of renames is stored
and executed; after a restore that was killed in between, `finish` completes it, and the settings
let no node start before. PostgreSQL: one transaction.

The contents of an archive: database, the node's secret key, definitions, the list of the record.

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
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from django.conf import settings
from django.db import connection, transaction
from django.utils import timezone

from msgnode.console import definitions
from msgnode.identity.encryption import opens
from msgnode.storage.table_version import known

from . import archive, in_use, postgresql, sqlite
from .manifest import (
    DEFINITIONS,
    RECORD,
    SECRET_KEY,
    ArchiveFault,
    Database,
    Manifest,
    refuse_unknown,
)

if TYPE_CHECKING:
    from pyarrow import fs

_BLOCK = 1024 * 1024
_IN_AN_HOUR = re.compile(r"((?:raw/)?date=\d{4}-\d\d-\d\d/hour=\d\d)/([^/_.][^/]*\.parquet)")


class RecordFile(msgspec.Struct, forbid_unknown_fields=True):
    """A file of the traffic record, below RECORD_URL."""

    path: str
    bytes: int
    sha256: str


def make(output: Path) -> tuple[Manifest, int]:
    """Back the node up into a file that is not there yet.

    Args:
        output: the archive.

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
        (folder / RECORD).write_bytes(msgspec.json.encode(record_files()))
        names += [DEFINITIONS, RECORD]
        parts = {name: archive.digest_of(folder / name) for name in names}
        manifest = Manifest(timezone.now(), settings.DOMAIN, database, parts)
        return manifest, archive.write(output, folder, manifest)


def _database(folder: Path) -> tuple[Database, list[str]]:
    if connection.vendor == "sqlite":
        return sqlite.dump(Path(connection.settings_dict["NAME"]), folder)
    return postgresql.dump(folder)


def record_files() -> list[RecordFile]:
    """The files of the record that are whole now."""
    from msgnode.traffic.files import files_below  # with Arrow
    from spark.jobs.places import place

    system, root = place(settings.RECORD["URL"])
    listed = []
    for info in files_below(system, root):
        if info.base_name.startswith(("_", ".")):
            continue  # being written
        try:
            sha256 = _digest(system, info.path)
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
        if not is_there or _digest(system, info.path) != each.sha256:
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


_STAGED = ".restore"
_PLAN = "plan.json"


class RestoreRefused(Exception):
    """The restore was not done, and nothing has changed; the text says why."""


class Restored(NamedTuple):
    """The archive's manifest, the location of the earlier state, and missing files of the record.

    `record_fault` says why the record could not be checked.
    """

    manifest: Manifest
    earlier: Path | None
    lacking: list[str]
    record_fault: str = ""


class _Plan(msgspec.Struct):
    """The renames: first of what is set aside, then of what replaces it."""

    aside: list[tuple[str, str]]
    into: list[tuple[str, str]]


def check(file: Path) -> Manifest:
    """Look whether an archive could be restored by this version. Changes nothing.

    Raises:
        ArchiveFault: it is damaged, or of another version.
        RestoreRefused: the secrets in it cannot be read here.
    """
    with archive.staging(settings.DATA_DIR) as folder:
        return _checked(file, folder)[0]


def restore(file: Path, *, replace: bool) -> Restored:
    """Restore this node from an archive.

    Args:
        file: what `backup` wrote.
        replace: whether a database that is there is set aside (SQLite) or dropped (PostgreSQL).

    Raises:
        ArchiveFault: it is damaged, or of another version.
        InUse: a node runs.
        RestoreRefused: there is a database already, or secrets in the archive cannot be read here.
    """
    with in_use.held(settings.DATA_DIR):
        finish(settings.DATA_DIR)
        with archive.staging(settings.DATA_DIR) as folder:
            manifest, record = _checked(file, folder)
            if connection.vendor == "sqlite":
                earlier = _into_sqlite(folder, replace=replace)
            else:
                earlier = None
                _into_postgresql(folder, manifest, replace=replace)
    try:
        missing = lacking(record)
        note_missing(missing)
        return Restored(manifest, earlier, missing)
    except OSError as fault:  # the record is elsewhere, and the node is restored all the same
        return Restored(manifest, earlier, [], str(fault))


def finish(data_dir: Path) -> bool:
    """Carry a restore that was killed out to its end; whether there was one."""
    unfinished = data_dir / settings.UNFINISHED_RESTORE
    if not unfinished.exists():
        return False
    plan = msgspec.json.decode((unfinished / _PLAN).read_bytes(), type=_Plan)
    for source, target in plan.aside:
        if Path(source).exists() and not Path(target).exists():
            Path(target).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            Path(source).rename(target)
    for source, target in plan.into:
        if Path(source).exists():
            Path(source).replace(target)
        archive.sync(Path(target).parent)
    shutil.rmtree(unfinished)
    return True


def _checked(file: Path, folder: Path) -> tuple[Manifest, list[RecordFile]]:
    manifest = archive.extract(file, folder)
    applied = [(app, name) for app, name in manifest.database.migrations]
    refuse_unknown(applied, known())
    if manifest.database.engine != connection.vendor:
        raise ArchiveFault(
            f"It is of a database of {manifest.database.engine}, and DATABASE_URL names one of "
            f"{connection.vendor}. Restore it to its own kind, then use `manage.py move_to`."
        )
    try:
        record = msgspec.json.decode((folder / RECORD).read_bytes(), type=list[RecordFile])
    except (OSError, msgspec.DecodeError) as fault:
        raise ArchiveFault(f"{RECORD} is damaged: {fault}") from None
    if connection.vendor == "sqlite":
        sqlite.check(folder / sqlite.PART, manifest.database)
        key = folder / SECRET_KEY
        further = [key.read_text()] if key.exists() and settings.OWN_SECRET_KEY else []
        refuse_other_key(sqlite.encrypted_values(folder / sqlite.PART), *further)
    else:
        refuse_other_key(postgresql.check(folder, manifest.database))
    return manifest, record


def refuse_other_key(encrypted: sqlite.Encrypted, *keys: str) -> None:
    """Refuse an archive of whose secrets of some kind this node can read none."""
    if any(values and not any(opens(each, *keys) for each in values)
           for values in encrypted.values()):  # fmt: skip
        raise RestoreRefused(
            "The archive has secrets that were encrypted with another key than SECRET_KEY or "
            "KEY_ENCRYPTION_KEY of this environment: give the node the keys it had, or name the "
            "one it had in SECRET_KEY_FALLBACKS."
        )


def _into_sqlite(folder: Path, *, replace: bool) -> Path | None:
    database = Path(connection.settings_dict["NAME"])
    is_there = database.exists() and database.stat().st_size > 0
    if is_there:
        in_use.refuse_workers()
        connection.close()
        if not replace:
            raise RestoreRefused(f"{database} is there already; --replace sets it aside.")
    sqlite.forget_workers(folder / sqlite.PART)
    now = datetime.now(UTC)
    aside = database.parent / f"before-restore-{now:%Y%m%dT%H%M%S}.{now.microsecond // 1000:03d}"
    key: Path | None = settings.OWN_SECRET_KEY
    staged = [(folder / sqlite.PART, database)]
    if key is not None and (folder / SECRET_KEY).exists():
        staged.append((folder / SECRET_KEY, key))
    plan = _Plan([], [])
    for suffix in ("", "-wal", "-shm", "-journal"):  # a log of another database is no log of this
        if Path(f"{database}{suffix}").exists():
            plan.aside.append((f"{database}{suffix}", str(aside / f"{database.name}{suffix}")))
    if len(staged) > 1 and is_there:  # without a database there is nothing that the key has sealed
        plan.aside.append((str(key), str(aside / SECRET_KEY)))
    for source, target in staged:
        near = target.with_name(f"{_STAGED}.{target.name}")
        near.unlink(missing_ok=True)
        shutil.move(source, near)  # a rename, but where the two are on two disks
        archive.sync(near.parent)
        plan.into.append((str(near), str(target)))
    (folder / "plan").mkdir(mode=0o700)
    (folder / "plan" / _PLAN).write_bytes(msgspec.json.encode(plan))
    archive.sync(folder / "plan")
    (folder / "plan").rename(settings.DATA_DIR / settings.UNFINISHED_RESTORE)  # decided
    archive.sync(settings.DATA_DIR)
    finish(settings.DATA_DIR)
    return aside if plan.aside else None


def _into_postgresql(folder: Path, manifest: Manifest, *, replace: bool) -> None:
    if postgresql.has_tables():
        in_use.refuse_workers()
        if not replace:
            raise RestoreRefused("The database has tables already; --replace drops them.")
    elif connection.in_atomic_block:
        raise RuntimeError("A restore is a transaction of its own.")
    with transaction.atomic(durable=True):
        postgresql.load(folder, manifest.database, replace=replace)


def described(manifest: Manifest) -> dict[str, Any]:
    """What an archive has, for people and programs."""
    return {
        "made_at": manifest.made_at,
        "domain": manifest.domain,
        "database": manifest.database.engine,
        "rows": {table: number for table, number in manifest.database.rows.items() if number},
        "parts": {name: part.bytes for name, part in manifest.parts.items()},
    }
