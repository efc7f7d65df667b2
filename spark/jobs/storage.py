"""Lists, reads, replaces and removes files of the record, on any file system that pyarrow supports.

Only complete files appear: text is written under a temporary name and renamed into place; an object
store writes complete objects anyway. Names that begin with "_" or "." are not data. Everything
below a folder is listed in one call.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass

from pyarrow import fs

from spark.jobs.places import delete_folder, is_object_store, place


@dataclass(frozen=True, slots=True, order=True)
class File:
    """A file in a listing."""

    path: str
    name: str
    size: int
    is_folder: bool


MISSING_LIST = "_missing.json"
"""In the folder of an hour: the names of files that its archive lists and a restored node lacks."""


class Storage:
    """The file system of the record."""

    def __init__(self, root: str) -> None:
        self.root = root.rstrip("/")
        self.seen, self._place = place(self.root)
        self.is_object_store = is_object_store(self.seen)

    def at(self, *parts: str) -> str:
        """The path of a file below the root."""
        return "/".join((self.root, *parts))

    def files(self, folder: str, *, all_below: bool = False) -> list[File]:
        """What stands in a folder, or in all below it too; nothing if there is no such folder."""
        below = fs.FileSelector(self.seen_at(folder), allow_not_found=True, recursive=all_below)
        return sorted(
            File(
                self.root + found.path.removeprefix(self._place),
                found.base_name,
                found.size or 0,
                found.type == fs.FileType.Directory,
            )
            for found in self.seen.get_file_info(below)
        )

    def exists(self, path: str) -> bool:
        """Whether a file or a folder has this path."""
        return self._kind(path) != fs.FileType.NotFound

    def read(self, path: str) -> str:
        """The text of a file. Raises FileNotFoundError."""
        with self.seen.open_input_file(self.seen_at(path)) as stream:
            return str(stream.read(), "utf-8")

    def replace(self, path: str, text: str) -> None:
        """Write a file whole, in the place of the one that was there."""
        folder, _, name = path.rpartition("/")
        temporary = path if self.is_object_store else f"{folder}/_{name}.tmp"
        if not self.is_object_store:
            self.seen.create_dir(self.seen_at(folder), recursive=True)
        with self.seen.open_output_stream(self.seen_at(temporary)) as stream:
            stream.write(text.encode())
        self.sync(temporary)
        if temporary != path:
            self.rename(temporary, path)

    def sync(self, path: str) -> None:
        """Have a file, or the files of a folder, on the disk before something relies on them.

        Other file systems than the local one see to that themselves.
        """
        if not isinstance(self.seen, fs.LocalFileSystem):
            return
        below = fs.FileSelector(self.seen_at(path), recursive=True, allow_not_found=True)
        is_folder = self._kind(path) == fs.FileType.Directory
        found = self.seen.get_file_info(below) if is_folder else []
        for each in [self.seen_at(path), *(info.path for info in found)]:
            descriptor = os.open(each, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def rename(self, path: str, to: str) -> None:
        """What stood at `to` is gone. In one step, but on an object store: there both may stand."""
        self.seen.move(self.seen_at(path), self.seen_at(to))

    def remove(self, path: str) -> None:
        """A file, or a folder with all in it. It need not be there."""
        match self._kind(path):
            case fs.FileType.Directory:
                delete_folder(self.seen, self.seen_at(path))
            case fs.FileType.NotFound:
                return
            case _:
                with suppress(FileNotFoundError):  # another run was faster
                    self.seen.delete_file(self.seen_at(path))

    def seen_at(self, path: str) -> str:
        """The path on the file system `seen`."""
        return self._place + path.removeprefix(self.root)

    def _kind(self, path: str) -> fs.FileType:
        found: fs.FileInfo = self.seen.get_file_info(self.seen_at(path))
        return found.type
