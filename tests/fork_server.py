"""Starts programs of the node as forks of a process that has imported their libraries already.

A start spends two thirds of its processor time on imports of libraries, and a run of the tests
starts nodes and commands a thousand times.

Rules
- The server imports libraries alone: nothing of the product, no settings, nothing that opens a
  connection, starts a thread or installs a reactor. What a program does with its environment
  is as in a process of its own.
- A child has the arguments, directory, environment and descriptors that it is given, and no other
  descriptor. It ends as an interpreter does.
- What an interpreter or a library reads when it is loaded (`_READ_EARLY`) cannot be changed by a
  child: whoever changes it, and whoever measures coverage, starts a process of their own.
- The server ends with the process that uses it, and its children with it.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import re
import runpy
import selectors
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple, NoReturn

from tests import memory

ROOT = Path(__file__).resolve().parent.parent
PRODUCT = ("msgnode", "policies", "registry", "spark")
_READ_EARLY = ("PYTHON", "LD_", "LC_", "LANG", "MALLOC_", "OTEL_", "ASGI_", "OPENSSL", "OPENBLAS")
_MEASURED = ("COVERAGE_PROCESS_START", "COVERAGE_PROCESS_CONFIG")
_NOT_BEFORE_A_FORK = ("daphne", "twisted.internet", "uvicorn", "pyspark", "pyarrow", "numpy")
_IMPORT = re.compile(
    r"^[ \t]*(?:import ([\w.]+)|from ([\w.]+) import (?:\(([^)]*)\)|(.*)))", re.MULTILINE
)
_LENGTH = struct.Struct("!I")
_START_SECONDS = 60.0


class _Order(NamedTuple):
    """What a child is to run."""

    words: list[str]
    cwd: str
    environment: dict[str, str]


class Forked:
    """A child of the server, as `subprocess.Popen` shows one."""

    def __init__(self, link: socket.socket, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._link = link
        self._lock = threading.Lock()

    def poll(self) -> int | None:
        """Its exit status, None while it runs."""
        with contextlib.suppress(TimeoutError):
            self._wait(0.0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Its exit status, waited for.

        Args:
            timeout: Seconds; None waits without end.

        Raises:
            subprocess.TimeoutExpired: It still runs.
        """
        try:
            return self._wait(timeout)
        except TimeoutError:
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0.0) from None

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _wait(self, timeout: float | None) -> int:
        with self._lock:
            if self.returncode is None:
                self._link.settimeout(timeout or (None if timeout is None else 0.0))
                try:
                    said = self._link.recv(_LENGTH.size)
                except BlockingIOError:
                    raise TimeoutError from None
                self.returncode = struct.unpack("!i", said)[0] if said else -signal.SIGKILL
                self._link.close()
            return self.returncode


Process = Forked | subprocess.Popen[bytes]


def start(
    words: Sequence[str],
    cwd: Path,
    environment: Mapping[str, str],
    stdout: int,
    stderr: int,
    stdin: int | None = None,
) -> Process:
    """Start Python with these words, forked where that is the same as a process of its own.

    Args:
        words: `-m`, a module and its arguments; or a file and its arguments.
        cwd: The directory it starts in.
        environment: All of its environment.
        stdout: The descriptor it prints to.
        stderr: The descriptor for its errors.
        stdin: The descriptor it reads from; without one it reads nothing.
    """
    if cwd == ROOT and _may_fork(environment):
        order = json.dumps(_Order(list(words), str(cwd), dict(environment))).encode()
        with Path(os.devnull).open("rb") as nothing:
            reads = nothing.fileno() if stdin is None else stdin
            return _server().start(order, [reads, stdout, stderr])
    return subprocess.Popen(
        [sys.executable, *words], cwd=cwd, env=environment,
        stdin=subprocess.DEVNULL if stdin is None else stdin, stdout=stdout, stderr=stderr,
    )  # fmt: skip


def run(
    words: Sequence[str],
    cwd: Path,
    environment: Mapping[str, str],
    seconds: float,
    text: str = "",
) -> subprocess.CompletedProcess[str]:
    """Run Python with these words to its end, as `start` does; with what it printed.

    Args:
        words: As for `start`.
        cwd: As for `start`.
        environment: As for `start`.
        seconds: After which it is killed.
        text: What it reads.

    Raises:
        subprocess.TimeoutExpired: It was killed.
    """
    with (
        tempfile.TemporaryFile() as given,
        tempfile.TemporaryFile() as out,
        tempfile.TemporaryFile() as err,
    ):
        given.write(text.encode())
        given.seek(0)
        process = start(words, cwd, environment, out.fileno(), err.fileno(), given.fileno())
        try:
            status = process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
        out.seek(0)
        err.seek(0)
        said, errors = out.read().decode(), err.read().decode()
    return subprocess.CompletedProcess([sys.executable, *words], status, said, errors)


def _may_fork(environment: Mapping[str, str]) -> bool:
    if not hasattr(os, "pidfd_open") or any(name in environment for name in _MEASURED):
        return False
    return _read_early(environment) == _read_early(os.environ)


def _read_early(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith(_READ_EARLY)}


# --- the server, seen from the tests --------------------------------------------------------------


