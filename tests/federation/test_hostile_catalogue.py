"""Catalogues that answer what cannot be stored, or never: neither is any other peer's business."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.node import Node, running

from .catalogues import SECONDS, Catalogue, described
from .sandboxes import needs_deno

pytestmark = [needs_deno, pytest.mark.long]

_URL = "ws://127.0.0.1:1/ws"
_GOOD = described("export default class {}", _URL)
_ANSWERS: dict[str, dict[str, Any]] = {
    "/half": {**_GOOD, "version": "\ud800"},
    "/nul": {**_GOOD, "configuration": {"url": _URL, "a": "\0"}},
    "/good": _GOOD,
}


@pytest.fixture
def catalogue() -> Iterator[Catalogue]:
    one = Catalogue(_ANSWERS)
    yield one
    one.stop()


def found(node: Node) -> dict[str, str]:
    """What the node says it has found, or why not, by peer; nothing for those being looked for."""
    peers = node.rows("SELECT domain, found_digest, discovery FROM msgnode_peer")
    return {name: digest or why for name, digest, why in peers if digest or why}


def test_a_catalogue_that_lies_or_never_answers_is_looked_at_once_and_alone(
    tmp_path: Path, template: Path, catalogue: Catalogue
) -> None:
    settings = {"FEDERATION": "listed", "FEDERATION_NETWORKS": "127.0.0.0/8"}
    with running(tmp_path / "a", template, DOMAIN="a.example", **settings) as node:
        for name in ("never", "half", "nul", "good"):
            node.manage("peers", "add", f"{name}.example", "--url", f"{catalogue.url}/{name}")
        until = time.monotonic() + SECONDS / 2
        while (
            not {f"{name}.example" for name in ("half", "nul", "good")}
            <= (said := found(node)).keys()
        ):
            assert time.monotonic() < until, f"{said}\n{catalogue.asked}\n{node.log()}"
            time.sleep(0.2)
        assert len(said["good.example"]) == 64, "a digest"
        for name in ("half", "nul"):
            assert "cannot be used" in said[f"{name}.example"]
            assert catalogue.asked[f"/{name}"] <= 2
