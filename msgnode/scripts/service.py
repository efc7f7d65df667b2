"""The scripts behind the ports of this worker: which run, and the calls to them.

Rules
- A script that is approved takes its port, in every worker, as soon as the row says so; each worker
  runs it in a process of its own. While it is paused, starts or has failed, requests are answered
  503: nobody else is asked instead.
- A call ends within CALL_SECONDS (504). MAX_CALLS run at a time; up to MAX_WAITING wait, in order.
  Of those that one source or peer asks for, SHARE run at a time, and SHARE_WAITING are there at all
  (429); what the node asks for itself has no such bound.
- When the process ends, calls that only read are made once again in the next one; others are
  answered 503. The next one starts after 0.25 s, doubling to 30 s. After MAX_ENDS within
  ENDS_SECONDS it is not started any more until an operator acts: alarm `script-failed`.
- A new version is loaded beside the old one, and replaces it if that succeeds: calls that run end
  in the old one, within DRAIN_SECONDS.
- What a script answers is checked against the type that the port asks for (502). MAX_WRONG wrong
  ones in a row are an alarm.
"""

from __future__ import annotations

import asyncio
import json
import logging
import statistics
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from msgnode.bus.periodic import every
from msgnode.bus.ports import Alarms
from msgnode.connectors.asking import ASKING, source_of_caller
from msgnode.core.back_off import BackOff
from msgnode.core.digest import digest
from msgnode.core.errors import BadGateway, GatewayTimeout, NodeError, TooMany, Unavailable
from msgnode.core.faults import FAULTS
from msgnode.models import Connector
from msgnode.sandbox import process
from msgnode.sandbox.pipe import KeptWanted
from msgnode.sandbox.process import STARTS_AT_ONCE, SandboxLimits
from msgnode.storage.control import Handler
from msgnode.storage.database_threads import DatabaseThreads

from . import store
from .script import Ended, Outside, Script, ScriptFailed, decoded
from .store import FAILED_ALARM, ConnectorRow, Version

log = logging.getLogger(__name__)

CALL_SECONDS = 5.0
MAX_CALLS, MAX_WAITING = 64, 1_000
SHARE, SHARE_WAITING = 16, 250
"""Of these, for one source: a quarter, so that one whose calls never end delays nobody else."""
MAX_ENDS, ENDS_SECONDS = 5, 600.0
DRAIN_SECONDS = 5.0
MAX_WRONG = 3
NOTE_SECONDS = 5.0
RECORDED = 10
"""Calls that the row shows, for the workbench."""
_UNRECORDED = frozenset({Connector.Port.IDENTITY, Connector.Port.LEGACY})
"""Whose arguments are tokens, or what people write."""
STARTING, LIVE, FAULTY, WAITING, FAILED = "starting", "live", "faulty", "waiting", "failed"

Tell = Callable[[list[tuple[str, str]]], None]
Hear = Callable[[str, bytes], Awaitable[Any]]
"""Takes what has happened in the network: what, and the JSON of it. Raises NodeError."""


async def _nobody_hears(event: str, value: bytes) -> Any:
    raise Unavailable("No network of this worker is the script's.")


@dataclass(slots=True)
class Figures:
    """What became of calls since the figures were noted last."""

    times: deque[float]
    outcomes: Counter[int]
    recorded: deque[dict[str, Any]]


@dataclass(slots=True)
class Share:
    """The calls of one source to a port, as long as it has any."""

    turns: asyncio.Semaphore
    calls: int = 0


