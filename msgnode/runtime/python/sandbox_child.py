"""The inside of a sandbox: a process of its own that gives up its rights and then runs stubs.

Its port is a socket of JSON lines (docs/runtime.md):

    core -> here   {"url", "message"} to a component · {"ping": n} · commands, which are messages to
                   hyperty-runtime://sandbox/internal: create, delete, execute connect
    here -> core   {"ready": report} · {"url", "message"} · {"pong": n} ·
                   {"dial": n, "host", "port"}

A second socket brings connected sockets: the process itself can open none. Code in here asks its
event loop for connections as anywhere else; `SandboxLoop` has the core dial.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib  # noqa: F401 (brings its library in while it can be read)
import inspect
import itertools
import json
import os
import random  # noqa: F401
import socket
import ssl
import sys
import uuid  # noqa: F401
import zlib  # noqa: F401
from collections.abc import Callable
from typing import Any

from .confinement import confine, interpreter_folders
from .messages import Message, answer_to
from .minibus import MiniBus
from .seccomp import die_with_parent
from .stub_module import start_stub

INTERNAL = "hyperty-runtime://sandbox/internal"
DISCONNECT_SECONDS = 3.0
OUT_OF_MEMORY = 71  # exit status
LINE_LIMIT = 8 * 1024 * 1024
"""Bytes of a line on the port: JSON may be written longer than it came, as `1e9` is."""
MAX_ERROR = 300


def line_of(said: dict[str, Any]) -> bytes:
    """A line for the port, about as long as the message was when it came."""
    text = json.dumps(said, separators=(",", ":"), ensure_ascii=False)
    return text.encode(errors="surrogatepass") + b"\n"


class SandboxLoop(asyncio.SelectorEventLoop):
    """An event loop whose connections are dialled by the core."""

    def __init__(self, authorities: tuple[str | None, str | None] = (None, None)) -> None:
        """`authorities` are a file and a folder of certificates, besides what the system has."""
        super().__init__()
        self.dial: Callable[[str, int], asyncio.Future[socket.socket]] | None = None
        self.tls = ssl.create_default_context()
        if any(authorities):
            self.tls.load_verify_locations(*authorities)

    async def create_connection(
        self,
        protocol_factory: Any,
        host: Any = None,
        port: Any = None,
        *,
        sock: Any = None,
        ssl: Any = None,
        server_hostname: Any = None,
        **options: Any,
    ) -> Any:
        """As of any loop; `host` and `port` go to the core, which may refuse them."""
        if sock is None:
            if self.dial is None:
                raise ConnectionRefusedError("There is no way out of this sandbox.")
            sock = await self.dial(str(host), int(port))
            for name in ("family", "proto", "flags", "local_addr", "happy_eyeballs_delay"):
                options.pop(name, None)
            if ssl and server_hostname is None:
                server_hostname = host
        if ssl is True:
            ssl = self.tls
        return await super().create_connection(
            protocol_factory, sock=sock, ssl=ssl, server_hostname=server_hostname, **options
        )


class Inside:
    """The components of this sandbox, and its port."""

    def __init__(self, loop: SandboxLoop, control: socket.socket) -> None:
        self._loop = loop
        self._control = control
        self._writer: asyncio.StreamWriter | None = None
        self._components: dict[str, tuple[Any, MiniBus]] = {}
        self._dials: dict[int, asyncio.Future[socket.socket]] = {}
        self._numbers = itertools.count(1)
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self, port: socket.socket, memory: int, readable: list[str]) -> None:
        """Join the port, give up all rights, and serve until the core hangs up."""
        reader, self._writer = await asyncio.open_connection(sock=port, limit=LINE_LIMIT)
        self._control.setblocking(False)
        self._loop.add_reader(self._control.fileno(), self._connected)
        self._loop.dial = self._dial
        self._loop.set_exception_handler(_unhandled)
        with contextlib.suppress(ImportError):
            import websockets.asyncio.client  # noqa: F401 (its folder stays readable, not its place)
        report = confine(memory, readable)
        sys.path[:] = interpreter_folders()
        self._send({"ready": report})
        while line := await reader.readline():
            self._take(json.loads(line))

    def _send(self, line: dict[str, Any]) -> None:
        if self._writer is not None:
            self._writer.write(line_of(line))

    def _take(self, line: dict[str, Any]) -> None:
        if "ping" in line:
            self._send({"pong": line["ping"]})
            return
        message = line["message"]
        if message["to"] == INTERNAL:
            task = self._loop.create_task(self._command(message))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        elif (component := self._components.get(line["url"])) is not None:
            component[1].deliver(message)

    # --- connections ------------------------------------------------------------------------------

    def _dial(self, host: str, port: int) -> asyncio.Future[socket.socket]:
        number = next(self._numbers)
        future = self._dials[number] = self._loop.create_future()
        self._send({"dial": number, "host": host, "port": port})
        return future

    def _connected(self) -> None:
        data, fds, _, _ = socket.recv_fds(self._control, 4096, 1)
        if not data:
            os._exit(0)
        answer = json.loads(data)
        future = self._dials.pop(answer["dial"], None)
        if not fds:
            if future is not None and not future.done():
                future.set_exception(ConnectionRefusedError(answer["error"]))
            return
        connected = socket.socket(fileno=fds[0])
        connected.setblocking(False)
        if future is None or future.done():
            connected.close()
        else:
            future.set_result(connected)

    # --- commands ---------------------------------------------------------------------------------

    async def _command(self, message: Message) -> None:
        body = message.get("body") or {}
        url = body.get("url", "")
        try:
            code, text = await self._commanded(message["type"], url, body)
        except MemoryError:
            os._exit(OUT_OF_MEMORY)
        except BaseException as error:  # foreign code may raise anything, SystemExit too
            code, text = 500, f"{type(error).__name__}: {error}"[:MAX_ERROR]
        await asyncio.sleep(0)  # what the component has just said goes up before the answer
        self._send({"url": "", "message": answer_to(message, code, text)})

    async def _commanded(self, type_: str, url: str, body: dict[str, Any]) -> tuple[int, str]:
        if type_ == "create":
            if url in self._components:
                return 500, f"Instance {url} already exist!"
            bus = MiniBus(lambda message: self._send({"url": url, "message": message}))
            bus.on_error(_reported)
            source, class_name = body["sourceCode"], body.get("sourceCodeClassname", "")
            instance = start_stub(source, class_name, url, bus, body.get("config") or {})
            self._components[url] = instance, bus
            return 200, "created"
        if url not in self._components:
            return 500, f"Instance {url} does not exist!"
        instance, bus = self._components[url]
        if type_ == "delete":
            try:
                async with asyncio.timeout(DISCONNECT_SECONDS):
                    await _called(getattr(instance, "disconnect", None))
            except TimeoutError:
                return 200, "It did not disconnect in time."
            finally:
                del self._components[url]
            return 200, "deleted"
        if type_ == "execute" and body.get("method") == "connect":
            await _called(getattr(instance, "connect", None), *body.get("params", []))
            return 200, str(getattr(instance, "state", ""))
        return 501, f"A sandbox knows no {type_} {body.get('method', '')}."


async def _called(method: Any, *arguments: Any) -> None:
    if method is not None:
        result = method(*arguments)
        if inspect.isawaitable(result):
            await result


def _unhandled(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    if isinstance(context.get("exception"), MemoryError):
        os._exit(OUT_OF_MEMORY)
    sys.stderr.write(f"{context.get('message')}: {context.get('exception')!r}\n")


def _reported(fault: Any) -> None:
    if isinstance(fault.error, MemoryError):
        os._exit(OUT_OF_MEMORY)
    sys.stderr.write(f"{fault.reason}: {fault.text}\n")


def main(arguments: dict[str, Any]) -> None:
    """Run a sandbox; `arguments` come from `Sandbox`."""
    die_with_parent()
    if os.getppid() != arguments["parent"]:
        return  # it ended before it could take us with it
    port = socket.socket(fileno=arguments["port"])
    control = socket.socket(fileno=arguments["control"])
    loop = SandboxLoop(tuple(arguments["authorities"]))
    asyncio.set_event_loop(loop)
    inside = Inside(loop, control)
    try:
        loop.run_until_complete(inside.run(port, arguments["memory"], arguments["readable"]))
    except MemoryError:
        os._exit(OUT_OF_MEMORY)
    finally:
        os._exit(0)
