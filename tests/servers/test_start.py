"""A process hears a signal that comes while its event loop does not run."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest
import uvloop

from msgnode.servers.start import on_signals


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
