"""Cases R39, R42, R47: one sandbox, and what a stub can do in it."""

from __future__ import annotations

import asyncio
import contextlib
import platform
import socket
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from world import ECHO, FAR, A

from msgnode.runtime.python import sandbox as sandbox_module
from msgnode.runtime.python.sandbox import Sandbox, SandboxError
from msgnode.runtime.python.settings import Limits

URL = "runtime://f/protostub/1"

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="sandboxes are confined by Linux")


class Box:
    """One sandbox, and what came out of it."""

    def __init__(self, **limits: Any) -> None:
        self.said: list[Any] = []
        self.ends: list[str] = []
        self.dialled: list[tuple[str, int]] = []
        self.to: socket.socket | None = None
        self.sandbox = Sandbox(
            Limits(**limits), self.dial, lambda _, said: self.said.append(said), self.ends.append
        )

    async def dial(self, host: str, port: int) -> socket.socket:
        self.dialled.append((host, port))
        if self.to is None:
            raise ConnectionRefusedError("not allowed")
        return self.to

    async def create(self, source: str = ECHO, url: str = URL, seconds: float = 15.0) -> str:
        body = {"url": url, "sourceCode": source, "config": {}}
        return await self.sandbox.command("create", body, seconds)

    async def until(self, holds: Any) -> None:
        async with asyncio.timeout(30):
            while not holds():  # noqa: ASYNC110 (what is waited for has no event)
                await asyncio.sleep(0.01)


@pytest.fixture
async def box() -> AsyncIterator[Box]:
    """A sandbox that was started."""
    made = Box()
    await made.sandbox.start()
    yield made
    made.sandbox.end("The test is over.")
    await made.sandbox.ended()


def trying(code: str) -> str:
    """The source of a stub that tries something and says how it went."""
    return f"""
def attempt():
    import asyncio, ctypes, os, socket, threading
    return {code}

def activate(url, bus, config):
    try:
        went = "did it: " + repr(attempt())[:100]
    except BaseException as error:
        went = type(error).__name__
    status = url + "/status"
    bus.post_message({{"type": "update", "from": url, "to": status, "body": {{"value": went}}}})
    return {{"instance": None}}
"""


async def test_r39_a_url_is_created_once_and_deleted_once(box: Box) -> None:
    await box.create()
    with pytest.raises(SandboxError, match="already exist") as refused:
        await box.create()
    assert refused.value.code == 500
    await box.sandbox.command("delete", {"url": URL}, 15)
    assert box.said[-1]["body"]["value"] == "disconnected"
    with pytest.raises(SandboxError, match="does not exist") as refused:
        await box.sandbox.command("delete", {"url": URL}, 15)
    assert refused.value.code == 500


@pytest.mark.parametrize(
    ("what", "code"),
    [
        ("reads a file", 'open("/etc/passwd").read()'),
        ("lists a folder", 'os.listdir("/")'),
        ("writes a file", 'open("/tmp/of-a-stub", "w")'),
        ("reads its environment", 'open("/proc/self/environ").read()'),
        ("connects over TCP", 'socket.create_connection(("127.0.0.1", 1))'),
        ("sends over UDP", "socket.socket(socket.AF_INET, socket.SOCK_DGRAM)"),
        ("opens a Unix socket", "socket.socket(socket.AF_UNIX)"),
        ("forks", "os.fork()"),
        ("runs a program", 'os.execv("/bin/sh", ["sh"])'),
        ("starts a thread", "threading.Thread(target=print).start()"),
        ("kills its parent", "os.kill(os.getppid(), 9)"),
        ("changes modes", 'os.chmod("/tmp", 0)'),
        ("takes memory", "len(bytearray(1 << 28))"),
        ("raises its limits", "__import__('resource').setrlimit(9, (-1, -1))"),
        ("imports what is installed", '__import__("pytest")'),
    ],
)
async def test_r42_what_a_stub_tries_is_refused(box: Box, what: str, code: str) -> None:
    await box.create(trying(code))
    await box.until(lambda: box.said)
    assert not box.said[0]["body"]["value"].startswith("did it"), what
    assert box.sandbox.report["confined"], box.sandbox.report


async def test_r42_the_environment_is_empty(box: Box) -> None:
    await box.create(trying('[name for name in os.environ if not name.startswith("LC_")]'))
    await box.until(lambda: box.said)
    assert box.said[0]["body"]["value"] == "did it: []"


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the numbers are those of x86-64")
@pytest.mark.parametrize("number", [41, 435, 0x40000029])
async def test_r42_a_system_call_by_number_is_refused_too(box: Box, number: int) -> None:
    """socket, clone3, and socket by the numbers of another interface (x86-64)."""
    code = f"ctypes.CDLL(None).syscall({number}, 2, 1, 0, ctypes.create_string_buffer(8))"
    await box.create(trying(code))
    await box.until(lambda: box.said)
    assert box.said[0]["body"]["value"] == "did it: -1"


