"""What is said of a commit that nobody waits for."""

from __future__ import annotations

import asyncio

import pytest

from msgnode.bus.writing import retrieve_error
from msgnode.core.errors import Conflict


@pytest.mark.parametrize("end", ["result", "error", "cancelled"])
async def test_an_error_that_nobody_asked_for_is_no_fault_of_the_loop(end: str) -> None:
    faults: list[object] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: faults.append(context))
    future: asyncio.Future[None] = loop.create_future()
    future.add_done_callback(retrieve_error)
    if end == "error":
        future.set_exception(Conflict("taken"))
    elif end == "cancelled":
        future.cancel()
    else:
        future.set_result(None)
    await asyncio.sleep(0)
    del future
    assert faults == []
