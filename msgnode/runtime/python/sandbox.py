"""A sandbox seen from the core: a child process, its port, and the limits that end it.

Rules
- Whatever comes from the port is hostile: lines of bounded size, parsed with care, at most
  `rate` messages (and `rate_bytes`) a second; beyond that the port is not read for a while.
- The core dials. What its `dial` refuses is refused; else the connected socket is handed in.
- One that does not answer, does not read, computes without end or says nonsense is killed. That
  ends this sandbox and nothing else: `on_end` is called once, with the reason.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import resource
import signal
import socket
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import websockets

from .dials import Dial, Dials
from .messages import Message, body_of, code_of
from .sandbox_child import INTERNAL, line_of
from .settings import Limits

BEAT = 1.0  # seconds between two pings
MAX_NONSENSE = 10  # lines that cannot be read, until the end
SHARE = 0.8  # of a processor
CPU_AHEAD = 40  # seconds of processor time that are left if the core stands still
KEPT_WORDS = 8192  # bytes of what it wrote to stderr
_BOOT = (
    "import sys, json, importlib; a = json.loads(sys.argv[1]); sys.path[:0] = a['path']; "
    "importlib.import_module(a['module']).main(a)"
)
_TICKS = os.sysconf("SC_CLK_TCK")


class SandboxError(Exception):
    """A sandbox did not do what it was told; `code` as in an answer."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class Sandbox:
    """One child process."""

    def __init__(
        self,
        limits: Limits,
        dial: Dial,
        on_message: Callable[[str, Any], None],
        on_end: Callable[[str], None],
    ) -> None:
        self.limits = limits
        self.report: dict[str, Any] = {}
        self.counters: Counter[str] = Counter()
        self.words = b""
        self.is_ended = False
        self.reason = ""
        self._on_message = on_message
        self._on_end = on_end
        self._process: asyncio.subprocess.Process | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._dials = Dials(dial, self._spawn, self.end)
        self._ready: asyncio.Future[None] | None = None
        self._commands: dict[int, asyncio.Future[Message]] = {}
        self._ids = itertools.count(1)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._pidfd = -1
        self._words_task: asyncio.Task[None] | None = None
        self._heard = 0.0

    @property
    def pid(self) -> int:
        """The child's process id, 0 before it was started."""
        return self._process.pid if self._process else 0

    async def start(self) -> None:
        """Start the process and wait until it has given up its rights. Raises SandboxError."""
        loop = asyncio.get_running_loop()
        self._ready = loop.create_future()
        port, theirs = socket.socketpair()
        their_control = self._dials.open()
        try:
            self._process = await asyncio.create_subprocess_exec(
                *_command(theirs.fileno(), their_control.fileno(), self.limits.memory),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.PIPE,
                pass_fds=(theirs.fileno(), their_control.fileno()),
                env={},
                cwd="/",
                start_new_session=True,
            )
        except OSError as error:
            port.close()
            self._dials.close()
            raise SandboxError(501, f"No sandbox can be started: {error}") from None
        finally:
            theirs.close()
            their_control.close()
        if sys.platform == "linux":
            with contextlib.suppress(OSError):
                self._pidfd = os.pidfd_open(self._process.pid)
        reader, self._writer = await asyncio.open_connection(sock=port, limit=self.limits.line)
        self._heard = loop.time()
        for work in (self._read(reader), self._beat(), self._reap(self._process)):
            self._spawn(work)
        self._words_task = loop.create_task(self._read_words(self._process.stderr))
        try:
            async with asyncio.timeout(self.limits.start):
                await self._ready
        except TimeoutError:
            self.end("It did not start in time.")
            raise SandboxError(504, "The sandbox did not start in time.") from None

    def post(self, url: str, message: Message) -> bool:
        """Hand a message to a component; False if the sandbox has ended, or has to by this."""
        return self._write({"url": url, "message": message})

    async def command(self, type_: str, body: dict[str, Any], seconds: float) -> str:
        """Have the sandbox do something and return its words. Raises SandboxError."""
        id_ = next(self._ids)
        answered = self._commands[id_] = asyncio.get_running_loop().create_future()
        head = {"id": id_, "type": type_, "from": "hyperty-runtime://sandbox/external"}
        try:
            if not self._write({"url": "", "message": {**head, "to": INTERNAL, "body": body}}):
                raise SandboxError(503, self.reason or "The sandbox has ended.")
            async with asyncio.timeout(seconds):
                answer = await answered
        except TimeoutError:
            raise SandboxError(504, f"The sandbox did not {type_} in time.") from None
        finally:
            self._commands.pop(id_, None)
        words = str(body_of(answer).get("desc", ""))
        if code_of(answer) != 200:
            raise SandboxError(code_of(answer), words)
        return words

    def end(self, reason: str) -> None:
        """Kill the process. What it still had to do is answered by whoever asked for it."""
        if self.is_ended:
            return
        self.is_ended, self.reason = True, reason
        self._kill()
        if self._writer is not None:
            self._writer.transport.abort()
        self._dials.close()
        error = SandboxError(503, reason)
        for future in (self._ready, *self._commands.values()):
            if future is not None and not future.done():
                future.set_exception(error)
                future.exception()  # who waits for it, if anybody does, is told all the same
        self._on_end(reason)

    def _kill(self) -> None:
        """Not Popen.kill(): that reaps the child before who waits for it does."""
        with contextlib.suppress(ProcessLookupError):
            if self._pidfd >= 0:
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
                os.close(self._pidfd)
                self._pidfd = -1
            elif self._process is not None and self._process.returncode is None:
                self._process.kill()

    async def ended(self) -> None:
        """Wait until the process is gone and nothing of it is left."""
        if self._process is not None:
            await self._process.wait()
        current = asyncio.current_task()
        others = {task for task in self._tasks if task is not current}
        for task in others:
            task.cancel()
        if self._words_task is not None:
            await asyncio.wait([self._words_task])
        if others:
            await asyncio.wait(others)

    # --- the port ---------------------------------------------------------------------------------

    def _write(self, line: dict[str, Any]) -> bool:
        if self.is_ended or self._writer is None:
            return False
        data = line_of(line)
        transport = self._writer.transport
        if transport.get_write_buffer_size() + len(data) > self.limits.port_queue:
            self.end("It does not read what it is sent.")
            return False
        self._writer.write(data)
        return True

    async def _read(self, reader: asyncio.StreamReader) -> None:
        clock = asyncio.get_running_loop().time
        limits = self.limits
        tokens, filled = float(limits.rate), clock()
        try:
            while line := await reader.readline():
                self._heard = now = clock()
                tokens = min(limits.rate, tokens + (now - filled) * limits.rate) - max(
                    1.0, len(line) * limits.rate / limits.rate_bytes
                )
                filled = now
                self._take(line)
                if tokens < 0:
                    self.counters["sandbox.throttled"] += 1
                    await asyncio.sleep(-tokens / limits.rate)
            self.end("It has ended.")
        except ValueError:
            self.end(f"It sent a line of more than {limits.line} bytes.")
        except OSError as error:
            self.end(f"Its port broke: {error}")

    def _take(self, line: bytes) -> None:
        try:
            got = json.loads(line)
            if "message" in got:
                url, message = str(got["url"]), got["message"]
                if url:
                    self._on_message(url, message)
                elif (future := self._commands.get(message["id"])) and not future.done():
                    future.set_result(message)
            elif "dial" in got:
                self._dials.ask(int(got["dial"]), str(got["host"]), int(got["port"]))
            elif "ready" in got and self._ready is not None and not self._ready.done():
                self.report = dict(got["ready"])
                self._ready.set_result(None)
            elif "pong" not in got:
                raise ValueError
        except (
            ArithmeticError,
            AttributeError,
            LookupError,
            RecursionError,
            TypeError,
            ValueError,
        ):
            self.counters["stub.malformed"] += 1
            if self.counters["stub.malformed"] > MAX_NONSENSE:
                self.end("It does not keep to the protocol of its port.")

    async def _read_words(self, stderr: asyncio.StreamReader | None) -> None:
        """Keep the last of what it writes to stderr, and read no faster than anybody could."""
        while stderr is not None and (words := await stderr.read(KEPT_WORDS)):
            self.words = (self.words + words)[-KEPT_WORDS:]
            await asyncio.sleep(0.05)

    # --- its health -------------------------------------------------------------------------------

    async def _beat(self) -> None:
        """Ask whether it is alive, and look at its queue and its processor time."""
        clock = asyncio.get_running_loop().time
        limits = self.limits
        busy = 0.0
        spent_before, unread_since, unread_before = self._spent(), clock(), 0
        for number in itertools.count(1):
            began = clock()
            await asyncio.sleep(BEAT)
            passed = clock() - began
            if self.is_ended:
                return
            if passed > 2 * BEAT:  # it was we who stood still
                self._heard = unread_since = clock()
                continue
            unread = self._writer.transport.get_write_buffer_size() if self._writer else 0
            if not unread or unread < unread_before:
                unread_since = clock()
            unread_before = unread
            spent = self._spent()
            busy = busy + passed if (spent - spent_before) / passed > SHARE else 0.0
            spent_before = spent
            self._extend(spent)
            if clock() - self._heard > limits.silence:
                self.end(f"It gave no sign of life for {limits.silence:g} s.")
            elif clock() - unread_since > limits.silence:
                self.end(f"It did not read what it is sent for {limits.silence:g} s.")
            elif busy > limits.busy:
                self.end(f"It used a processor for {limits.busy:g} s.")
            else:
                self._write({"ping": number})

    def _spent(self) -> float:
        """Seconds of processor time it has used; 0 where that cannot be told."""
        try:
            stat = Path(f"/proc/{self.pid}/stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return 0.0
        fields = stat.rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    def _extend(self, spent: float) -> None:
        """Let it go on; if this process stands still, the kernel ends the child by itself."""
        if sys.platform == "linux":
            with contextlib.suppress(OSError, ValueError):
                soft = int(spent) + CPU_AHEAD
                resource.prlimit(self.pid, resource.RLIMIT_CPU, (soft, resource.RLIM_INFINITY))

    async def _reap(self, process: asyncio.subprocess.Process) -> None:
        code = await process.wait()
        self.end("It ran out of memory." if code == 71 else f"It has ended ({code}).")

    def _spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _command(port: int, control: int, memory: int) -> list[str]:
    package = __package__ or ""
    here = Path(__file__).resolve()
    library = Path(websockets.__file__).resolve().parent
    arguments = {
        "path": [str(here.parents[package.count(".") + 1]), str(library.parent)],
        "module": f"{package}.sandbox_child",
        "parent": os.getpid(),
        "port": port,
        "control": control,
        "memory": memory,
        # What the core trusts, the child trusts; it has no environment that would tell it.
        "authorities": [os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")],
        "readable": [str(library)],
    }
    return [sys.executable, "-I", "-S", "-B", "-c", _BOOT, json.dumps(arguments)]