async def test_a_stub_dials_through_the_core_and_only_where_it_may(box: Box) -> None:
    source = """
import asyncio

class Caller:
    def __init__(self, url, bus, config):
        self.url, self.bus = url, bus
        self.task = asyncio.get_running_loop().create_task(self.call())

    async def call(self):
        try:
            reader, writer = await asyncio.open_connection("f.example", 443)
            writer.write(b"hello")
            value = (await reader.read(5)).decode()
        except OSError as error:
            value = type(error).__name__
        status = self.url + "/status"
        body = {"value": value}
        self.bus.post_message({"type": "update", "from": self.url, "to": status, "body": body})

def activate(url, bus, config):
    return {"instance": Caller(url, bus, config)}
"""
    await box.create(source)
    await box.until(lambda: box.said)
    assert box.said[0]["body"]["value"] == "ConnectionRefusedError"
    box.to, far = socket.socketpair()
    far.setblocking(False)
    await box.create(source, URL + "b")
    loop = asyncio.get_running_loop()
    assert await loop.sock_recv(far, 5) == b"hello"
    await loop.sock_sendall(far, b"world")
    await box.until(lambda: len(box.said) == 2)
    assert box.said[1]["body"]["value"] == "world"
    assert box.dialled == [("f.example", 443)] * 2
    far.close()


async def test_r47_a_sandbox_that_does_not_read_is_ended() -> None:
    box = Box(port_queue=100_000, silence=60.0)
    await box.sandbox.start()
    with pytest.raises(SandboxError):
        await box.create("import time\n\ntime.sleep(60)", seconds=0.1)
    message = {"id": 1, "type": "update", "from": A, "to": FAR, "body": {"value": "x" * 10_000}}
    taken = [box.sandbox.post(URL, message) for _ in range(100)]
    assert taken[0] and not taken[-1]
    assert box.ends == ["It does not read what it is sent."]
    await box.sandbox.ended()


async def test_a_sandbox_that_gives_no_sign_of_life_is_ended() -> None:
    box = Box(silence=1.0)
    await box.sandbox.start()
    with pytest.raises(SandboxError):
        await box.create("import time\n\ntime.sleep(60)")
    assert "no sign of life" in box.ends[0]
    await box.sandbox.ended()


async def test_a_sandbox_that_computes_without_end_is_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sandbox_module, "SHARE", 0.02)  # others want the processor too
    box = Box(busy=1.5, silence=60.0)
    await box.sandbox.start()
    with pytest.raises(SandboxError):
        await box.create("while True:\n    pass", seconds=30)
    assert "processor" in box.ends[0]
    await box.sandbox.ended()


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("nonsense", 'b"[1]\\n" * 50'),
        ("deep", 'b"[" * 100_000 + b"\\n"'),
        ("unknown", '(b"{}" + b"\\n") * 50'),
        ("long", 'b"x" * 2_000_000 + b"\\n"'),
    ],
)
async def test_a_stub_that_writes_nonsense_on_the_port_is_ended(name: str, line: str) -> None:
    """A stub can find the port's socket and write on it; it gains nothing by that."""
    box = Box()
    await box.sandbox.start()
    source = f"""
import asyncio, gc, socket

def write():
    for each in gc.get_objects():
        if isinstance(each, asyncio.StreamWriter):
            for _ in range(20):
                each.write({line})

def activate(url, bus, config):
    asyncio.get_running_loop().call_soon(write)
    return {{"instance": None}}
"""
    with contextlib.suppress(SandboxError):
        await box.create(source)
    await box.until(lambda: box.ends)
    await box.sandbox.ended()


async def test_a_sandbox_ends_with_the_core() -> None:
    """Even one that computes and hears nothing: the kernel ends it."""
    script = """
import asyncio, os, sys
from msgnode.runtime.python.sandbox import Sandbox
from msgnode.runtime.python.settings import Limits

async def main():
    sandbox = Sandbox(Limits(), None, print, print)
    await sandbox.start()
    body = {"url": "u", "sourceCode": "while True: pass", "config": {}}
    asyncio.get_running_loop().create_task(sandbox.command("create", body, 30))
    await asyncio.sleep(0.3)
    sys.stdout.write(str(sandbox.pid))
    sys.stdout.flush()
    os.kill(os.getpid(), 9)

asyncio.run(main())
"""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, stdout=asyncio.subprocess.PIPE, env={"PYTHONPATH": ROOT}
    )
    out, _ = await process.communicate()
    pid = int(out)
    async with asyncio.timeout(20):
        while runs(pid):  # noqa: ASYNC110 (the end of a grandchild has no event)
            await asyncio.sleep(0.05)


def runs(pid: int) -> bool:
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except OSError:
        return False


ROOT = sandbox_module.__file__.rpartition("/msgnode/")[0]
