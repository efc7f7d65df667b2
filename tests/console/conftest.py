"""An operator who has logged in: to the console alone, and to that of a running node."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.node import Node, running

from . import window
from .browser import Browser, log_in
from .traffic import Traffic, talking


@pytest.fixture(scope="session")
def console(
    tmp_path_factory: pytest.TempPathFactory, template: Path
) -> Iterator[tuple[Node, Browser]]:
    """A node and its operator's browser, shared: tests use runtime URLs of their own."""
    with running(tmp_path_factory.mktemp("console"), template) as node:
        yield node, log_in(node)
        assert node.is_running(), node.log()


@pytest.fixture(scope="module")
def chromium_window(chromium: str) -> Iterator[Any]:
    with window.opened(chromium) as chromium_window:
        yield chromium_window


@pytest.fixture
def traffic(node: Node) -> Iterator[Traffic]:
    """Runtimes that talk through the node of the test's module."""
    with talking(node) as traffic:
        yield traffic
