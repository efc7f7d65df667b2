"""Writes the files of the record; each is complete or absent.

A file is written under a name that readers ignore and then renamed; an object store writes complete
objects anyway. A write that failed is repeated under the same name with the same rows, because the
store may have it all the same, or carry it out hours later. Its folder is the hour of its rows, so
that late rows are in the right place. The record never exceeds its cap, and leaves some space on a
local disk to others.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Iterator
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from spark.jobs.places import is_object_store, place

_LOOK_EVERY = 30.0
_LOOK_EVERY_FAR = 600.0  # on an object store, which bills each listing
_DICTIONARY = [
    "node", "worker", "session", "runtime", "type", "sender", "to", "outcome", "component",
    "effect", "rule", "event",
]  # fmt: skip
_DICTIONARY_BYTES = 8 * 1024 * 1024  # room for some 100,000 addresses


class RecordFull(OSError):
    """The record has reached its cap, or the disk is nearly full."""


def folder_of(hour: int) -> str:
    """The folder of an hour, below the record's root."""
    at = datetime.fromtimestamp(hour, UTC)
    return f"date={at:%Y-%m-%d}/hour={at:%H}"


class RecordFiles:
    """The raw files of the record."""

    def __init__(self, url: str, name: str, *, max_bytes: int, min_free: int) -> None:
        self._fs, self._root = place(url)
        self._is_local = isinstance(self._fs, fs.LocalFileSystem)
        self._is_object_store = is_object_store(self._fs)
        self._look_every = _LOOK_EVERY_FAR if self._is_object_store else _LOOK_EVERY
        self._names: dict[int, str] = {}  # hour → of the file that is to be written, until it is
        self._name = f"{re.sub(r'[^A-Za-z0-9]+', '-', name)}-{time.time_ns() // 1_000_000:x}"
        self._max_bytes = max_bytes
        self._min_free = min_free
        self._count = 0
        self._used = 0
        self._looked_at = float("-inf")

    def is_begun(self, hour: int) -> bool:
        """Whether a write of this hour failed: the next one has to be of the same rows."""
        return hour in self._names

    def write(self, hour: int, table: pa.Table) -> int:
        """Write a file of an hour; return its size. Raises OSError."""
        self._check_space()
        if hour not in self._names:
            self._count += 1
            self._names[hour] = f"{self._name}-{self._count:06d}.parquet"
        folder, name = f"{self._root}/{folder_of(hour)}", self._names[hour]
        temporary = f"{folder}/{name}" if self._is_object_store else f"{folder}/_{name}.tmp"
        if not self._is_object_store:
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
            if not self._is_object_store:
                self._fs.move(temporary, f"{folder}/{name}")
        except OSError:
            if not self._is_object_store:  # there, it would be deleted after it was written again
                self._forget(temporary)
            raise
        del self._names[hour]
        self._used += size
        return int(size)

    def used(self) -> int:
        """The bytes of the record, of all workers, as last measured."""
        return self._used

    def _check_space(self) -> None:
        now = time.monotonic()
        every = self._look_every if self._used < self._max_bytes else _LOOK_EVERY
        if now - self._looked_at >= every:
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
