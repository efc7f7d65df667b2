"""A sandbox: a process that runs one foreign protostub, watched, and killed if it misbehaves.

Rules
- Nothing of the stub runs in the node's own process. pipe.py parses what the process sends.
- It is killed when it leaves three heartbeats unanswered (a loop, or a stopped process), uses more
  memory or processor time than allowed, or sends an invalid operation. It is killed by SIGKILL to
  its whole process group, and the reason is kept. Of one that was killed, what was not read yet
  does not count. Of one that ends by itself, all is read before its end is told.
- It is not read faster than LINES_PER_SECOND and BYTES_PER_SECOND: then the pipe fills and it
  blocks.
- Unread output to it is bounded; `is_full` tells writers.
- It starts without a fork of the node, which would hold the node's loop for as long as its memory
  takes to be mapped again (25-50 ms): `subprocess` uses vfork, in a thread.
- Its engine is Deno, started without permissions. The program comes with the package `deno`
  (`pip install 'messaging-node[federation]'`), or is installed on the machine. Where bubblewrap
  works the process also has neither files nor a network.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from msgnode.core.faults import FAULTS
from msgnode.core.priority import lower_priority
from msgnode.core.token_bucket import TokenBucket

from . import pipe
from .pipe import InvalidLine, Logged, Pong, Said

log = logging.getLogger(__name__)

STARTS_AT_ONCE = 4
"""Most sandboxes of a worker that start at the same time; fifty together would all be slow."""
_STARTERS = ThreadPoolExecutor(STARTS_AT_ONCE, "sandbox")
"""Threads of their own: a script that floods the others must not delay its end."""
LINES_PER_SECOND = 4_000
BYTES_PER_SECOND = 40_000_000
HIGH_WATER = 4 * 1024 * 1024
"""Bytes written to a sandbox and not read by it above which it gets no more messages."""
_HARD_LIMIT = 16 * 1024 * 1024
_READ = 65_536
_LINES_AT_ONCE = 32
"""Lines of a sandbox that are taken in one turn of the loop."""
_STDERR = 8_192
_LOGS = 20
_ENDING = 1.0
"""Seconds in which a sandbox has to end whose output has ended."""
_START_BEATS = 6  # before the first answer, because it may still be starting
_CPU_SHARE, _CPU_SECONDS = 0.8, 30.0
_NICENESS = 10
_PROC = Path("/proc")
_PAGE, _TICKS = os.sysconf("SC_PAGE_SIZE"), os.sysconf("SC_CLK_TCK")
_MAX_PROCESSES = 64
"""Children of a sandbox that are looked at."""


@dataclass(frozen=True, slots=True)
class SandboxLimits:
    """The limits of one sandbox.

    Attributes:
        heap_mib, data_mib: limits of JavaScript's heap, and of all memory (see deno_command).
        memory_mib: limit of the resident memory.
        silence: seconds without an answer to a heartbeat.
        max_frame: bytes of the largest message.
        wraps: whether to use bubblewrap: auto, required or off.
    """

    heap_mib: int = 64
    data_mib: int = 640
    memory_mib: int = 256
    silence: float = 3.0
    max_frame: int = 1024 * 1024
    wraps: str = "auto"


class SandboxProcess:
    """A process of Deno that runs one stub.

    Args:
        limits: its limits.
        said: called with each operation it sends, except for heartbeats and logs.
        command: replaces that of Deno.
    """

    def __init__(
        self,
        limits: SandboxLimits,
        said: Callable[[Said], None],
        command: Sequence[str] | None = None,
    ) -> None:
        self.logs: deque[str] = deque(maxlen=_LOGS)
        self.errors = b""
        self.reason = ""
        self.memory_bytes = 0
        self.cpu_seconds = 0.0
        self.is_wrapped = False
        self.refused_lines = 0
        self._limits = limits
        self._said = said
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None
        self._writers: list[asyncio.StreamWriter] = []  # of its input, and of what is only read
        self._tasks: list[asyncio.Task[None]] = []
        self._lines = TokenBucket(LINES_PER_SECOND)
        self._bytes = TokenBucket(BYTES_PER_SECOND)
        self._sent = self._heard = 0  # heartbeats
        self._end: asyncio.Task[str] | None = None

    @property
    def pid(self) -> int:
        """Its process id, 0 before the start."""
        return self._process.pid if self._process is not None else 0

    @property
    def is_running(self) -> bool:
        """Whether the process has started, and has not ended or been killed."""
        return self._process is not None and self._process.returncode is None and not self.reason

    @property
    def is_full(self) -> bool:
        """Whether so much waits to be read by it that its senders have to wait."""
        return self._unread > HIGH_WATER

    async def start(self) -> None:
        """Start the process, and read its output."""
        starting = asyncio.get_running_loop().run_in_executor(_STARTERS, self._begin)
        try:
            started = await asyncio.shield(starting)
        except asyncio.CancelledError:
            starting.add_done_callback(_abandoned)
            raise
        self._process = started.process
        try:
            streams = [await asyncio.open_unix_connection(sock=each) for each in started.sockets]
        except BaseException:
            self.kill("it could not be started")
            raise
        self._writers = [writer for _, writer in streams]
        self._writers[0].transport.set_write_buffer_limits(HIGH_WATER)
        _, output, errors = (reader for reader, _ in streams)
        reading = asyncio.create_task(self._kept(self._read(output)))
        for job in (self._read_errors(errors), self._watch()):
            self._tasks.append(asyncio.create_task(self._kept(job)))
        self._end = asyncio.create_task(self._wait(reading))
        if self.reason:  # it was killed while it started
            self.kill(self.reason)

    def send(self, line: bytes) -> None:
        """Write one line; a process that does not read is killed."""
        if not self.is_running or not self._writers:
            return
        if self._unread > _HARD_LIMIT:
            self.kill("it does not read what it is told")
            return
        with suppress(OSError, RuntimeError):  # it is ending: its end is told by `ended`
            self._writers[0].write(line)

    async def has_read(self) -> None:
        """Wait until it has read most of what it was sent, or has ended."""
        if self._writers:
            with suppress(OSError):
                await self._writers[0].drain()

    def kill(self, reason: str) -> None:
        """Kill the process and all that it has started; the first reason is kept."""
        self.reason = self.reason or reason
        process = self._process
        if process is None or process.returncode is not None:
            return
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        with suppress(ProcessLookupError):
            process.kill()

    async def ended(self) -> str:
        """Wait for its end; return the reason."""
        if self._end is None:
            return self.reason
        return await asyncio.shield(self._end)

    # --- jobs -------------------------------------------------------------------------------------

    def _begin(self) -> _Started:
        return _started(list(self._command or ()) or self._deno())

    def _deno(self) -> list[str]:
        limits = self._limits
        self.is_wrapped = limits.wraps != "off" and can_wrap()
        if limits.wraps == "required" and not self.is_wrapped:
            raise OSError("bubblewrap is required and does not work here")
        return deno_command(limits.heap_mib, limits.data_mib, self.is_wrapped)

    @property
    def _unread(self) -> int:
        return self._writers[0].transport.get_write_buffer_size() if self._writers else 0

    async def _wait(self, reading: asyncio.Task[None]) -> str:
        """Wait until its output has ended, and it has."""
        process = self._process
        assert process is not None  # noqa: S101  (started before)
        await asyncio.wait({reading})
        until = time.monotonic() + _ENDING
        while (code := process.poll()) is None:
            await asyncio.sleep(_ENDING / 100)
            if time.monotonic() > until:
                self.kill("it closed its output")
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)  # its remaining children
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.memory_bytes = 0
        for writer in self._writers:
            writer.close()
        last = self.errors.decode(errors="replace").strip().rpartition("\n")[2]
        self.reason = self.reason or f"it ended with {code}" + (f": {last[:200]}" if last else "")
        return self.reason

    async def _kept(self, job: object) -> None:
        """Run a job; an error in it kills this sandbox, and affects nothing else."""
        try:
            await job  # type: ignore[misc]  # a coroutine
        except Exception as error:
            self._failed(error)

    def _failed(self, error: Exception) -> None:
        FAULTS.note("sandbox", error)
        self.kill("the node failed at what it said")

    async def _read(self, stream: asyncio.StreamReader) -> None:
        try:
            await self._read_lines(stream)
        except InvalidLine as fault:
            self.refused_lines += 1
            self.kill(str(fault))
        except Exception as error:
            self._failed(error)
        while await stream.read(_READ):
            pass  # until it has ended

    async def _read_lines(self, stream: asyncio.StreamReader) -> None:
        reader = pipe.LineReader(self._limits.max_frame + pipe.LINE_OVERHEAD)
        while part := await stream.read(_READ):
            owed = max(self._lines.pay(part.count(b"\n")), self._bytes.pay(len(part)))
            lines = reader.feed(part)
            starts = range(0, len(lines), _LINES_AT_ONCE) or range(1)
            for start in starts:
                for line in lines[start : start + _LINES_AT_ONCE]:
                    self._take(pipe.read(line))
                if owed or len(starts) > 1:
                    await asyncio.sleep(owed / len(starts))

    def _take(self, said: Said) -> None:
        if self.reason:
            return  # it was killed: what it still sends does not count
        if isinstance(said, Pong):
            if self._heard < said.n <= self._sent:
                self._heard = said.n
        elif isinstance(said, Logged):
            self.logs.append(said.text[: pipe.SHOWN])
        else:
            self._said(said)

    async def _read_errors(self, stream: asyncio.StreamReader) -> None:
        while part := await stream.read(_READ):
            self.errors = (self.errors + part)[-_STDERR:]

    async def _watch(self) -> None:
        """Check heartbeats, memory and processor, three times within the allowed silence.

        Heartbeats are counted, not seconds: none are missed if this process itself was stopped.
        """
        every = self._limits.silence / 3
        busy = 0.0
        is_lowered = False
        while True:
            is_lowered = is_lowered or lower_priority(self.pid, _NICENESS)
            self._sent += 1
            self.send(pipe.ping(self._sent))
            await asyncio.sleep(every)
            unanswered = self._sent - self._heard
            if unanswered >= (3 if self._heard else _START_BEATS):
                self.kill(f"it was unresponsive for {self._limits.silence:g} s")
                return
            figures = process_figures(self.pid)
            busy = busy + every if figures.cpu - self.cpu_seconds > _CPU_SHARE * every else 0.0
            self.memory_bytes, self.cpu_seconds = figures.memory, figures.cpu
            if self.memory_bytes > self._limits.memory_mib * 1024 * 1024:
                self.kill(f"it used more than {self._limits.memory_mib} MiB of memory")
                return
            if busy >= _CPU_SECONDS:
                self.kill(f"it kept a processor busy for {_CPU_SECONDS:g} s")
                return


class _Started(NamedTuple):
    """A process, and our ends of its input, its output, and what it says of errors.

    They are sockets: uvloop closes the descriptor of a pipe twice, and the second time it may be
    that of a file which another thread has opened meanwhile.
    """

    process: subprocess.Popen[bytes]
    sockets: list[socket.socket]


def _started(command: Sequence[str]) -> _Started:
    pairs = [socket.socketpair() for _ in range(3)]
    ours, theirs = ([pair[end] for pair in pairs] for end in (0, 1))
    try:
        process = subprocess.Popen(  # noqa: S603  (our own arguments)
            command,
            stdin=theirs[0].fileno(),
            stdout=theirs[1].fileno(),
            stderr=theirs[2].fileno(),
            env=environment(),
            cwd=tempfile.gettempdir(),
            start_new_session=True,
        )
    except BaseException:
        _close(ours)
        raise
    finally:
        _close(theirs)
    return _Started(process, ours)


def _abandoned(starting: asyncio.Future[_Started]) -> None:
    """End a process whose start nobody waits for any more."""
    if not starting.cancelled() and starting.exception() is None:
        started = starting.result()
        started.process.kill()
        started.process.wait()
        _close(started.sockets)


def _close(sockets: Iterable[socket.socket]) -> None:
    for each in sockets:
        each.close()


class ProcessFigures(NamedTuple):
    """Bytes in memory, and seconds of processor time."""

    memory: int
    cpu: float


def process_figures(pid: int) -> ProcessFigures:
    """The usage of a process and its children, from /proc; elsewhere, and once ended, zero."""
    memory, ticks = 0, 0
    waiting = [pid]
    seen = 0
    while waiting and seen < _MAX_PROCESSES:
        each = waiting.pop()
        seen += 1
        try:
            place = _PROC / str(each)
            fields = (place / "stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
            memory += int((place / "statm").read_text().split()[1]) * _PAGE
            children = (place / "task" / str(each) / "children").read_text()
            waiting += map(int, children.split())
        except (OSError, ValueError, IndexError):
            continue
    return ProcessFigures(memory, ticks / _TICKS)


# --- the engine -----------------------------------------------------------------------------------
_PACKAGE = Path(__file__).resolve().parent.parent
SCRIPT = _PACKAGE / "sandbox" / "js" / "host.js"
_FORMS = _PACKAGE / "runtime" / "js" / "src" / "sandbox" / "module-forms.js"
_CONFINE = Path(__file__).resolve().parent / "confine.py"
_MIB = 1024 * 1024
NO_DENO = "Deno is not installed: pip install 'messaging-node[federation]'"
_PROBE_SECONDS = 10.0


def find_deno() -> str:
    """The path of Deno, "" if there is none; it may be installed while the node runs."""
    with suppress(FileNotFoundError):
        return _deno()
    return ""


@lru_cache(maxsize=1)
def _deno() -> str:
    scripts = sysconfig.get_path("scripts")
    if found := shutil.which("deno", path=scripts) or shutil.which("deno"):
        return found
    raise FileNotFoundError(NO_DENO)


def deno_command(heap_mib: int, data_mib: int, is_wrapped: bool) -> list[str]:
    """The command that starts a sandbox.

    Args:
        heap_mib: limit of JavaScript's heap.
        data_mib: limit of all its memory; below about 600 the engine does not start.
        is_wrapped: whether to use bubblewrap.

    Raises:
        FileNotFoundError: there is no Deno.
    """
    engine = find_deno()
    if not engine:
        raise FileNotFoundError(NO_DENO)
    options = ["--no-prompt", "--no-config", "--no-lock", "--no-remote", "--no-npm"]
    options += ["--cached-only", f"--v8-flags=--max-old-space-size={heap_mib}"]
    inner = [engine, "run", *options, str(SCRIPT)]
    if is_wrapped:
        places = ["/sandbox/deno", "run", *options, _in_sandbox(SCRIPT)]
        inner = [*_wrapper(engine), *places]
    return [sys.executable, "-I", "-S", str(_CONFINE), str(data_mib * _MIB), *inner]


def can_wrap() -> bool:
    """Whether bubblewrap works here; many containers forbid it. Tried once, and blocks."""
    engine = find_deno()
    return bool(engine) and shutil.which("bwrap") is not None and _wraps(engine)


@lru_cache(maxsize=1)
def _wraps(engine: str) -> bool:
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
    command = [bwrap, "--unshare-all", "--die-with-parent", "--cap-drop", "ALL"]
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