class Port:
    """The script behind one port.

    Args:
        name: of the port, as Connector.Port has it.
        scripts: all of this worker's.
    """

    def __init__(self, name: str, scripts: Scripts) -> None:
        self.row: ConnectorRow | None = None
        self.state = self.last_error = ""
        self.tell: Tell = lambda entries: None
        self.hear: Hear = _nobody_hears
        self.on_change: list[Callable[[], None]] = []
        """Called when another version answers, or none any more."""
        self.outcomes: Counter[int] = Counter()
        self.figures = Figures(deque(maxlen=1_000), Counter(), deque(maxlen=RECORDED))
        self.name = name
        self.restarts = 0
        self.version: Version | None = None
        self.script: Script | None = None
        self._scripts = scripts
        self._live = asyncio.Event()
        self._turns = asyncio.Semaphore(MAX_CALLS)
        self._waiting = self._wrong = 0
        self._shares: dict[str, Share] = {}
        self._ends: deque[float] = deque(maxlen=MAX_ENDS)
        self._back_off = BackOff(0.25, 30.0)
        self._begins: asyncio.Task[None] | None = None

    @property
    def is_chosen(self) -> bool:
        """Whether the port is the script's."""
        return self.row is not None and self.row.is_chosen

    @property
    def _label(self) -> str:
        return str(Connector.Port(self.name).label)

    def has(self, method: str) -> bool:
        """Whether the script that runs has a method."""
        return self.script is not None and method in self.script.methods

    # --- calls ------------------------------------------------------------------------------------

    async def call(self, method: str, argument: Any, type_: Any, *, is_read: bool = False) -> Any:
        """Call a method of the script, for who asks its connector.

        Args:
            method: its name.
            argument: what it is given.
            type_: of its result, as msgspec decodes it.
            is_read: whether it may be made once again if the script ends before it answers.

        Raises:
            NodeError: the script's refusal, or why there is no answer.
        """
        began = time.monotonic()
        code = 200
        if self._waiting >= MAX_WAITING:
            self._count(503)
            raise Unavailable(f"The script of the {self._label} has too many calls waiting.")
        asking = ASKING.get()
        source = source_of_caller(asking) if asking is not None else ""
        share = self._share(source)
        self._waiting += 1
        share.calls += 1
        try:
            async with asyncio.timeout(CALL_SECONDS), share.turns, self._turns:
                context = {
                    "deadline": int((time.time() + CALL_SECONDS) * 1000),
                    "owner": digest(asking.id) if asking is not None else "",
                }
                value = decoded(await self._answered(method, argument, context, is_read), type_)
            self._wrong = 0
            return value
        except TimeoutError:
            code = 504 if self._live.is_set() else 503
            text = f"The script of the {self._label} does not answer."
            raise (GatewayTimeout if code == 504 else Unavailable)(text) from None
        except Ended:
            code = 503
            raise Unavailable(f"The script of the {self._label} has ended; try again.") from None
        except ScriptFailed as fault:
            code = 502
            self._is_wrong(method, fault)
            raise BadGateway(f"The script of the {self._label} failed.") from None
        except NodeError as refusal:
            code = refusal.code
            raise
        finally:
            self._waiting -= 1
            share.calls -= 1
            if not share.calls:
                self._shares.pop(source, None)
            self._count(code)
            self.figures.times.append(time.monotonic() - began)
            if self.name not in _UNRECORDED:
                self.figures.recorded.append({"method": method, "argument": argument})

    def _share(self, source: str) -> Share:
        """The calls of a source, "" for the node itself. Raises TooMany."""
        share = self._shares.get(source)
        if share is None:
            share = self._shares[source] = Share(asyncio.Semaphore(SHARE if source else MAX_CALLS))
        if source and share.calls >= SHARE_WAITING:
            self._count(429)
            raise TooMany(f"{SHARE_WAITING} calls to the {self._label} from there are under way.")
        return share

    async def run_end(self) -> asyncio.Future[str]:
        """Of the script that runs, once one does: when it ends, and why. Raises Unavailable."""
        return asyncio.ensure_future((await self._running()).sandbox.ended())

    async def _answered(
        self, method: str, argument: Any, context: dict[str, Any], is_read: bool
    ) -> bytes:
        for is_again in (False, True):
            script = await self._running()
            if method not in script.methods:
                raise ScriptFailed(f"it has no method {method}")
            try:
                return await script.call(method, argument, context)
            except Ended:
                if is_again or not is_read:
                    raise
        raise AssertionError

    async def _running(self) -> Script:
        """The script, once it runs. Raises Unavailable: it does not, and will not soon."""
        while True:
            row, script = self.row, self.script
            if script is not None and script.sandbox.is_running:
                return script
            if row is None or not row.is_approved:
                raise Unavailable(f"The {self._label} is paused.")
            if self.state not in (STARTING, WAITING, LIVE, FAULTY):
                raise Unavailable(f"The script of the {self._label} cannot be used.")
            if script is not None:
                self._live.clear()  # it has ended, which is told in a moment
            await self._live.wait()

    def _count(self, code: int) -> None:
        self.outcomes[code] += 1
        self.figures.outcomes[code] += 1

    def _is_wrong(self, method: str, fault: ScriptFailed) -> None:
        self._wrong += 1
        self.last_error = f"{method}: {fault}"[:300]
        log.warning("The script of the %s failed at %s: %s", self._label, method, fault)
        if self._wrong == MAX_WRONG and self.state == LIVE:
            self._enter(FAULTY)
            self._alarm(f"{MAX_WRONG} results in a row were wrong: {self.last_error}")

    def _alarm(self, text: str) -> None:
        self._scripts.alarms.raise_alarm(FAILED_ALARM, self.name, text[:500])

    def _enter(self, state: str, error: str | None = None) -> None:
        self.state = state
        self.last_error = self.last_error if error is None else error[:300]
        self._scripts.note(self)

    def forget(self) -> None:
        """Forget what was said in the last calls, for it may name a person who is erased."""
        self.figures.recorded.clear()
        self.last_error = ""
        if self.script is not None:
            self.script.refusals = []
            self.script.sandbox.logs.clear()

    # --- its life ---------------------------------------------------------------------------------

    async def use(self, row: ConnectorRow | None, version: Version | None) -> None:
        """Have a version run, or none.

        Args:
            row: the row of the connector, None if it has none.
            version: its approved version.
        """
        before, self.row = self.row, row
        if row is None or not row.is_approved or version is None:
            was = self.script is not None or before != row
            await self._end("it is not to run")
            self.version, self.state = None, ""
            self._live.set()  # who waits learns it
            if was:
                self._tell_change()
            return
        if self.version == version and self.state:
            return
        if self.script is not None and self.version is not None:
            await self._replace(row, self.version, version)
            return
        self.version = version
        await self.restart()

    async def restart(self) -> None:
        """Start the script anew, whatever it has done before."""
        if self.version is None or self.row is None or not self.row.is_approved:
            return
        await self._end("an operator had it begin anew")
        self._ends.clear()
        self._back_off.reset()
        self._wrong = 0
        self._scripts.alarms.clear_alarm(FAILED_ALARM, self.name)
        self._begin_after(0.0)

    async def stop(self) -> None:
        """End it."""
        await self._end("the node stops")

    async def _end(self, why: str) -> None:
        self._live.clear()
        if self._begins is not None:
            self._begins.cancel()
            await asyncio.gather(self._begins, return_exceptions=True)
            self._begins = None
        script, self.script = self.script, None
        if script is not None:
            script.kill(why)
            await script.sandbox.ended()

    def _make(self, version: Version) -> Script:
        keep = partial(self._scripts.keep, self.row.pk if self.row is not None else 0)
        world = Outside(
            version,
            keep,
            lambda said: self.hear(said.event, bytes(said.value)),
            lambda entries: self.tell(entries),
        )
        return Script(self.name, version, world, self._scripts.limits)

    def _begin_after(self, seconds: float) -> None:
        self._live.clear()
        self._enter(WAITING if seconds else STARTING)
        self._begins = asyncio.create_task(self._begin(seconds))

    async def _begin(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        if self.version is None:
            return
        script = self._make(self.version)
        try:
            ended = await self._scripts.begin(script)
        except (OSError, ScriptFailed) as why:
            self._begins = None
            self._has_ended(str(why))
            return
        self._begins = None
        self._take(script, ended)

    def _take(self, script: Script, ended: asyncio.Future[str]) -> None:
        self.script = script
        self.version = script.version
        self._back_off.succeeded()
        self._enter(LIVE, "")
        self._live.set()
        ended.add_done_callback(partial(self._lost, script))
        self._tell_change()

    def _lost(self, script: Script, ended: asyncio.Future[str]) -> None:
        if script is self.script:
            self.script = None
            self._has_ended("" if ended.cancelled() else ended.result())

    def _has_ended(self, why: str) -> None:
        """Start it again, if it has not ended too often."""
        self.restarts += 1
        self._ends.append(time.monotonic())
        is_often = len(self._ends) == MAX_ENDS and self._ends[-1] - self._ends[0] < ENDS_SECONDS
        self.last_error = why[:300]
        log.warning("The script of the %s has ended: %s", self._label, why)
        if is_often or not process.find_deno():
            self._enter(FAILED)
            self._live.set()  # who waits learns it
            self._alarm(f"It is not started any more: {why}")
            return
        self._begin_after(self._back_off.failed())

    async def _replace(self, row: ConnectorRow, before: Version, version: Version) -> None:
        new = self._make(version)
        try:
            ended = await self._scripts.begin(new)
        except (OSError, ScriptFailed) as why:
            self.last_error = f"version {version.digest[:12]} cannot be used: {why}"[:300]
            self._alarm(self.last_error)
            self._scripts.note(self)
            await self._scripts.in_thread(partial(store.take_back, row, before.digest))
            return
        old = self.script
        self._take(new, ended)
        if old is not None:
            self._scripts.spawn(partial(_drained, old))

    def _tell_change(self) -> None:
        for hear in self.on_change:
            hear()


async def _drained(script: Script) -> None:
    """End a script when its calls have."""
    with suppress(TimeoutError):
        async with asyncio.timeout(DRAIN_SECONDS):
            await script.is_idle.wait()
    script.kill("another version has replaced it")
    await script.sandbox.ended()


class Scripts:
    """All connectors of this worker that are scripts.

    Args:
        limits: of each sandbox.
        alarms: the node's alarms.
    """

    def __init__(self, limits: SandboxLimits, alarms: Alarms) -> None:
        self.limits = limits
        self.alarms = alarms
        self._starts = asyncio.Semaphore(STARTS_AT_ONCE)
        self.ports = {str(name): Port(str(name), self) for name in Connector.Port}
        self._rows: list[ConnectorRow] = []
        self._threads = DatabaseThreads("connectors", 2, 1_000, "Connectors keep too much at once.")
        self._noted: dict[int, tuple[str, str]] = {}
        self._turn = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._running: set[Script] = set()

    # --- the life of the worker -------------------------------------------------------------------

    def load(self) -> None:
        """Read the rows. Blocks."""
        self._rows = store.read()

    async def start(self) -> None:
        """Have begin what is to run; requests wait for it."""
        for row in self._rows:
            port = self.ports[row.port]
            port.row, port.state = row, STARTING  # so that nobody else is asked meanwhile
        self.spawn(partial(self._use_all, self._rows))

    def jobs(self) -> list[Coroutine[Any, Any, None]]:
        """What runs as long as the worker."""
        return [every(NOTE_SECONDS, self._note_figures, "connectors")]

    def handlers(self) -> dict[str, Handler]:
        """The handlers of what operators do."""
        return {
            store.CHANGED: self._changed,
            store.RESTART: self._restart,
            store.FORGET: self._forget,
        }

    async def stop(self) -> None:
        """End all scripts."""
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for port in self.ports.values():
            await port.stop()
        for script in tuple(self._running):
            script.kill("the node stops")
            await script.sandbox.ended()
        self._threads.stop()

    @property
    def state(self) -> tuple[str, str]:
        """For the health page; nothing where there is no connector."""
        chosen = [port for port in self.ports.values() if port.is_chosen]
        live = sum(port.state == LIVE for port in chosen)
        return ("scripts", f"{live} of {len(chosen)} live") if chosen else ("", "")

    def metrics(self) -> Iterator[Metric]:
        """Calls by port and code; starts."""
        calls = CounterMetricFamily(
            "msgnode_script_calls", "Calls to scripts of connectors.", labels=["port", "code"]
        )
        ends = CounterMetricFamily(
            "msgnode_script_ends", "Ends of scripts of connectors.", labels=["port"]
        )
        memory = GaugeMetricFamily(
            "msgnode_script_memory_bytes", "Memory of a connector's script.", labels=["port"]
        )
        for name, port in self.ports.items():
            if not port.is_chosen:
                continue
            for code, number in tuple(port.outcomes.items()):
                calls.add_metric([name, str(code)], number)
            ends.add_metric([name], port.restarts)
            script = port.script
            memory.add_metric([name], script.sandbox.memory_bytes if script else 0)
        yield from (calls, ends, memory)

    # --- rows -------------------------------------------------------------------------------------

    def _changed(self, payload: dict[str, Any]) -> None:
        self.spawn(self._read)

    def _restart(self, payload: dict[str, Any]) -> None:
        self.spawn(partial(self._start_anew, payload["port"]))

    def _forget(self, payload: dict[str, Any]) -> None:
        self.ports[payload["port"]].forget()

    async def _start_anew(self, name: str) -> None:
        async with self._turn:
            port = self.ports[name]
            if port.row is not None and port.row.is_approved:
                port.version = await self.in_thread(
                    partial(store.version_of, port.row.pk, port.row.digest)
                )
                await port.restart()

    async def _read(self) -> None:
        await self._use_all(await self.in_thread(store.read))

    async def _use_all(self, rows: list[ConnectorRow]) -> None:
        async with self._turn:
            by_port = {row.port: row for row in rows}
            for name, port in self.ports.items():
                row = by_port.get(name)
                version = port.version
                is_known = version is not None and row is not None and version.digest == row.digest
                if row is not None and row.is_approved and not is_known:
                    version = await self.in_thread(partial(store.version_of, row.pk, row.digest))
                with FAULTS.kept_to("connectors"):
                    await port.use(row, version)

    async def begin(self, script: Script) -> asyncio.Future[str]:
        """Start a script, as few at a time as may start. Raises OSError and ScriptFailed."""
        async with self._starts:
            self._running.add(script)
            try:
                ended = await script.start()
            except BaseException:
                self._running.discard(script)
                raise
        ended.add_done_callback(lambda _: self._running.discard(script))
        return ended

    # --- for its ports ----------------------------------------------------------------------------

    def spawn(self, job: Callable[[], Awaitable[object]]) -> None:
        """Run a job beside all else, until the worker stops."""

        async def kept() -> None:
            try:
                await job()
            except Exception as error:
                FAULTS.note("connectors", error)

        task = asyncio.create_task(kept())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def in_thread(self, call: Callable[[], Any]) -> Any:
        """Run what uses the database."""
        return await self._threads.run(call)

    def keep(self, pk: int, wanted: KeptWanted) -> Awaitable[Any]:
        """Read or change what a connector keeps."""
        parts = (wanted.action, wanted.key, wanted.value, wanted.version)
        return self.in_thread(lambda: store.kept(pk, *parts))

    def note(self, port: Port) -> None:
        """Store the state of a connector, soon."""
        row = port.row
        if row is not None and self._noted.get(row.pk) != (port.state, port.last_error):
            self._noted[row.pk] = (port.state, port.last_error)
            note = partial(store.note_state, row.pk, port.state, port.last_error)
            self.spawn(partial(self.in_thread, note))

    async def _note_figures(self) -> None:
        for port in self.ports.values():
            if port.row is None or not port.is_chosen:
                continue
            self.note(port)
            await self.in_thread(partial(store.note_figures, port.row.pk, figures_of(port)))


def figures_of(port: Port) -> dict[str, Any]:
    """What the row shows of the last seconds; begins them anew."""
    figures, script = port.figures, port.script
    times = sorted(figures.times)
    told = {
        "calls_per_second": round(sum(figures.outcomes.values()) / NOTE_SECONDS, 1),
        "codes": {str(code): number for code, number in figures.outcomes.items()},
        "median_ms": round(statistics.median(times) * 1000, 2) if times else 0,
        "sandbox_bytes": script.sandbox.memory_bytes if script is not None else 0,
        "restarts": port.restarts,
        "dropped": script.dropped if script is not None else 0,
        "requests_refused": script.refused if script is not None else 0,
        "refusals": script.refusals if script is not None else [],
        "log": list(script.sandbox.logs) if script is not None else [],
        "recorded": [each for each in figures.recorded if len(json.dumps(each)) < 2_000],
    }
    figures.times.clear()
    figures.outcomes.clear()
    return told
