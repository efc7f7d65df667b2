"""Landlock by system call: after restrict() this process reads the given folders and nothing else.

Writing, creating and running files, TCP (from Linux 6.7) and signals to others (6.12) are refused.
The kernel's header `linux/landlock.h` defines numbers and structures.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from collections.abc import Iterable

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION = 1
_PATH_BENEATH = 1
_READ_FILE, _READ_DIR = 1 << 2, 1 << 3
# Rights over files that each version of the interface knows: 1, 2 (refer), 3 (truncate), 5 (ioctl).
_FILES = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 4: (1 << 15) - 1}
_FILES_NOW = (1 << 16) - 1
_TCP = 0b11  # bind, connect
_SCOPES = 0b11  # abstract Unix sockets, signals


class _Ruleset(ctypes.Structure):
    _fields_ = (("files", ctypes.c_uint64), ("net", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


class _Path(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("fd", ctypes.c_int32))


def version() -> int:
    """The kernel's version of the interface, 0 where it has none."""
    if sys.platform != "linux":
        return 0
    found = _syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(_VERSION))
    return max(found, 0)


def restrict(readable: Iterable[str]) -> int:
    """Restrict this thread, for good. Returns the version used, 0 if nothing was restricted."""
    abi = version()
    if not abi:
        return 0
    files = _FILES.get(abi, _FILES_NOW)
    rules = _Ruleset(files, _TCP if abi >= 4 else 0, _SCOPES if abi >= 6 else 0)
    size = 8 if abi < 4 else 16 if abi < 6 else 24
    ruleset = _syscall(_CREATE_RULESET, ctypes.byref(rules), ctypes.c_size_t(size), 0)
    if ruleset < 0:
        return 0
    try:
        for path in readable:
            with contextlib.suppress(OSError):
                _allow(ruleset, path)
        return abi if _syscall(_RESTRICT_SELF, ruleset, 0) == 0 else 0
    finally:
        os.close(ruleset)


def _allow(ruleset: int, path: str) -> None:
    fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        allowed = _READ_FILE | (_READ_DIR if os.path.isdir(path) else 0)  # noqa: PTH112
        rule = _Path(allowed, fd)
        _syscall(_ADD_RULE, ruleset, _PATH_BENEATH, ctypes.byref(rule), 0)
    finally:
        os.close(fd)


def _syscall(*arguments: object) -> int:
    return int(ctypes.CDLL(None, use_errno=True).syscall(*arguments))
