"""The runtime as downloadable packages, served at `/.well-known/runtime/…`.

A package is made from the files of this node, once per process, and deterministically: the same
node gives the same digest.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from . import wheel

_JAVASCRIPT = Path(__file__).resolve().parent.parent / "runtime" / "js"


@dataclass(frozen=True)
class ServedPackage:
    """A package the node serves.

    name     the catalogue's name for it       file_name   of the download
    build    makes its bytes                   media_type  of the download
    """

    name: str
    file_name: str
    media_type: str
    language: str
    build: Callable[[], bytes]

    @cached_property
    def content(self) -> bytes:
        """Its bytes, made when they are first asked for."""
        return self.build()

    def descriptor(self) -> dict[str, Any]:
        """What the catalogue says of it."""
        digest = base64.b64encode(hashlib.sha256(self.content).digest()).decode()
        return {
            "type": "RUNTIME",
            "objectName": self.name,
            "language": self.language,
            "sourcePackageURL": f"/.well-known/runtime/{self.file_name}",
            "integrity": f"sha256-{digest}",
            "bytes": len(self.content),
        }


def javascript_package() -> bytes:
    """The archive that `npm install URL` and `tar` read: everything below `package/`."""
    files = [_JAVASCRIPT / "package.json", _JAVASCRIPT / "README.md"]
    files += sorted(path for path in (_JAVASCRIPT / "src").rglob("*") if path.is_file())
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for path in files:
            entry = tarfile.TarInfo(f"package/{path.relative_to(_JAVASCRIPT).as_posix()}")
            entry.size, entry.mode = path.stat().st_size, 0o644
            with path.open("rb") as content:
                tar.addfile(entry, content)
    return gzip.compress(archive.getvalue(), mtime=0)


PACKAGES = (
    ServedPackage("js", "js.tgz", "application/gzip", "JAVASCRIPT_ECMA6", javascript_package),
    ServedPackage("python", wheel.FILE_NAME, "application/octet-stream", "PYTHON", wheel.build),
)


def find_package(name: str) -> ServedPackage | None:
    """The package of this name or file name."""
    return next((each for each in PACKAGES if name in (each.name, each.file_name)), None)
