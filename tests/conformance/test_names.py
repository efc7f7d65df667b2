"""Nobody gets at a runtime's messages by taking a name that is nearly its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.client import SESSION, code, runtime
from tests.node import Node, running


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory, template: Path) -> Iterator[Node]:
    """A node on which sessions share no runtime URL."""
    place = tmp_path_factory.mktemp("strict")
    with running(place, template, SHARE_RUNTIME_URL="false") as node:
        yield node


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
    strict: Node, type_: str, name: str
) -> None:
    async with strict.ws() as alice:
        await alice.open(runtime())
        assert await _answered(strict, type_, name.format(alice.runtime_url)) == 403
