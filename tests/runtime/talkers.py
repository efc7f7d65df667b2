"""Runtimes of three kinds behind one face, each with a hyperty that answers and asks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from tests.runtime import started
from tests.runtime.started import Options

OPEN = """async ({ token, ...options }) => {
    const { Runtime } = await import("/msgnode/runtime/js/src/index.js");
    const { conversation } = await import("/tests/runtime/talk.mjs");
    window.runtime = new Runtime(options);
    window.talk = await conversation(window.runtime, token);
    return window.talk.url;
}"""


class Talker(Protocol):
    """A runtime; `url` is its hyperty's."""

    url: str

    def ask(self, address: str, times: int) -> dict[str, Any]: ...


class Process:
    """A runtime in Node.js or Python."""

    def __init__(self, process: started.Process) -> None:
        self._process = process
        self.url = str(process.first["url"])

    def ask(self, address: str, times: int) -> dict[str, Any]:
        return self._process.order(ask=address, times=times)

    def end(self) -> None:
        """Close it, as its user would."""
        self._process.end()


class Page:
    """A runtime in Chromium."""

    def __init__(self, page: Any, url: str) -> None:
        self._page = page
        self.url = url

    def ask(self, address: str, times: int) -> dict[str, Any]:
        answer = self._page.evaluate(
            "([to, times]) => window.talk.ask(to, times)", [address, times]
        )
        return dict(answer)

    def frames(self) -> int:
        return len(self._page.query_selector_all("iframe[sandbox]"))


@contextmanager
def page(browser: Any, options: Options) -> Iterator[Page]:
    with started.page(browser, OPEN, options) as (opened, url):
        yield Page(opened, url)


@contextmanager
def talker(kind: str, browser: Any, options: Options, **environment: str) -> Iterator[Talker]:
    """A runtime of a kind: "nodejs", "python" or "chromium"."""
    if kind == "chromium":
        with page(browser, options) as opened:
            yield opened
    else:
        with started.process("talker", kind, options, **environment) as process:
            yield Process(process)
