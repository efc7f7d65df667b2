"""Sandboxes with a real engine: stubs of all forms load, and what one does harms nobody else."""

from __future__ import annotations

import asyncio
import json
import os
import queue
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import uvloop

from msgnode.sandbox import pipe
from msgnode.sandbox import process as sandbox_process
from msgnode.sandbox.process import find_deno
from tests.node import ROOT

from .sandboxes import SECONDS, Watched, acting, needs_deno, sandbox, stub

CASES = json.loads(
    (ROOT / "msgnode" / "runtime" / "js" / "tests" / "field-stubs.json").read_text(encoding="utf-8")
)
"""Of all loaders of stubs."""

pytestmark = needs_deno


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("module_class", "module"),
        ("module_function", "module"),
        ("system_register", "system"),
        ("umd", "umd"),
    ],
)
async def test_case_18_a_stub_of_each_form_loads_opens_its_session_and_relays(
    name: str, kind: str
) -> None:
    async with sandbox() as one:
        one.load(stub(name), url="wss://b.example/ws")
        assert (await one.message())["body"]["value"] == "created"
        assert (await one.next(pipe.Loaded)).kind == kind
        one.send(pipe.connect())
        wanted = await one.next(pipe.SocketWanted)
        assert wanted.url == "wss://b.example/ws"
        one.send(pipe.socket_open(wanted.ws, ""))
        assert '"open"' in (await one.next(pipe.SocketSend)).data
        answer = '{"from":"mn:/session","type":"response","body":{"code":200}}'
        one.send(pipe.socket_message(wanted.ws, answer))
        assert (await one.message())["body"]["value"] in ("live", "connected")
        one.send(
            pipe.post(
                b'{"id":1,"type":"read","from":"hyperty://a.example/1","to":"hyperty://b.example/1"}'
            )
        )
        assert "hyperty://b.example/1" in (await one.next(pipe.SocketSend)).data
        back = '{"id":1,"type":"response","from":"hyperty://b.example/1","to":"hyperty://a.example/1","body":{"code":200}}'
        one.send(pipe.socket_message(wanted.ws, back))
        assert (await one.message())["to"] == "hyperty://a.example/1"
        one.send(pipe.disconnect())
        assert (await one.next(pipe.SocketClose)).ws == wanted.ws
        one.send(pipe.socket_closed(wanted.ws, 1000, ""))
        assert (await one.message())["body"]["value"] == "disconnected"


@pytest.mark.parametrize("case", CASES["forms"], ids=lambda case: str(case["name"]))
async def test_case_18_a_stub_starts_whatever_it_was_packed_by(case: dict[str, str]) -> None:
    async with sandbox() as one:
        one.load(case["source"])
        assert (await one.message())["body"]["value"] == "created"
        assert (await one.next(pipe.Loaded)).kind == case["form"]


@pytest.mark.parametrize("case", CASES["notStarted"], ids=lambda case: str(case["name"]))
async def test_case_19_a_stub_that_cannot_be_loaded_says_why(case: dict[str, str]) -> None:
    async with sandbox() as one:
        one.load(case["source"])
        assert case["told"] in (await one.next(pipe.LoadFailed)).error


async def test_case_19_a_stub_that_fails_when_it_is_started_says_why() -> None:
    async with sandbox() as one:
        one.load("export default class { _start() { throw new Error('never'); } }")
        assert "never" in (await one.next(pipe.LoadFailed)).error


def test_a_sandbox_starts_without_a_fork_of_the_node() -> None:
    forks: list[int] = []
    os.register_at_fork(before=lambda: forks.append(1))

    async def started() -> int:
        async with sandbox():
            return len(forks)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:  # as in the node
        assert runner.run(started()) == 0, "its memory is mapped again while its loop waits"


async def test_one_that_closes_its_output_and_lives_is_ended() -> None:
    one = writing("import os; os.close(1)")
    await one.start()
    assert "closed its output" in await one.end()


async def test_one_whose_start_is_given_up_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    started: queue.Queue[Any] = queue.Queue()
    begins, goes_on = asyncio.Event(), threading.Event()
    loop, start = asyncio.get_running_loop(), sandbox_process._started

    def slowly(command: list[str]) -> Any:
        loop.call_soon_threadsafe(begins.set)
        goes_on.wait(SECONDS)
        begun = start(command)
        started.put(begun)
        return begun

    monkeypatch.setattr(sandbox_process, "_started", slowly)
    starting = asyncio.ensure_future(writing("pass").start())
    await begins.wait()
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    goes_on.set()
    begun = await asyncio.to_thread(started.get, timeout=SECONDS)
    assert await asyncio.to_thread(begun.process.wait, SECONDS) == -signal.SIGKILL


async def test_case_20_a_stub_that_loops_while_it_is_loaded_is_ended() -> None:
    async with sandbox(silence=1.0) as one:
        one.load("for (;;) {}")
        assert "unresponsive" in await one.end()


