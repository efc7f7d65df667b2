"""Cases R39–R48: what a hostile stub can do in its sandbox, which is harm nobody but itself."""

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
from world import ECHO, FAR, A, FakeCatalogue, R, World, descriptor

from msgnode.runtime.python import sandbox as sandbox_module
from msgnode.runtime.python.messages import Message
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


# --- through the whole runtime --------------------------------------------------------------------


async def other_conversation(world: World) -> float:
    """The 99th percentile of 200 answers of another domain's stub, in seconds."""
    clock = asyncio.get_running_loop().time
    took = []
    for number in range(200):
        began = clock()
        assert (await world.ask("hyperty://g/x", number))["value"] == number
        took.append(clock() - began)
        await asyncio.sleep(0.002)
    return sorted(took)[197]


LOOPS = "while True:\n    pass\n"
EATS = ECHO.replace(
    'if message["to"].endswith',
    'kept = [bytearray(1 << 20) for _ in range(4096)]\n        if message["to"].endswith',
)
FLOODS = (
    ECHO
    + """
import asyncio

def activate(url, bus, config):
    echo = Echo(url, bus, config)
    async def flood():
        while True:
            for _ in range(50):
                bus.post_message({"type": "update", "from": "hyperty://f/x", "to": "hyperty://d/a",
                                  "body": {"value": 1}})
            await asyncio.sleep(0)
    def begin():
        echo.task = asyncio.ensure_future(flood())
    asyncio.get_running_loop().call_later(0.2, begin)
    return {"instance": echo}
"""
)


@pytest.mark.parametrize(
    ("source", "code"), [(LOOPS, 504), (EATS, 503), (FLOODS, 200)], ids=["loops", "eats", "floods"]
)
async def test_r40_r41_another_conversation_goes_on_beside_a_hostile_stub(
    catalogue: FakeCatalogue, source: str, code: int
) -> None:
    catalogue.serve(descriptor(source))
    catalogue.serve(descriptor(), "g")
    limits = Limits(start=2.0)
    async with World(catalogue, limits=limits, retry_sandbox=(0.2, 1.0)) as world:
        got: list[Message] = []
        world.bus.add_listener(A, got.append)
        await world.ask("hyperty://g/x")
        hostile = asyncio.create_task(world.ask())
        p99 = await other_conversation(world)
        assert (await hostile)["code"] == code
        entry = world.resolver.stubs.get("f")
        assert entry is not None
        if source is LOOPS:
            assert entry.status == "deployment-failed"
            assert len(world.resolver.loader.sandboxes) == 1
        elif source is EATS:
            assert "disconnected" in world.words()
            url = entry.url
            await world.until(lambda: world.words().count("created") == 3)  # it was started again
            assert entry.url == url
        else:
            boxes = list(world.resolver.loader.sandboxes)
            await world.until(lambda: any(box.counters["throttled"] for box in boxes))
        assert p99 < 2.0  # the benchmark holds the tight bound


LIAR = ECHO.replace(
    "bus.add_listener",
    """for sender, to in LIES:
            body = {"value": "a lie"}
            bus.post_message({"id": 9, "type": "create", "from": sender, "to": to, "body": body})
        bus.add_listener""",
)


@pytest.mark.parametrize(
    ("sender", "to", "counter"),
    [
        (A, A, "stub.forged"),
        ("hyperty://d/somebody", A, "stub.forged"),
        (f"{R}/sm", A, "stub.forged"),
        ("domain://msg-node.d/sm", A, "stub.forged"),
        ("OWN", "runtime://g/protostub/1/status", "stub.ignored"),
        ("OWN", A, "stub.ignored"),
        ("hyperty://f/x", f"{R}/status", "stub.ignored"),
        ("hyperty://f/x", "runtime://g/protostub/1/status", "stub.ignored"),
    ],
)
async def test_r43_r44_r74_what_a_stub_says_as_another_is_not_delivered(
    catalogue: FakeCatalogue, sender: str, to: str, counter: str
) -> None:
    lies = f"[({'url' if sender == 'OWN' else repr(sender)}, {to!r})]"
    catalogue.serve(descriptor(LIAR.replace("LIES", lies)))
    async with World(catalogue) as world:
        got: list[Message] = []
        for address in (A, "runtime://g/protostub/1/status"):
            world.bus.add_listener(address, got.append)
        await world.ask()
        assert not [each for each in got if each["body"].get("value") == "a lie"]
        assert "a lie" not in world.words()
        assert world.bus.counters[counter] == 1


async def test_what_a_stub_brings_from_outside_is_delivered_with_its_via(
    catalogue: FakeCatalogue,
) -> None:
    lies = "[('hyperty://f/x', 'hyperty://d/a')]"
    catalogue.serve(descriptor(LIAR.replace("LIES", lies)))
    async with World(catalogue) as world:
        got: list[Message] = []
        world.bus.add_listener(A, got.append)
        world.resolver.require("f")
        await world.until(lambda: got)
        entry = world.resolver.stubs.get("f")
        assert entry is not None and got[0]["body"]["via"] == entry.url


@pytest.mark.parametrize(("word", "code"), [("required", 501), ("best-effort", 200)])
async def test_r48_without_landlock_a_foreign_stub_runs_only_if_allowed(
    catalogue: FakeCatalogue,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    word: str,
    code: int,
) -> None:
    lacking = sandbox_module._BOOT.replace(
        "importlib.import_module(a['module'])",
        "importlib.import_module(a['module'].replace('sandbox_child', 'landlock')).version = int; "
        "importlib.import_module(a['module'])",
    )
    monkeypatch.setattr(sandbox_module, "_BOOT", lacking)
    catalogue.serve(descriptor())
    async with World(catalogue, sandbox=word) as world:
        answer = await world.ask()
        assert answer["code"] == code
        if word == "required":
            assert "Landlock" in answer["desc"]
        else:
            assert "Landlock" in caplog.text
