"""A PostgreSQL server of the run's own, where its programs are found; else None.

Looked for in POSTGRES_BIN, on PATH and in /usr/lib/postgresql. PostgreSQL refuses to run as root,
so root starts it as the user `postgres`, or `nobody` where there is none.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import time
from pathlib import Path
from typing import Self

from .processes import free_port


class PostgreSQL:
    """A context manager: a cluster of its own, on a port of its own, gone afterwards."""

    def __init__(self, programs: Path, home: Path) -> None:
        self._programs = programs
        self._home = home
        self._port = free_port()
        self._user = _user()
        self._server: subprocess.Popen[bytes] | None = None

    @classmethod
    def found(cls, directory: Path) -> PostgreSQL | None:
        """A server to start below `directory`, if the machine has one."""
        known = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
        on_path = shutil.which("postgres")
        places = [Path(os.environ["POSTGRES_BIN"])] if "POSTGRES_BIN" in os.environ else []
        places += [Path(on_path).resolve().parent] if on_path else []
        for programs in (*places, *known):
            if (programs / "initdb").exists():
                return cls(programs, directory / "postgres")
        return None

    @property
    def url(self) -> str:
        return f"postgres://node@127.0.0.1:{self._port}/postgres"

    def __enter__(self) -> Self:
        self._home.mkdir()
        self._home.parent.chmod(0o755)
        if self._user is not None:
            shutil.chown(self._home, self._user)
        data = str(self._home / "data")
        self._run("initdb", "-D", data, "-U", "node", "--auth=trust", "--encoding=UTF8")
        self._server = subprocess.Popen(
            [
                str(self._programs / "postgres"),
                *("-D", data, "-p", str(self._port), "-k", str(self._home)),
                *("-c", "listen_addresses=127.0.0.1"),
            ],
            user=self._user,
            cwd=self._home,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            if self._is_ready():
                return self
            time.sleep(0.1)
        raise RuntimeError("PostgreSQL does not start.")

    def __exit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.send_signal(2)  # SIGINT: end the connections, then stop
            try:
                self._server.wait(timeout=20)
            except subprocess.TimeoutExpired:
                self._server.kill()

    def _is_ready(self) -> bool:
        program = str(self._programs / "pg_isready")
        arguments = [program, "-q", "-h", "127.0.0.1", "-p", str(self._port)]
        return subprocess.run(arguments, check=False).returncode == 0  # noqa: S603

    def _run(self, program: str, *arguments: str) -> None:
        subprocess.run(
            [str(self._programs / program), *arguments],
            user=self._user,
            cwd=self._home,
            check=True,
            stdout=subprocess.DEVNULL,
        )


def _user() -> str | None:
    if os.geteuid() != 0:
        return None
    known = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in known else "nobody"
