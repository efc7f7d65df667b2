"""The archive file: written completely or not at all, read only if every digest matches.

A compressed tar file, readable by its owner only, with the manifest first. Its parts are gathered
in a locked directory beside it; what a killed backup has left there is removed by the next one.
Only the finished file gets the requested name, and an existing file is never replaced.
"""

from __future__ import annotations

import fcntl
import gzip
import hashlib
import os
import shutil
import tarfile
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO

from .manifest import MANIFEST, ArchiveFault, Manifest, Part, decode, encode

_STAGING = ".node-backup-"
_MANIFEST_AT_MOST = 4 * 1024 * 1024
_BLOCK = 1024 * 1024
_AT_ONCE = 4 * _BLOCK
_LEVEL = 3


_UNREADABLE = (ValueError, OverflowError, RecursionError)
"""What tarfile raises besides its own for headers that nothing but malice has made."""


class _Unpacked(gzip.GzipFile):
    """The tar file in the archive, of which no header can have more read at once than is sound."""

    def read(self, size: int | None = -1) -> bytes:
        """Read so much.

        Raises:
            ArchiveFault: no backup has a header that is so long.
        """
        if size is None or not 0 <= size <= _AT_ONCE:
            raise ArchiveFault("It is damaged: a header in it is longer than any backup's.")
        return super().read(size)


@contextmanager
def staging(folder: Path) -> Iterator[Path]:
    """A directory of our own for the parts of an archive, gone afterwards.

    Args:
        folder: where the archive will be; made if it is missing.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        with _locked(folder, waits=True):  # else another removes ours before it is locked
            for left in folder.glob(f"{_STAGING}*"):
                with _locked(left) as is_ours:
                    if is_ours:
                        shutil.rmtree(left, ignore_errors=True)
            own = Path(tempfile.mkdtemp(prefix=_STAGING, dir=folder))
            stack.callback(shutil.rmtree, own, ignore_errors=True)
            stack.enter_context(_locked(own))
        yield own


@contextmanager
def _locked(folder: Path, *, waits: bool = False) -> Iterator[bool]:
    """Lock the directory; return whether nobody else has it."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        yield False
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if waits else fcntl.LOCK_NB))
    except BlockingIOError:
        yield False
    else:
        yield True
    finally:
        os.close(descriptor)


def digest_of(path: Path) -> Part:
    """Size and SHA-256 of a file."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256")
    return Part(path.stat().st_size, digest.hexdigest())


def write(output: Path, staged: Path, manifest: Manifest) -> int:
    """Make the archive of the parts in `staged`, which `manifest` names; its size in bytes.

    Raises:
        FileExistsError: there is a file of that name.
        OSError: the disk does not take it; then nothing is there.
    """
    (staged / MANIFEST).write_bytes(encode(manifest))
    made = staged / "archive"
    with os.fdopen(os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        with tarfile.open(fileobj=file, mode="w:gz", compresslevel=_LEVEL) as tar:
            for name in (MANIFEST, *manifest.parts):
                tar.add(staged / name, name, recursive=False, filter=_plain)
        file.flush()
        os.fsync(file.fileno())
    try:
        output.hardlink_to(made)  # fails if the name is taken
    except FileExistsError:
        raise
    except OSError:  # a file system without links
        if output.exists():
            raise FileExistsError(f"{output} exists") from None
        made.rename(output)
    sync(output.parent)
    return output.stat().st_size


def _plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    member.mode = 0o600
    return member


def extract(archive: Path, folder: Path) -> Manifest:
    """Write the parts of an archive into an empty directory, each compared with its digest.

    Raises:
        ArchiveFault: the archive is damaged, or none; the text names the part.
        OSError: the archive cannot be read, or the disk does not take it.
    """
    try:
        with _Unpacked(archive) as content, tarfile.open(fileobj=content, mode="r:") as tar:
            manifest = _manifest(tar)
            needed = sum(part.bytes for part in manifest.parts.values())
            free = shutil.disk_usage(folder).free
            if needed > free:
                raise OSError(f"{folder} has {free:,} bytes free; {needed:,} are needed")
            found = set()
            while member := tar.next():
                part = manifest.parts.get(member.name)
                if part is None or member.name in found or not member.isreg():
                    raise ArchiveFault(f"{member.name} is damaged: it is not in {MANIFEST}.")
                found.add(member.name)
                _take(tar, member, part, folder / member.name)
            content.read(_BLOCK)  # to the end, where the file's own check sum is
            if content.read(1):
                raise ArchiveFault("It is damaged: it goes on behind its last part.")
    except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile, *_UNREADABLE) as fault:
        raise ArchiveFault(f"It is damaged, or no archive: {fault}") from None
    if missing := sorted(set(manifest.parts) - found):
        raise ArchiveFault(f"{missing[0]} is missing.")
    return manifest


def _manifest(tar: tarfile.TarFile) -> Manifest:
    first = tar.next()
    if first is None or first.name != MANIFEST or not first.isreg():
        raise ArchiveFault(f"It does not begin with {MANIFEST}.")
    if first.size > _MANIFEST_AT_MOST:
        raise ArchiveFault(f"{MANIFEST} is larger than any backup's.")
    return decode(_content(tar, first).read())


def _take(tar: tarfile.TarFile, member: tarfile.TarInfo, part: Part, path: Path) -> None:
    path.parent.mkdir(mode=0o700, exist_ok=True)
    digest = hashlib.sha256()
    source = _content(tar, member)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        left = part.bytes
        while block := source.read(min(_BLOCK, left + 1)):
            left -= len(block)
            if left < 0:
                break
            digest.update(block)
            file.write(block)
        file.flush()
        os.fsync(file.fileno())
    if left or digest.hexdigest() != part.sha256:
        raise ArchiveFault(f"{member.name} is damaged: its digest is another than {MANIFEST} says.")


def _content(tar: tarfile.TarFile, member: tarfile.TarInfo) -> IO[bytes]:
    content = tar.extractfile(member)
    assert content is not None, "only regular files are asked for"  # noqa: S101
    return content


def sync(folder: Path) -> None:
    """Have the names of a directory on the disk."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
