"""Nobody gets at a runtime's messages by taking a name that is nearly its own."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.client import SESSION, code, runtime
from tests.node import Node


async def _answered(node: Node, type_: str, name: str) -> int:
    """The code a stranger's session frame is answered with."""
    async with node.ws() as stranger:
        return code(await stranger.ask(type_, SESSION, sender=name))


async def test_a_session_below_another_runtime_is_refused(node: Node) -> None:
    async with node.ws() as alice:
        await alice.open()
        assert await _answered(node, "open", f"{alice.runtime_url}/sm") == 403


@pytest.mark.parametrize(
    ("type_", "name"),
    [("open", "{}"), ("re-open", "{}/made-up"), ("open", "hyperty-{}")],
    ids=["by its name", "by a made-up token", "by its other spelling"],
)
async def test_a_runtime_url_in_use_is_not_shared_where_sharing_is_off(
    start_node: Callable[..., Node], type_: str, name: str
) -> None:
    node = start_node(SHARE_RUNTIME_URL="false")
    async with node.ws() as alice:
        await alice.open(runtime())
        assert await _answered(node, type_, name.format(alice.runtime_url)) == 403
