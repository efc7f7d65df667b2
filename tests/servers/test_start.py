"""How a process begins: it hears each signal, and its threads share a heap."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from platform import libc_ver

import pytest
import uvloop

from msgnode.servers.start import on_signals
from tests.node import ROOT


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_between_two_runs_of_the_loop_is_heard_in_the_next(number: int) -> None:
    before = {each: signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)}
    loop = uvloop.new_event_loop()
    told: list[int] = []
    try:
        on_signals(loop, lambda: told.append(number))
        loop.run_until_complete(asyncio.sleep(0))
        os.kill(os.getpid(), number)
        assert told == []
        loop.run_until_complete(asyncio.sleep(0))
        assert told == [number]
    finally:
        loop.close()
        for each, handler in before.items():
            signal.signal(each, handler)


@pytest.mark.skipif(libc_ver()[0] != "glibc", reason="another C library has no such heaps")
@pytest.mark.parametrize(("start", "is_one"), [("use_one_heap()", True), ("", False)])
def test_threads_share_one_heap(start: str, is_one: bool) -> None:
    script = f"""
import ctypes, threading
from msgnode.servers.start import use_one_heap
{start}
here = threading.Barrier(8)
def work():
    kept = [b"x" * 2_000 for _ in range(50)]
    here.wait()
threads = [threading.Thread(target=work) for _ in range(8)]
[each.start() for each in threads]
[each.join() for each in threads]
libc = ctypes.CDLL(None)
libc.fdopen.restype = ctypes.c_void_p
out = ctypes.c_void_p(libc.fdopen(1, b"w"))
libc.malloc_info(0, out)
libc.fflush(out)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert (done.stdout.count("<heap nr=") == 1) is is_one, done.stdout + done.stderr


@pytest.mark.skipif(libc_ver()[0] != "glibc", reason="another C library has no such heaps")
@pytest.mark.parametrize(("start", "is_kept"), [("", True), ("use_one_heap()", False)])
def test_a_large_block_that_is_freed_does_not_stay_in_the_heap(start: str, is_kept: bool) -> None:
    script = f"""
import ctypes
from msgnode.servers.start import use_one_heap
{start}
libc = ctypes.CDLL(None)
class Said(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in "abcdefghij"]
libc.mallinfo2.restype = Said
def in_heap():
    return libc.mallinfo2().a
before = in_heap()
del (large := [bytearray(8 << 20)])[:]
second = bytearray(7 << 20)
above = [bytes(2_000) for _ in range(50)]
del second
print(in_heap() - before)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert (int(done.stdout) > 7 << 20) is is_kept, done.stdout + done.stderr
