"""Processes of a run: started, watched, ended. Reads their memory and CPU time from /proc."""

from __future__ import annotations

import os
import random
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "var" / "bench"
_TICKS = os.sysconf("SC_CLK_TCK")
_PORTS = range(15_000, 32_768)
_given: set[int] = set()


def raise_file_limit(needed: int = 0) -> int:
    """Let this process and its children open as many files as the system allows.

    Args:
        needed: how many there are to be; root may have more than the limit.

    Returns:
        How many are allowed now.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):  # not everywhere: a container's root may lack the right
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(hard, needed), max(hard, needed)))
        return max(hard, needed)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def free_port() -> int:
    """A port nobody listens on, not given before, and below those given to whoever asks for any.

    Raises:
        RuntimeError: a hundred of them are all taken.
    """
    for port in random.SystemRandom().sample(_PORTS, 100):
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            if port not in _given:
                _given.add(port)
                return port
    raise RuntimeError(f"a hundred ports of {_PORTS} are all taken")


def cpu_seconds(pid: int) -> float:
    """Processor time a process has used so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def resident_bytes(pid: int) -> int:
    """Memory a process has in RAM now."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise ProcessLookupError(pid)


class Server:
    """A server process on a port of its own. A context manager that ends it."""

    def __init__(
        self,
        name: str,
        arguments: Sequence[str],
        port: int,
        log: Path,
        environment: Mapping[str, str] | None = None,
        program: str = sys.executable,
        root: Path = ROOT,
    ) -> None:
        self.name = name
        self.port = port
        self.root = root
        self._command = [program, *arguments]
        self.environment = {**os.environ, **(environment or {})}
        self.log = log
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self, patience: float = 60.0) -> None:
        """Start it and wait until it takes connections.

        Raises:
            RuntimeError: it does not, or something else listens on its port already.
        """
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                raise RuntimeError(f"the port of {self.name}, {self.port}, is taken")
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                cwd=self.root,
                env=self.environment,
                stdout=log,
                stderr=log,
            )
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline and self._process.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
            except OSError:
                time.sleep(0.05)
            else:
                return
        raise RuntimeError(f"{self.name} does not start:\n{self.log.read_text()[-2000:]}")

    def wait(self, patience: float = 30.0) -> int:
        """The exit status, waited for."""
        assert self._process is not None
        return self._process.wait(timeout=patience)

    def kill(self) -> None:
        """End it as a power cut would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                self.kill()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
