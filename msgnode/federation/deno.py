"""Finds Deno, the engine of sandboxes, and builds the command that starts it without permissions.

The program comes with the package `deno` (`pip install 'messaging-node[federation]'`), or is
installed on the machine. Where bubblewrap works the process also has neither files nor a network.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
from functools import lru_cache
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent.parent
SCRIPT = _PACKAGE / "federation" / "js" / "stub_host.js"
_FORMS = _PACKAGE / "runtime" / "js" / "src" / "sandbox" / "module-forms.js"
_CONFINE = Path(__file__).resolve().parent / "confine.py"
_MIB = 1024 * 1024
MISSING = "Deno is not installed: pip install 'messaging-node[federation]'"
_PROBE_SECONDS = 10.0


@lru_cache(maxsize=1)
def find() -> str:
    """The path of Deno, "" if there is none. Searched once per process."""
    scripts = sysconfig.get_path("scripts")
    return shutil.which("deno", path=scripts) or shutil.which("deno") or ""


def command(heap_mib: int, data_mib: int, is_wrapped: bool) -> list[str]:
    """The command that starts a sandbox.

    Args:
        heap_mib: limit of JavaScript's heap.
        data_mib: limit of all its memory; below about 600 the engine does not start.
        is_wrapped: whether to use bubblewrap.

    Raises:
        FileNotFoundError: there is no Deno.
    """
    engine = find()
    if not engine:
        raise FileNotFoundError(MISSING)
    options = ["--no-prompt", "--no-config", "--no-lock", "--no-remote", "--no-npm"]
    options += ["--cached-only", f"--v8-flags=--max-old-space-size={heap_mib}"]
    inner = [engine, "run", *options, str(SCRIPT)]
    if is_wrapped:
        places = ["/sandbox/deno", "run", *options, _in_sandbox(SCRIPT)]
        inner = [*_wrapper(engine), *places]
    return [sys.executable, "-I", "-S", str(_CONFINE), str(data_mib * _MIB), *inner]


@lru_cache(maxsize=1)
def can_wrap() -> bool:
    """Whether bubblewrap works here; many containers forbid it. Tried once, and blocks."""
    engine = find()
    if not engine or shutil.which("bwrap") is None:
        return False
    try:
        done = subprocess.run(  # noqa: S603  (programs of this machine)
            [*_wrapper(engine), "/sandbox/deno", "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_PROBE_SECONDS,
            env=environment(),
        )
    except (OSError, subprocess.SubprocessError):
        return False
    return done.returncode == 0


def environment() -> dict[str, str]:
    """The environment variables of a sandbox."""
    return {"DENO_DIR": "/nonexistent", "NO_COLOR": "1", "DENO_NO_UPDATE_CHECK": "1"}


def _wrapper(engine: str) -> list[str]:
    bwrap = shutil.which("bwrap") or "bwrap"
    command = [bwrap, "--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL"]
    command += ["--ro-bind", "/usr", "/usr", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]  # noqa: S108
    for name in ("lib", "lib64"):
        path = Path("/", name)
        if path.is_symlink():
            command += ["--symlink", f"usr/{name}", str(path)]
        elif path.is_dir():
            command += ["--ro-bind", str(path), str(path)]
    command += ["--ro-bind", str(Path(engine).resolve()), "/sandbox/deno"]
    for path in (SCRIPT, _FORMS):  # as far from one another as they are here
        command += ["--ro-bind", str(path), _in_sandbox(path)]
    return [*command, "--chdir", "/sandbox"]


def _in_sandbox(path: Path) -> str:
    return f"/sandbox/{path.relative_to(_PACKAGE)}"