async def test_case_20_a_stub_that_loops_later_is_ended() -> None:
    async with sandbox(silence=1.0) as one:
        one.load(acting("for (;;) {}"))
        await one.next(pipe.Loaded)
        one.send(pipe.connect())
        assert "unresponsive" in await one.end()


async def test_case_22_a_regular_expression_without_end_is_ended() -> None:
    async with sandbox(silence=1.0) as one:
        one.load(acting("/^(a|aa)+\\1c$/.test('a'.repeat(60) + 'b');"))
        one.send(pipe.connect())
        assert "unresponsive" in await one.end()


async def test_a_sandbox_that_is_stopped_is_ended() -> None:
    async with sandbox(silence=1.0, wraps="off") as one:
        one.load(stub("umd"))
        await one.next(pipe.Loaded)
        os.kill(one.pid, signal.SIGSTOP)
        assert "unresponsive" in await one.end()


async def test_case_33_the_end_of_a_sandbox_that_was_killed_is_told() -> None:
    async with sandbox() as one:
        one.load(stub("umd"))
        await one.next(pipe.Loaded)
        os.kill(one.pid, signal.SIGKILL)
        assert "ended with -9" in await one.end()
        assert not one.is_running
        one.send(pipe.connect())  # to nobody: nothing happens


@pytest.mark.parametrize(
    "eating",
    [
        "const all = []; for (;;) all.push({ a: [1, 2, 3] });",
        "const all = []; const eat = () => all.push(new Uint8Array(4e6).fill(1));"
        "setInterval(() => { for (let i = 0; i < 8; i++) eat(); }, 1);",
        "let text = 'x'; for (;;) text = text + text + Math.random();",
    ],
)
async def test_case_21_a_stub_that_eats_memory_is_ended(eating: str) -> None:
    async with sandbox(memory_mib=160, silence=6.0) as one:
        one.load(acting(eating))
        one.send(pipe.connect())
        logged = asyncio.create_task(_until_logged(one))
        ended = asyncio.create_task(one.end())
        await asyncio.wait({logged, ended}, return_when=asyncio.FIRST_COMPLETED)
        assert one.memory_bytes < 700 * 1024 * 1024
        logged.cancel()


async def _until_logged(one: object) -> None:
    """A refused allocation is an error of the stub's own, and the sandbox lives on."""
    async with asyncio.timeout(30):
        while not one.logs:  # type: ignore[attr-defined]  # noqa: ASYNC110  (it tells nobody)
            await asyncio.sleep(0.05)


REACHING = {
    "a file": "(await import('node:fs')).readFileSync('/etc/passwd')",
    "a process": "(await import('node:child_process')).execSync('true')",
    "a socket": "await new Promise((done, fail) => import('node:net').then((net) => "
    "net.connect(80, '127.0.0.1').on('connect', done).on('error', fail), fail))",
    "a module elsewhere": "await import('https://b.example/more.js')",
    "a module of the machine": "await import('file:///etc/hostname')",
    "the engine": "Deno.readTextFileSync('/etc/passwd')",
    "a worker": "new Worker('data:text/javascript,1')",
    "the environment": "JSON.stringify((await import('node:process')).env.HOME).length",
}


@pytest.mark.parametrize("what", REACHING)
async def test_case_23_a_stub_reaches_nothing_of_the_machine(what: str) -> None:
    code = (
        f"(async () => {{ {REACHING[what]}; return 'reached'; }})()"
        ".catch(() => 'refused').then((value) => bus.postMessage({ value }));"
    )
    async with sandbox() as one:
        one.load(acting(code))
        one.send(pipe.connect())
        assert await one.message() == {"value": "refused", "id": 1}


@pytest.mark.parametrize(
    "line", ["'garbage\\n'", '\'{"op":"exec"}\\n\'', "'x' * 3_000_000", "'\\udcff\\n'"]
)
async def test_case_25_a_sandbox_that_writes_what_is_no_operation_is_ended(line: str) -> None:
    one = writing(f"sys.stdout.buffer.write(({line}).encode('utf-8', 'surrogateescape'))")
    await one.start()
    assert "line" in await one.end()
    assert one.refused_lines == 1


async def test_the_end_of_one_that_has_written_more_than_was_read_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sandbox_process, "_READ", 1_000)  # so that more waits than may
    one = writing("sys.stdout.buffer.write(b'x' * 3_000_000)")
    await one.start()
    assert "longer" in await one.end()


async def test_a_failure_of_ours_at_what_it_says_ends_it_though_it_goes_on_writing() -> None:
    one = writing('[print(\'{"op":"message","message":{}}\') for _ in range(100_000)]')
    one._said = lambda said: [].pop()
    await one.start()
    assert "failed" in await one.end()