class _Server:
    """The server of this process, which ends when this process does."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="forks-")
        self._place = f"{self._folder.name}/socket"
        environment = {
            name: value for name, value in os.environ.items() if name != "DJANGO_SETTINGS_MODULE"
        }
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.fork_server", self._place],
            cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"ready\n", "the server of forks does not start"
        atexit.register(self.end)

    def start(self, order: bytes, descriptors: list[int]) -> Forked:
        """Start one child."""
        link = socket.socket(socket.AF_UNIX)
        link.settimeout(_START_SECONDS)
        link.connect(self._place)
        socket.send_fds(link, [_LENGTH.pack(len(order))], descriptors)
        link.sendall(order)
        return Forked(link, _LENGTH.unpack(_exactly(link, _LENGTH.size))[0])

    def end(self) -> None:
        """End it and its children."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(10)
        self._folder.cleanup()


_starting = threading.Lock()


def _server() -> _Server:
    with _starting:
        return _the_server(os.getpid())


@cache
def _the_server(_pid: int) -> _Server:
    return _Server()


def _exactly(link: socket.socket, size: int) -> bytes:
    said = b""
    while len(said) < size:
        more = link.recv(size - len(said))
        if not more:
            raise ConnectionError("the server of forks has ended")
        said += more
    return said


# --- the server -----------------------------------------------------------------------------------


def serve(place: str) -> _Order:
    """Fork a child for each order that arrives; returns in the children alone, with the order."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to the tests and all theirs
    children: dict[int, tuple[int, socket.socket]] = {}  # by a descriptor: the pid, and who waits
    with contextlib.ExitStack() as held:
        selector = held.enter_context(selectors.DefaultSelector())
        door = held.enter_context(socket.socket(socket.AF_UNIX))
        door.bind(place)
        door.listen(64)
        selector.register(door, selectors.EVENT_READ)
        selector.register(0, selectors.EVENT_READ)  # which is closed by the end of who uses this
        print("ready", flush=True)
        while True:
            for key, _ in selector.select():
                if key.fd == 0:
                    _end([pid for pid, _ in children.values()])
                elif key.fd in children:
                    selector.unregister(key.fd)
                    os.close(key.fd)
                    _tell(*children.pop(key.fd))
                else:
                    link, order, descriptors = _received(door)
                    pid = os.fork()
                    if pid == 0:
                        for other in (link, *(waiting for _, waiting in children.values())):
                            other.close()
                        _take_on(descriptors)
                        for end in children:
                            os.close(end)
                        return order
                    for descriptor in descriptors:
                        os.close(descriptor)
                    link.sendall(_LENGTH.pack(pid))
                    children[(end := os.pidfd_open(pid))] = pid, link
                    selector.register(end, selectors.EVENT_READ)


def _received(door: socket.socket) -> tuple[socket.socket, _Order, list[int]]:
    link, _ = door.accept()
    head, descriptors, _, _ = socket.recv_fds(link, _LENGTH.size, 3)
    assert len(head) == _LENGTH.size and len(descriptors) == 3
    return link, _Order(*json.loads(_exactly(link, _LENGTH.unpack(head)[0]))), descriptors


def _take_on(descriptors: list[int]) -> None:
    """Have these as standard input, output and errors, and the signals of a new process."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)


def _tell(pid: int, waiting: socket.socket) -> None:
    """Tell whoever started a child that it has ended, and how."""
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    with contextlib.suppress(OSError), waiting:
        waiting.sendall(struct.pack("!i", status))


def _end(pids: list[int]) -> NoReturn:
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    os._exit(0)


def _libraries() -> dict[str, set[str]]:
    """The modules from elsewhere that the product imports, each with what it imports from it."""
    found: dict[str, set[str]] = {}
    for path in (path for room in PRODUCT for path in (ROOT / room).rglob("*.py")):
        for plain, module, several, one in _IMPORT.findall(path.read_text(encoding="utf-8")):
            found.setdefault(plain or module, set()).update(re.findall(r"\w+", several or one))
    return found


def load() -> None:
    """Import the libraries that can be imported before the settings are known."""
    for module, names in sorted(_libraries().items()):
        if not module.startswith((*PRODUCT, *_NOT_BEFORE_A_FORK)):
            with contextlib.suppress(Exception):  # it asks for the settings, or is no module
                loaded = importlib.import_module(module)
                for name in names:
                    if not hasattr(loaded, name):
                        importlib.import_module(f"{module}.{name}")
    held = [
        name for name in ("twisted.internet.reactor", "msgnode.settings") if name in sys.modules
    ]
    assert not held and threading.active_count() == 1, f"loaded before a fork: {held}"
    gc.collect()
    gc.freeze()  # so that children write to less of what they share


def become(order: _Order) -> None:
    """Run what is ordered, as the interpreter would."""
    os.environ.clear()
    os.environ.update(order.environment)
    os.chdir(order.cwd)
    time.tzset()
    if folder := order.environment.get(memory.FOLDER):
        memory.tell_when_asked(folder)
    sys.orig_argv[:] = [sys.executable, *order.words]
    if order.words[0] == "-m":
        sys.argv[:] = order.words[1:]
        runpy.run_module(order.words[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv[:] = order.words
        runpy.run_path(order.words[0], run_name="__main__")


if __name__ == "__main__":
    load()
    become(serve(sys.argv[1]))
