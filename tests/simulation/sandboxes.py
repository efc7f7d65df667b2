"""The sandboxes of stubs, in the simulation: what a node starts for a peer that it has no link to.

The product's SandboxProcess starts, watches and kills such a process as it does Deno, over pipes
that are simulated. The stub in it takes up its session again when its socket was lost; another
process begins a new one. It dies, freezes, or is slow.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from msgnode.sandbox import process

from .world import Machine, Wire

DELAY = (0.0002, 0.003)
SESSION = "mn:/session"


class StubProcess:
    """A process with a stub: what the product uses of a subprocess.Popen.

    Attributes:
        unread: bytes that it was sent and has not read.
    """

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.pid: int = machine.site.next_pid()
        self.returncode: int | None = None
        self.unread = 0
        self.pipes = [Pipe(self) for _ in range(3)]
        self._to, self._back = Wire(machine.world, DELAY), Wire(machine.world, DELAY)
        self._is_frozen = False
        self._waiting: list[bytes] = []
        self._half = b""
        self._url, self._config = "", {"runtimeURL": ""}
        self._token, self._socket, self._is_open = "", 0, False
        machine.site.stubs.append(self)

    # --- what happens to it -----------------------------------------------------------------------

    def poll(self) -> int | None:
        return self.returncode

    def kill(self) -> None:
        self.ends(-9)

    def ends(self, code: int) -> None:
        if self.returncode is None:
            self.returncode = code
            self.machine.site.stubs.remove(self)
            self.machine.site.stub_ended_at = self.machine.site.world.now
            for each in self.pipes[1:]:
                self.machine.call_soon(each.ends)

    def freeze(self) -> None:
        self._is_frozen = True

    def thaw(self) -> None:
        self._is_frozen = False
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            self._read(each)

    def be_slow(self, seconds: float) -> None:
        self._back.slowness = seconds

    # --- its pipes --------------------------------------------------------------------------------

    def is_sent(self, data: bytes) -> None:
        self.unread += len(data)
        self._to.send(lambda: self._read(data))

    def _read(self, data: bytes) -> None:
        if self._is_frozen:
            self._waiting.append(data)
            return
        self.unread -= len(data)
        *lines, self._half = (self._half + data).split(b"\n")
        for each in lines:
            if self.returncode is None:
                self._does(json.loads(each))

    def _says(self, op: str, **more: Any) -> None:
        line = json.dumps({"op": op, **more}).encode() + b"\n"

        def arrives() -> None:
            if self.returncode is None and not self.machine.is_dead:
                self.machine.call_soon(self.pipes[1].gives, line)

        self._back.send(arrives)

    # --- the stub ---------------------------------------------------------------------------------

    def _does(self, told: dict[str, Any]) -> None:
        match told["op"]:
            case "load":
                self._url, self._config = told["stubURL"], told["config"]
                self._says("loaded", kind="class")
                self._tells("created")
            case "ping":
                self._says("pong", n=told["n"])
            case "connect":
                self._socket += 1
                self._says("ws-open", ws=self._socket, url=self._config["url"])
            case "disconnect":
                self._says("ws-close", ws=self._socket)
            case "post":
                self._writes(told["message"])
            case "ws" if told["ws"] == self._socket:
                self._hears(told)

    def _tells(self, value: str) -> None:
        to = f"{self._url}/status"
        message = {"type": "update", "from": self._url, "to": to, "body": {"value": value}}
        self._says("message", message=message)

    def _writes(self, message: dict[str, Any]) -> None:
        if self._is_open:
            self._says("ws-send", ws=self._socket, data=json.dumps(message))

    def _hears(self, told: dict[str, Any]) -> None:
        match told["event"]:
            case "open":
                self._is_open = True
                type_, me = "open", self._config["runtimeURL"]
                if self._token:
                    type_, me = "re-open", f"{me}/{self._token}"
                self._writes({"id": "o", "type": type_, "from": me, "to": SESSION, "body": {}})
            case "close":
                self._is_open = False
                self._tells("disconnected")
            case "message":
                message = json.loads(told["data"])
                if message["from"] != SESSION:
                    self._says("message", message=message)
                elif message["body"]["code"] == 200:
                    self._token = message["body"].get("runtimeToken") or self._token
                    self._tells("live")
                else:
                    self._token = ""
                    self._says("ws-close", ws=self._socket)


class Pipe(asyncio.Transport):
    """The node's end of a pipe: in its place the product has a socket."""

    def __init__(self, process: StubProcess) -> None:
        super().__init__()
        self._process = process
        self._protocol: Any = None
        self._is_closed = self._is_ended = False
        self._is_paused, self._held = False, b""

    def begin(self, protocol: Any) -> None:
        self._protocol = protocol
        protocol.connection_made(self)
        if self._is_ended:
            protocol.eof_received()

    def gives(self, data: bytes) -> None:
        if self._is_paused:
            self._held += data
        elif not (self._is_closed or self._is_ended):
            self._protocol.data_received(data)

    def ends(self) -> None:
        self._is_ended = True
        if self._protocol is not None and not self._is_closed:
            self._protocol.eof_received()

    def write(self, data: Any) -> None:
        self._process.is_sent(bytes(data))

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._process.machine.call_soon(self._protocol.connection_lost, None)

    def is_closing(self) -> bool:
        return self._is_closed

    def pause_reading(self) -> None:
        self._is_paused = True

    def resume_reading(self) -> None:
        self._is_paused, held, self._held = False, self._held, b""
        if held:
            self._process.machine.call_soon(self.gives, held)

    def get_write_buffer_size(self) -> int:
        return self._process.unread

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Little is written to it."""


def install() -> None:
    """Have the product start simulated processes."""

    def started(command: Sequence[str]) -> Any:
        assert Machine.current is not None
        stub = StubProcess(Machine.current)
        return process._Started(stub, stub.pipes)  # type: ignore[arg-type]

    def killed(pid: int, signal: int) -> None:
        assert Machine.current is not None
        for each in tuple(Machine.current.site.stubs):
            if each.pid == pid:
                each.kill()

    process._started = started
    process.os = SimpleNamespace(killpg=killed)  # type: ignore[attr-defined]
    process.lower_priority = lambda *_: True  # type: ignore[attr-defined]
    process.process_figures = lambda _: process.ProcessFigures(0, 0.0)
    process.can_wrap = lambda: False
