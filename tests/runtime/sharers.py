"""Runtimes of three kinds behind one face, each sharing a data object."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

from tests.runtime import started
from tests.runtime.started import Options

OPEN = """async (options) => {
    const { Runtime } = await import("/msgnode/runtime/js/src/index.js");
    const { Syncher } = await import("/msgnode/runtime/js/src/syncher/index.js");
    const { sharing } = await import("/tests/runtime/share.mjs");
    window.act = await sharing(new Runtime(options), Syncher);
}"""


class Sharer(Protocol):
    """A runtime that does what it is told."""

    def act(self, do: str, **order: Any) -> dict[str, Any]: ...


class Process:
    """A runtime in Node.js or Python."""

    def __init__(self, process: started.Process) -> None:
        self._process = process

    def act(self, do: str, **order: Any) -> dict[str, Any]:
        return self._process.order(do=do, **order)


class Page:
    """A runtime in Chromium."""

    def __init__(self, page: Any) -> None:
        self._page = page

    def act(self, do: str, **order: Any) -> dict[str, Any]:
        return dict(self._page.evaluate("order => window.act(order)", {"do": do, **order}))


@contextmanager
def sharer(kind: str, browser: Any, domain: str, ports: Mapping[str, int]) -> Iterator[Sharer]:
    """A runtime of a kind ("nodejs", "python", "chromium"); `ports` are the nodes' by domain."""
    catalogues = {each: f"http://127.0.0.1:{port}" for each, port in ports.items()}
    options: Options = {"domain": domain, "catalogues": catalogues}
    if kind == "chromium":
        with started.page(browser, OPEN, options) as (page, _):
            yield Page(page)
    else:
        with started.process("sharer", kind, options) as process:
            yield Process(process)