async def test_what_one_wrote_before_it_ended_is_taken_unless_it_was_killed() -> None:
    """Else a request would be answered 503 whose response was there already."""
    line = '{"op":"message","message":{}}'
    ends = Watched(command=[sys.executable, "-c", f"print('{line}\\n' * 100, end='')"])
    await ends.start()
    assert "ended with 0" in await ends.end()
    assert ends.queue.qsize() == 100
    killed = writing(f"print('{line}\\n' * 6000, end='')")
    await killed.start()
    await killed.message()
    killed.kill("the test is over")
    taken = killed.queue.qsize()
    await killed.end()
    assert killed.queue.qsize() == taken < 5_000


async def test_case_25_a_line_that_is_forged_is_what_the_stub_could_have_posted_anyway() -> None:
    one = writing('print(\'{"op":"message","message":{"from":"mn:/session"}}\', flush=True)')
    await one.start()
    assert await one.message() == {"from": "mn:/session"}
    one.kill("the test is over")
    await one.end()


def writing(code: str) -> Watched:
    """Something in the place of the engine that writes this on the pipe."""
    return Watched(
        command=[sys.executable, "-c", f"import sys; {code}; sys.stdout.flush(); sys.stdin.read()"]
    )


async def test_case_30_what_a_stub_logs_is_not_kept() -> None:
    async with sandbox() as one:
        flood = (
            "for (let i = 0; i < 2000; i++) { console.log(i); Promise.reject(new Error(`e${i}`)); }"
        )
        one.load(acting(f"{flood} setTimeout(() => bus.postMessage({{ value: 'done' }}), 0);"))
        one.send(pipe.connect())
        assert (await one.message())["value"] == "done"
        assert len(one.logs) <= 20


async def test_a_stub_that_floods_is_read_no_faster_than_it_may() -> None:
    async with sandbox(silence=6.0) as one:
        one.load(acting("for (let i = 0; i < 9000; i++) bus.postMessage({ i });"))
        one.send(pipe.connect())
        loop = asyncio.get_running_loop()
        began = loop.time()
        for number in range(9000):
            assert (await one.message())["i"] == number
        assert loop.time() - began > 0.9, (
            "9,000 lines at 4,000 a second, one second's worth at once"
        )


async def test_others_have_their_turn_between_the_lines_of_one_that_writes_many_at_once() -> None:
    line = '{"op":"message","message":{}}'
    one = writing(f"print('{line}\\n' * 4000)")
    taken, most = 0, 0

    def take(said: object) -> None:
        nonlocal taken
        taken += 1

    one._said = take
    await one.start()
    async with asyncio.timeout(30):
        while taken < 4000:
            before = taken
            await asyncio.sleep(0)
            most = max(most, taken - before)
    assert most <= 64, "the turn of another may begin between two of its own"
    one.kill("the test is over")
    await one.end()


async def test_a_sandbox_has_an_environment_of_its_own() -> None:
    assert set(sandbox_process.environment()) == {"DENO_DIR", "NO_COLOR", "DENO_NO_UPDATE_CHECK"}


def test_an_engine_that_is_installed_while_the_node_runs_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sandbox_process, "_deno", sandbox_process._deno.__wrapped__)
    monkeypatch.setattr(sandbox_process.shutil, "which", lambda *_, **__: None)
    assert (find_deno(), sandbox_process.can_wrap()) == ("", False)
    monkeypatch.undo()
    assert find_deno()


async def test_an_engine_that_cannot_be_started_says_so() -> None:
    from msgnode.sandbox.process import SandboxLimits, SandboxProcess

    one = SandboxProcess(SandboxLimits(), lambda said: None, ["/nonexistent/engine"])
    with pytest.raises(OSError):
        await one.start()


async def test_case_32_without_bubblewrap_a_sandbox_runs_unless_it_is_required(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sandbox_process, "can_wrap", lambda: False)
    for wraps in ("auto", "off"):
        async with sandbox(wraps=wraps) as one:
            one.load(stub("umd"))
            await one.next(pipe.Loaded)
            assert not one.is_wrapped
    one = Watched(wraps="required")
    with pytest.raises(OSError, match="bubblewrap is required"):
        await one.start()
    assert one.pid == 0


async def test_case_32_where_bubblewrap_works_it_is_used_unless_it_is_off() -> None:
    for wraps, is_wrapped in (("auto", True), ("required", True), ("off", False)):
        if is_wrapped and not sandbox_process.can_wrap():
            continue
        async with sandbox(wraps=wraps) as one:
            one.load(stub("umd"))
            await one.next(pipe.Loaded)
            assert one.is_wrapped == is_wrapped


async def test_all_that_a_sandbox_runs_has_a_low_priority_in_the_session_that_it_leads() -> None:
    async with sandbox() as one:
        one.load(stub("umd"))
        await one.next(pipe.Loaded)
        own = os.getpriority(os.PRIO_PROCESS, 0)
        assert os.getpriority(os.PRIO_PGRP, one.pid) == max(own, 10)
        group = [one.pid, *started_by(one.pid)]
        assert len(group) == (3 if one.is_wrapped else 1)
        assert {os.getsid(pid) for pid in group} == {one.pid}


def started_by(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [each for child in map(int, children) for each in (child, *started_by(child))]
