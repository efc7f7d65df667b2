"""A node started as its operator starts it: `manage.py run` as a process, read line by line."""

from __future__ import annotations

import http.client
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parents[2]
START_SECONDS = 110.0
STOP_SECONDS = 120.0

# Nothing of the tests' own settings, and none of the caller's, reaches the node.
_DROPPED = (
    *("DJANGO_SETTINGS_MODULE", "NODE_MODE", "REDIS_URL", "DATABASE_URL", "SECRET_KEY"),
    *("ALLOWED_HOSTS", "MAKEFLAGS", "MAKELEVEL", "MFLAGS"),
)


def _hear_signals() -> None:
    """What a shell starts in the background ignores Ctrl-C, and so do its children."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def command_of(process: psutil.Process) -> list[str]:
    """How a process was started; nothing if it has ended, perhaps just now."""
    with suppress(psutil.NoSuchProcess):
        return list(process.cmdline())
    return []


class Launched:
    """A process whose lines can be waited for. Leaving the block kills what is left of it."""

    def __init__(
        self,
        data_dir: Path,
        port: int,
        command: Sequence[str] = (sys.executable, "manage.py", "run"),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.data_dir = data_dir
        self.port = port
        self.lines: list[str] = []
        self.family: list[psutil.Process] = []
        self._arrivals: queue.Queue[str | None] = queue.Queue()
        self._process = subprocess.Popen(
            list(command),
            cwd=ROOT,
            env={
                **{name: value for name, value in os.environ.items() if name not in _DROPPED},
                "DATA_DIR": str(data_dir),
                "HOST": "127.0.0.1",
                "PORT": str(port),
                "DRAIN_SECONDS": "1",
                **(environment or {}),
            },
            preexec_fn=_hear_signals,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.pid = self._process.pid
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout
        for line in self._process.stdout:
            self._arrivals.put(line.rstrip("\n"))
        self._arrivals.put(None)

    def __enter__(self) -> Launched:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.remember_family():
            if process.is_running():
                process.kill()
        self._process.kill()
        self._process.wait()
        self._reader.join()
        assert self._process.stdout
        self._process.stdout.close()

    def line_with(self, word: str, seconds: float = START_SECONDS) -> str:
        """The next line that holds `word`."""
        limit = time.monotonic() + seconds
        while True:
            try:
                line = self._arrivals.get(timeout=max(0.0, limit - time.monotonic()))
            except queue.Empty:
                raise AssertionError(f"no {word!r} in {seconds} s: {self.text()}") from None
            if line is None:
                raise AssertionError(f"ended without {word!r}: {self.text()}")
            self.lines.append(line)
            if word in line:
                self.remember_family()
                return line

    def ready(self) -> str:
        """The line that says where the node answers, once what runs beside it does so, too."""
        line = self.line_with("ready:")
        self.line_with("in the background:")
        return line

    def remember_family(self) -> list[psutil.Process]:
        """All processes below ours, and those there were."""
        if self._process.poll() is None:
            try:
                now = psutil.Process(self.pid).children(recursive=True)
            except psutil.NoSuchProcess:
                now = []
            self.family += [process for process in now if process not in self.family]
        return self.family

    def program(self, words: str) -> psutil.Process:
        """The process below ours whose command line holds `words`."""
        for process in self.remember_family():
            if words in " ".join(command_of(process)):
                return process
        raise AssertionError(f"no process {words!r} among {self.family}")

    def signal(self, number: signal.Signals) -> None:
        self.remember_family()
        self._process.send_signal(number)

    def status(self, seconds: float = STOP_SECONDS) -> int:
        """The exit status, waited for."""
        status = self._process.wait(seconds)
        self._reader.join(seconds)
        while not self._arrivals.empty():
            if line := self._arrivals.get():
                self.lines.append(line)
        return status

    def survivors(self, seconds: float = 0.0) -> list[psutil.Process]:
        """Who of the family still lives after `seconds`."""
        _, alive = psutil.wait_procs(self.family, timeout=seconds)
        return [one for one in alive if one.status() != psutil.STATUS_ZOMBIE]

    def text(self) -> str:
        return "\n".join(self.lines)

    def get(self, path: str) -> int:
        """The status of an HTTP request to the node."""
        door = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        try:
            door.request("GET", path, headers={"Host": "localhost"})
            return door.getresponse().status
        finally:
            door.close()
