"""Files of the record: whole or not there at all.

A file is written under a name that readers pass over and then renamed. Its folder is the hour of
its rows, so a late row lies where it belongs. The place is a path or the URL of a file system that
pyarrow knows (file, hdfs, s3, gs); the record takes no more than its cap there, and on a local disk
leaves some space to others.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

_LOOK_EVERY = 30.0
_DICTIONARY = [
    "node", "worker", "session", "runtime", "type", "sender", "to", "outcome", "component",
    "effect", "rule",
]  # fmt: skip
_DICTIONARY_BYTES = 8 * 1024 * 1024  # room for some 100,000 addresses


class RecordFull(OSError):
    """The record has reached its cap, or the disk is nearly full."""


def place(url: str) -> tuple[fs.FileSystem, str]:
    """The file system of a path or URL, and the path on it."""
    if "://" in url:
        return fs.FileSystem.from_uri(url)
    return fs.LocalFileSystem(), str(Path(url).resolve())


def folder_of(hour: int) -> str:
    """Where the files of an hour are, below the record's root."""
    at = datetime.fromtimestamp(hour, UTC)
    return f"date={at:%Y-%m-%d}/hour={at:%H}"


class RecordFiles:
    """The raw files of the record."""

    def __init__(self, url: str, name: str, *, max_bytes: int, min_free: int) -> None:
        self._fs, self._root = place(url)
        self._is_local = isinstance(self._fs, fs.LocalFileSystem)
        self._name = f"{re.sub(r'[^A-Za-z0-9]+', '-', name)}-{time.time_ns() // 1_000_000:x}"
        self._max_bytes = max_bytes
        self._min_free = min_free
        self._count = 0
        self._used = 0
        self._looked_at = float("-inf")

    def write(self, hour: int, table: pa.Table) -> int:
        """One more file of this hour; its size. OSError if it cannot be written, and nothing is."""
        self._check_space()
        self._count += 1
        folder = f"{self._root}/{folder_of(hour)}"
        name = f"{self._name}-{self._count:06d}.parquet"
        temporary = f"{folder}/_{name}.tmp"
        self._fs.create_dir(folder, recursive=True)
        try:
            pq.write_table(
                table.unify_dictionaries(), temporary, filesystem=self._fs, compression="zstd",
                use_dictionary=_DICTIONARY, dictionary_pagesize_limit=_DICTIONARY_BYTES,
                write_statistics=["at"], store_schema=False,
            )  # fmt: skip
            if self._is_local:
                _sync(temporary)
            size = self._fs.get_file_info(temporary).size or 0
            self._fs.move(temporary, f"{folder}/{name}")
        except OSError:
            self._forget(temporary)
            raise
        self._used += size
        return int(size)

    def used(self) -> int:
        """Bytes the record takes, of all workers, as last looked at."""
        return self._used

    def _check_space(self) -> None:
        now = time.monotonic()
        if now - self._looked_at >= _LOOK_EVERY or self._used >= self._max_bytes:
            self._looked_at = now
            self._used = sum(info.size for info in files_below(self._fs, self._root))
        if self._used >= self._max_bytes:
            raise RecordFull(f"The record takes {self._used} bytes; its cap is {self._max_bytes}.")
        if self._is_local:
            self._fs.create_dir(self._root, recursive=True)
            free = shutil.disk_usage(self._root).free
            if free < self._min_free:
                raise RecordFull(f"{free} bytes are free; {self._min_free} are left to others.")

    def _forget(self, temporary: str) -> None:
        try:
            self._fs.delete_file(temporary)
        except OSError:
            return  # never made, or the disk is gone: readers pass over it, retention removes it


def files_below(system: fs.FileSystem, root: str) -> Iterator[fs.FileInfo]:
    """The files in a folder and in all below it."""
    selector = fs.FileSelector(root, recursive=True, allow_not_found=True)
    return (info for info in system.get_file_info(selector) if info.type == fs.FileType.File)


def _sync(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
