"""Files of the record, on whatever file system Hadoop knows: list, read, replace, remove.

Only whole files appear: text is written under a temporary name and put in place by a rename that
replaces. Names that begin with "_" or "." are not data.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True, order=True)
class File:
    path: str
    name: str
    size: int
    is_folder: bool


class Storage:
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

    def at(self, *parts: str) -> str:
        return "/".join((self.root, *parts))

    def files(self, folder: str) -> list[File]:
        """What stands in a folder, by name; nothing if there is no such folder."""
        path = self._path(folder)
        if not self._fs.exists(path):
            return []
        return sorted(
            File(str(at := found.getPath()), at.getName(), found.getLen(), found.isDirectory())
            for found in self._fs.listStatus(path)
        )

    def exists(self, path: str) -> bool:
        return bool(self._fs.exists(self._path(path)))

    def read(self, path: str) -> str:
        stream = self._fs.open(self._path(path))
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

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

    def _path(self, path: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(path)
