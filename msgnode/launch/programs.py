"""supervisord as a child process: starts it, queries its programs, stops them all.

It leads a process session of its own, so that a Ctrl-C in the terminal reaches only the launcher,
and the node gets time to stop. supervisord is tied to the launcher and the programs to supervisord:
none outlives the one above it.
"""

from __future__ import annotations

import contextlib
import fcntl
import http.client
import os
import signal
import subprocess
import sys
import tempfile
import xmlrpc.client
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from supervisor.xmlrpc import SupervisorTransport

from msgnode.resources import HOME

from .error_messages import StartFailed, cause_in

_SOCKET_LENGTH = 90  # the kernel takes 107 bytes, and supervisord adds its process id
_ERRORS_KEPT = 256 * 1024


@dataclass(frozen=True, slots=True)
class Program:
    """A supervised program, as supervisord sees it now."""

    name: str
    state: str
    pid: int
    why: str

    @property
    def has_failed(self) -> bool:
        """Whether supervisord has given it up, or is restarting it."""
        return self.state in ("BACKOFF", "EXITED", "FATAL", "UNKNOWN")


class Programs:
    """node, worker and beat, kept alive by supervisord."""

    def __init__(self, configuration: Path, data_dir: Path, stop_seconds: float) -> None:
        self.configuration = configuration
        self.data_dir = data_dir
        self.stop_seconds = stop_seconds
        self._process: subprocess.Popen[bytes] | None = None
        self._short = contextlib.ExitStack()
        # In memory: supervisord writes there what it could not log, and a full disk would end it.
        self._errors = os.memfd_create("supervisord.err")
        fcntl.fcntl(self._errors, fcntl.F_SETFL, os.O_APPEND)
        self._offsets: dict[str, int] = {}
        self._socket = data_dir / "supervisord.sock"
        if len(os.fsencode(self._socket)) > _SOCKET_LENGTH:
            folder = self._short.enter_context(tempfile.TemporaryDirectory(prefix="node-"))
            self._socket = Path(folder) / "supervisord.sock"

    def start(self, environment: Mapping[str, str], lock: IO[str]) -> None:
        """Start supervisord, which starts the programs.

        Args:
            environment: the environment of all of them.
            lock: they keep it open, so that no second node starts beside the remains of this one.
        """
        self._socket.unlink(missing_ok=True)
        for log in (self.data_dir / "logs").glob("*.log"):
            self._offsets[log.stem] = log.stat().st_size
        os.ftruncate(self._errors, 0)
        self._process = subprocess.Popen(  # noqa: S603  (our own argument list)
            [
                *(sys.executable, "-m", "msgnode.launch.pdeathsig", "TERM"),
                *(sys.executable, "-m", "supervisor.supervisord"),
                *("--configuration", str(self.configuration)),
            ],
            cwd=HOME,
            env={**os.environ, **environment, **self.places()},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._errors,
            pass_fds=(lock.fileno(),),
            start_new_session=True,
        )

    def places(self) -> dict[str, str]:
        """What its configuration calls them: NODE_LOGS is expanded once more than the others."""
        return {
            "NODE_PYTHON": sys.executable,
            "NODE_HOME": str(HOME),
            "NODE_DATA_DIR": str(self.data_dir),
            "NODE_LOGS": str(self.data_dir / "logs").replace("%", "%%"),
            "NODE_CONTROL_SOCKET": str(self._socket),
            "NODE_STOP_SECONDS": str(int(self.stop_seconds) + 1),
        }

    def look(self) -> list[Program]:
        """The programs; none while supervisord does not listen yet."""
        if self._process is None or self._process.poll() is not None:
            said = Path(f"/proc/self/fd/{self._errors}")
            why = cause_in(said, 0) or cause_in(self.log("supervisord"), 0)
            raise StartFailed(f"supervisord ended: {why}")
        if os.fstat(self._errors).st_size > _ERRORS_KEPT:
            os.ftruncate(self._errors, 0)
        try:
            with self._supervisord() as supervisord:
                rows: Any = supervisord.supervisor.getAllProcessInfo()
        except (OSError, http.client.HTTPException, xmlrpc.client.Error):
            return []
        return [Program(row["name"], row["statename"], row["pid"], row["spawnerr"]) for row in rows]

    @property
    def pid(self) -> int:
        """The process of supervisord, 0 if it does not run."""
        return self._process.pid if self._process is not None else 0

    def start_waiting(self, seen: Iterable[Program]) -> None:
        """Start those of these programs that supervisord does not start by itself."""
        waiting = [each.name for each in seen if each.state in ("STOPPED", "FATAL")]
        if not waiting:
            return
        with (
            contextlib.suppress(OSError, http.client.HTTPException, xmlrpc.client.Error),
            self._supervisord() as supervisord,
        ):
            for name in waiting:
                supervisord.supervisor.startProcess(f"all:{name}", False)

    def restart(self, name: str) -> None:
        """Stop a program, which `start_waiting` then starts again."""
        with (
            contextlib.suppress(OSError, http.client.HTTPException, xmlrpc.client.Error),
            self._supervisord() as supervisord,
        ):
            supervisord.supervisor.stopProcess(f"all:{name}", False)

    def _supervisord(self) -> xmlrpc.client.ServerProxy:
        transport: Any = SupervisorTransport(serverurl=f"unix://{self._socket}")
        return xmlrpc.client.ServerProxy("http://127.0.0.1", transport=transport)

    def log(self, name: str) -> Path:
        """The log file of a program."""
        return self.data_dir / "logs" / f"{name}.log"

    def last(self, name: str) -> str:
        """The last error or line in the log of a program of this run."""
        return cause_in(self.log(name), self._offsets.get(name, 0)) or "it has said nothing yet"

    def cause(self, program: Program) -> str:
        """Why a program failed, from its own log of this run."""
        said = cause_in(self.log(program.name), self._offsets.get(program.name, 0))
        return said or program.why or f"see {self.log(program.name)}"

    def stop(self) -> bool:
        """Stop them all; return whether they ended by themselves in time."""
        process, self._process = self._process, None
        if process is None:
            return True
        try:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
            process.wait(self.stop_seconds + 5)
        except subprocess.TimeoutExpired:
            process.kill()  # and with it the programs, which are tied to it
            process.wait()
            return False
        finally:
            self._short.close()
        return True
