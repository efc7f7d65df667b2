"""What a sandbox's process gives up before foreign code runs in it, and how much of that held.

    resource limits   memory beyond the interpreter's own, no files written, few of them open
    Landlock          reads the interpreter's folders, no other file; no TCP of its own
    no_new_privs, no capabilities, seccomp: no sockets, processes, threads or signals

A sandbox is *confined* if files are closed by Landlock, and the network by seccomp or Landlock.
Where the kernel lacks them, `report["lacks"]` says in words what a stub could do.
"""

from __future__ import annotations

import resource
import sys
import sysconfig
from pathlib import Path
from typing import Any

from . import landlock, seccomp

OPEN_FILES = 32


def confine(memory: int, readable: list[str]) -> dict[str, Any]:
    """Restrict this process for good; it must have one thread.

    Args:
        memory: bytes it may take beyond what it has now.
        readable: folders it may still read, besides those of the interpreter.

    Returns:
        What is in force: `confined`, `landlock` (version or 0), `seccomp`, `lacks` (words).
    """
    has_memory = _limit_memory(memory)
    _limit(resource.RLIMIT_NOFILE, OPEN_FILES)
    _limit(resource.RLIMIT_FSIZE, 0)
    _limit(resource.RLIMIT_CORE, 0)
    folders = [*interpreter_folders(), *readable]
    has_no_new_privileges = seccomp.no_new_privileges()
    seccomp.drop_capabilities()
    abi = landlock.restrict(folders) if has_no_new_privileges else 0
    has_filter = has_no_new_privileges and seccomp.restrict()
    lacks = []
    if not abi:
        lacks.append("it can read files (no Landlock)")
    if not has_filter:
        lacks.append("it can start processes and use UDP (no seccomp filter)")
        if abi < 4:
            lacks.append("it can connect anywhere (Landlock without TCP)")
    if not has_memory:
        lacks.append("its memory is not limited")
    return {
        "confined": bool(abi and (has_filter or abi >= 4) and has_memory),
        "landlock": abi,
        "seccomp": has_filter,
        "lacks": lacks,
    }


def interpreter_folders() -> list[str]:
    """Where the interpreter's own modules are."""
    names = ("stdlib", "platstdlib")
    return sorted({sysconfig.get_path(name) for name in names} | {_dynamic()})


def _dynamic() -> str:
    return str(Path(sysconfig.get_path("platstdlib")) / "lib-dynload")


def _limit(kind: int, value: int) -> bool:
    try:
        resource.setrlimit(kind, (value, value))
    except (ValueError, OSError):
        return False
    return True


def _limit_memory(more: int) -> bool:
    if sys.platform != "linux":
        return _limit(resource.RLIMIT_DATA, more)
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    return _limit(resource.RLIMIT_AS, pages * resource.getpagesize() + more)
