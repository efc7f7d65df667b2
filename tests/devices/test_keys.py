"""An API key that an operator deletes or switches off ends its sessions, and no other's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack

import pytest

from tests.client import LIMIT, address
from tests.console.browser import log_in
from tests.devices.client import Device, Events, api_key
from tests.node import Node

pytestmark = pytest.mark.long


async def test_a_key_that_is_deleted_or_changed_ends_its_sessions_and_no_others(
    start_node: Callable[..., Node],
) -> None:
    node = await asyncio.to_thread(start_node, DEVICE_HTTP=True)
    browser = await asyncio.to_thread(log_in, node)
    async with AsyncExitStack() as stack:
        devices, streams, rows = [], [], []
        for _ in range(3):
            key = await asyncio.to_thread(api_key, node, "device:connect")
            device = await stack.enter_async_context(Device(node, key=key))
            stream = await stack.enter_async_context(device.events())
            devices.append(device)
            streams.append(stream)
            rows.append(await asyncio.to_thread(row_of, node, key))
        (deleted, _), (switched_off, name), _ = rows
        await browser.post(f"msgnode/apikey/{deleted}/delete/", post="yes")
        await ended(devices[0], streams[0])
        await browser.post(
            f"msgnode/apikey/{switched_off}/change/", name=name, scopes="device:connect",
            expires_at_0="2090-01-01", expires_at_1="00:00:00",
        )  # fmt: skip
        await ended(devices[1], streams[1])
        assert (await devices[2].send("read", address("comm"), wait=10)).status_code == 404


def row_of(node: Node, key: str) -> tuple[str, str]:
    """The number and the name of a key."""
    wanted = "SELECT id, name FROM msgnode_apikey WHERE prefix = ?"
    ((number, name),) = node.rows(wanted, key.split("_")[1])
    return str(number), name


async def ended(device: Device, stream: Events) -> None:
    """The stream says so, the token opens nothing more, and the key no session."""
    async with asyncio.timeout(LIMIT):
        name, said = await stream.next()
    assert (name, said["code"]) == ("close", 4401), said
    assert (await device.poll(wait=0)).status_code == 401
    assert (await device.open()).status_code == 401
