"""The path probe: a worker sends itself a message regularly, and is not ready if it gets lost.

A round proves that the worker's port accepts a connection, the event loop runs, a message is read,
routed and written to a socket, and the database commits. With several workers a message also goes
to each other worker, whose probe answers it. Rules
- A round that takes longer than `timeout` makes the worker not ready, until one succeeds.
- A worker that counts as down is ignored. One that is up and does not answer makes this worker not
  ready only if no other worker answers: else the other one is at fault. In both cases an alarm
  names the two.
- The connection of a round stays open until the next has its own, so that others always get
  answers.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from dataclasses import dataclass
from typing import Any

import msgspec
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidStatus, WebSocketException

from msgnode.bus.ports import Alarms
from msgnode.bus.table import RoutingTable
from msgnode.bus.writing import Call, Writer
from msgnode.sessions.probe import Misdirected, ProbeEndpoint
from msgnode.workers.remote_sessions import RemoteSession

log = logging.getLogger(__name__)

KIND = "path-broken"
_NEXT_TRY = 0.25  # seconds until another connection is tried on a port that is shared
_RETRY = 0.5  # seconds until the next round after one that failed
_WILDCARDS = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104

Address = tuple[str, int]


class _Body(msgspec.Struct):
    code: int = 0


class _Frame(msgspec.Struct):
    id: int = 0
    type: str = ""
    sender: str = msgspec.field(name="from", default="")
    body: _Body = msgspec.field(default_factory=_Body)


_frames = msgspec.json.Decoder(_Frame)


@dataclass(frozen=True, slots=True)
class ProbeSettings:
    """How often the path is probed, in seconds.

    Attributes:
        every: between two rounds.
        timeout: that a message may take.
        worker_timeout: after which a silent worker counts as dead.
        shares_port: whether other workers listen at the same port.
    """

    every: float
    timeout: float
    worker_timeout: float
    shares_port: bool


class PathProbe:
    """One instance per worker. `problem` describes a fault of the path, "" if there is none."""

    def __init__(
        self,
        endpoint: ProbeEndpoint,
        table: RoutingTable,
        writer: Writer,
        worker: str,
        alarms: Alarms,
        settings: ProbeSettings,
    ) -> None:
        self.problem = ""
        self._endpoint = endpoint
        self._table = table
        self._writer = writer
        self._worker = worker
        self._alarms = alarms
        self._every = settings.every
        self._timeout = settings.timeout
        self._others_timeout = max(settings.timeout, settings.worker_timeout)
        self._shares_port = settings.shares_port
        self._url = ""
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[None]] = {}
        self._socket: ClientConnection | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._job: asyncio.Task[None] | None = None
        self._standing: dict[str, str] = {}

    def watch(self, address: Any) -> None:
        """Begin, on the event loop, once the worker listens."""
        host, port = address[:2]
        host = _WILDCARDS.get(host, host)
        self._url = f"ws://[{host}]:{port}/ws" if ":" in host else f"ws://{host}:{port}/ws"
        self.problem = "The first message is under way."
        self._job = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """End, before the worker closes its sockets."""
        self._endpoint.close()
        jobs = [*self._tasks, *([self._job] if self._job is not None else [])]
        self._job = None
        for job in jobs:
            job.cancel()
        await asyncio.gather(*jobs, return_exceptions=True)
        if self._socket is not None:
            await self._hang_up(self._socket)

    # --- rounds -----------------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            try:
                problems = await self._round()
            except Exception as error:
                log.exception("The path could not be probed.")
                problems = {self._worker: f"The path could not be probed: {error!r}"}
            self._tell(problems)
            await asyncio.sleep(_RETRY if self.problem else self._every)

    async def _round(self) -> dict[str, str]:
        """The faults by worker; sets `problem`."""
        stage = "connection to its own port"
        try:
            async with asyncio.timeout(self._timeout):
                fresh = await self._connection()
                before, self._socket = self._socket, fresh
                self._begin(self._listen(fresh))
                stage = "message to itself"
                try:
                    await self._ask(self._endpoint.address)
                finally:
                    if before is not None:
                        self._begin(self._hang_up(before))
                stage = "commit"
                await self._writer.submit(Call(lambda: None))
        except TimeoutError:
            self.problem = f"A {stage} did not come back within {self._timeout:g} s."
        except Exception as error:
            self.problem = f"A {stage} failed: {error}"
        else:
            return await self._others()
        return {self._worker: self.problem}

    async def _others(self) -> dict[str, str]:
        """The way to each other worker and back."""
        others = {
            probe.worker.name: address
            for address, probe in self._table.probes.items()
            if isinstance(probe, RemoteSession) and probe.worker.is_up
        }
        if not others:
            self.problem = ""
            return {}
        answers = await asyncio.gather(*(self._answers(each) for each in others.values()))
        late = [name for name, answered in zip(others, answers, strict=True) if not answered]
        text = f"No message to it came back within {self._others_timeout:g} s."
        self.problem = f"{text} ({', '.join(late)})" if late and not any(answers) else ""
        return {f"{self._worker} to {name}": text for name in late}

    async def _answers(self, address: str) -> bool:
        """Whether a worker answers, or is down by now."""
        try:
            async with asyncio.timeout(self._others_timeout):
                await self._ask(address)
            return True
        except (TimeoutError, ConnectionError):
            await asyncio.sleep(1.0)  # a worker that froze meanwhile is taken for down by then
            probe = self._table.probes.get(address)
            return not isinstance(probe, RemoteSession) or not probe.worker.is_up

    def _tell(self, problems: dict[str, str]) -> None:
        """Raise alarms for faults, and clear them afterwards."""
        for subject, text in problems.items():
            if self._standing.get(subject) != text:
                self._alarms.raise_alarm(KIND, subject, text)
        for subject in self._standing.keys() - problems.keys():
            self._alarms.clear_alarm(KIND, subject)
        self._standing = problems

    # --- the socket -------------------------------------------------------------------------------

    async def _connection(self) -> ClientConnection:
        """A connection to this very worker.

        On a port that workers share the kernel chooses, and one of them may be frozen: connections
        are tried side by side until one is at home. Others that are made meanwhile are closed.
        """
        tries: set[asyncio.Task[ClientConnection | None]] = set()
        try:
            while True:
                tries.add(asyncio.create_task(self._try()))
                patience = _NEXT_TRY if self._shares_port else None
                await asyncio.wait(tries, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
                for each in [each for each in tries if each.done()]:
                    tries.remove(each)
                    if (made := each.result()) is not None:
                        return made
        finally:
            for each in tries:
                if not each.cancel() and not each.exception() and (spare := each.result()):
                    self._begin(self._hang_up(spare))

    async def _try(self) -> ClientConnection | None:
        """Connect; None if another worker, or nobody, has accepted the connection."""
        made = self._endpoint.new_pass()
        try:
            return await connect(
                f"{self._url}?probe={made}", compression=None, ping_interval=None, proxy=None,
                open_timeout=None, close_timeout=1, user_agent_header=None,
            )  # fmt: skip
        except InvalidStatus as answer:
            if answer.response.status_code != Misdirected.code:
                await asyncio.sleep(_NEXT_TRY)
        except OSError:
            await asyncio.sleep(_NEXT_TRY)
        finally:
            self._endpoint.withdraw(made)
        return None

    async def _ask(self, to: str) -> None:
        """Send a request, and wait until it or its answer returns."""
        number = next(self._numbers)
        back = self._waiting[number] = asyncio.get_running_loop().create_future()
        try:
            await self._send("read", to, number)
            await back
        finally:
            del self._waiting[number]

    async def _send(self, type_: str, to: str, number: int) -> None:
        if self._socket is not None:
            frame = {
                "id": number, "type": type_, "from": self._endpoint.address, "to": to,
                "body": {"code": 200} if type_ == "response" else {},
            }  # fmt: skip
            await self._socket.send(msgspec.json.encode(frame).decode())

    async def _listen(self, socket: ClientConnection) -> None:
        with contextlib.suppress(WebSocketException, OSError):
            async for text in socket:
                frame = _frames.decode(text)
                if frame.type == "response" or frame.sender == self._endpoint.address:
                    self._came_back(frame)
                else:
                    await self._send("response", frame.sender, frame.id)

    def _came_back(self, frame: _Frame) -> None:
        back = self._waiting.get(frame.id)
        if back is None or back.done():
            return
        if frame.type == "response" and frame.body.code != 200:
            back.set_exception(ConnectionError(f"it was answered {frame.body.code}"))
        else:
            back.set_result(None)

    async def _hang_up(self, socket: ClientConnection) -> None:
        with contextlib.suppress(WebSocketException, OSError):
            await socket.close()

    def _begin(self, job: Any) -> None:
        task = asyncio.create_task(job)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
