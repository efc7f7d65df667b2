"""The manifest of an archive, its first member: what it is of, and the digest of each part.

`format` is increased when older nodes could no longer read an archive. The schema of the tables is
given by their migrations: an archive with an unknown migration was made by a later version, and is
refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime
from typing import Annotated, Literal

import msgspec

from msgnode.storage.table_version import named

KIND = "messaging-node backup"
FORMAT = 1
MANIFEST = "manifest.json"
DEFINITIONS = "definitions.json"
RECORD = "record.json"
SECRET_KEY = "secret_key"  # noqa: S105  (the name of a part)

_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*(/[A-Za-z0-9_][A-Za-z0-9_.-]*)?")

Size = Annotated[int, msgspec.Meta(ge=0)]
Engine = Literal["sqlite", "postgresql"]
Migration = tuple[str, str]
"""App and name."""


class ArchiveFault(Exception):
    """The archive cannot be restored; the text says which part is wrong, and how."""


class Part(msgspec.Struct, forbid_unknown_fields=True):
    """A member of the archive."""

    bytes: Size
    sha256: str


class Database(msgspec.Struct, forbid_unknown_fields=True):
    """The database as of the moment of the backup."""

    engine: Engine
    migrations: list[Migration]
    rows: dict[str, int]
    columns: dict[str, list[str]] = {}


class Manifest(msgspec.Struct, forbid_unknown_fields=True):
    """The first member of an archive."""

    made_at: datetime
    domain: str
    database: Database
    parts: dict[str, Part]
    kind: str = KIND
    format: int = FORMAT


def encode(manifest: Manifest) -> bytes:
    """The text of the first member."""
    return msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n"


def decode(text: bytes) -> Manifest:
    """Read the first member.

    Raises:
        ArchiveFault: it is none of ours, of a later format, or not as it should be.
    """
    try:
        said = msgspec.json.decode(text)
        kind, number = said["kind"], said["format"]
    except (msgspec.DecodeError, KeyError, TypeError, RecursionError):
        raise ArchiveFault(f"{MANIFEST} is not that of a backup of a node.") from None
    if kind != KIND:
        raise ArchiveFault(f"{MANIFEST} is not that of a backup of a node.")
    if number != FORMAT:
        raise ArchiveFault(f"The archive has format {number}; this node reads {FORMAT}.")
    try:
        manifest = msgspec.convert(said, Manifest, strict=False)
    except msgspec.ValidationError as fault:
        raise ArchiveFault(f"{MANIFEST}: {fault}") from None
    for name in manifest.parts:
        folder, _, file = name.partition("/")
        if not _PART.fullmatch(name) or name == MANIFEST or (file and folder in manifest.parts):
            raise ArchiveFault(f"{MANIFEST} names a part {name!r}, which no backup has.")
    database = manifest.database
    if database.engine == "postgresql" and database.columns.keys() != database.rows.keys():
        raise ArchiveFault(f"{MANIFEST} does not say the columns of each table.")
    return manifest


def refuse_unknown(applied: Iterable[Migration], known: Iterable[Migration]) -> None:
    """Compare the migrations of an archive with those of this node.

    Raises:
        ArchiveFault: the archive was made by a later version, or with other apps.
    """
    if unknown := set(applied) - set(known):
        raise ArchiveFault(
            f"The archive was made by another version of the node: it has {named(unknown)}, "
            "which this one does not know. Restore it with that version."
        )
