"""Files of the record, on whatever file system Hadoop knows: list, read, replace, remove.

Only whole files appear: text is written under a temporary name and put in place by a rename that
replaces. Names that begin with "_" or "." are not data. pyarrow looks and reads, as the recorder
does: all below a folder in one call. Of Hadoop each file would be several, each a message to Java.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pyarrow import fs
from pyspark.sql import SparkSession

from spark.jobs.counting import file_system


@dataclass(frozen=True, slots=True, order=True)
class File:
    """A file in a listing."""

    path: str
    name: str
    size: int
    is_folder: bool


class Storage:
    """The file system of the record, through Hadoop."""

    def __init__(self, spark: SparkSession, root: str) -> None:
        session: Any = spark  # py4j's objects have no types
        self._jvm: Any = session._jvm
        configuration = session.sparkContext._jsc.hadoopConfiguration()
        path = self._jvm.org.apache.hadoop.fs.Path(root)
        self._fs = path.getFileSystem(configuration)
        self._files = self._jvm.org.apache.hadoop.fs.FileContext.getFileContext(
            path.makeQualified(self._fs.getUri(), self._fs.getWorkingDirectory()).toUri(),
            configuration,
        )
        self.root = root.rstrip("/")
        self.seen, self._place = file_system(self.root)

    def at(self, *parts: str) -> str:
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
        found: fs.FileInfo = self.seen.get_file_info(self.seen_at(path))
        return found.type != fs.FileType.NotFound

    def read(self, path: str) -> str:
        with self.seen.open_input_file(self.seen_at(path)) as stream:
            return str(stream.read(), "utf-8")

    def replace(self, path: str, text: str) -> None:
        folder, _, name = path.rpartition("/")
        temporary = f"{folder}/_{name}.tmp"
        stream = self._fs.create(self._path(temporary), True)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()
        self.rename(temporary, path)

    def rename(self, path: str, to: str) -> None:
        """In one step; what stood at `to` is gone."""
        overwrite = self._jvm.org.apache.hadoop.fs.Options.Rename.OVERWRITE
        options = self._jvm.java.lang.reflect.Array.newInstance(
            self._jvm.java.lang.Class.forName("org.apache.hadoop.fs.Options$Rename"), 1
        )
        options[0] = overwrite
        self._files.rename(self._path(path), self._path(to), options)

    def remove(self, path: str) -> None:
        """A file, or a folder with all in it. It need not be there."""
        self._fs.delete(self._path(path), True)

    def seen_at(self, path: str) -> str:
        """The path on the file system `seen`, which is pyarrow's."""
        return self._place + path.removeprefix(self.root)

    def _path(self, path: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(path)
