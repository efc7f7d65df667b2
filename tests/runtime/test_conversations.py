"""Chromium, Node.js and Python talk, over one node and over two of different domains.

Over two, each loads the other domain's stub from its catalogue into a sandbox and is a visitor
there.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.node import Node
from tests.runtime import talkers
from tests.runtime.talkers import Talker, talker
from tests.runtime.tls_front import certificate, tls_front

pytestmark = [pytest.mark.long, pytest.mark.any_server]

PAIRS = [("nodejs", "chromium"), ("python", "nodejs"), ("python", "chromium")]
pairs = pytest.mark.parametrize(("one", "other"), PAIRS, ids=["-".join(pair) for pair in PAIRS])


def they_talk(one: Talker, other: Talker, times: int = 20) -> None:
    for who, to in ((one, other), (other, one)):
        told = who.ask(to.url, times)
        assert told["codes"] == [200] * times, told


@pairs
@pytest.mark.parametrize("sandbox", ["own", "all"])
def test_two_kinds_of_runtimes_over_one_node(
    one: str, other: str, sandbox: str, node: Node, browser: Any
) -> None:
    catalogues = {"localhost": f"http://127.0.0.1:{node.port}"}
    options = {"domain": "localhost", "catalogues": catalogues, "sandbox": sandbox}
    with talker(one, browser, options) as first, talker(other, browser, options) as second:
        they_talk(first, second)


def test_a_page_whose_sandboxes_are_frames_of_the_node(node: Node, browser: Any) -> None:
    frame = f"http://*.localhost:{node.port}/static/msgnode/runtime/sandbox/frame.html"
    catalogues = {"localhost": f"http://127.0.0.1:{node.port}"}
    options = {"domain": "localhost", "catalogues": catalogues}
    served = {**options, "sandbox": "all", "sandboxPage": frame}
    with talker("nodejs", browser, options) as one, talkers.page(browser, served) as other:
        they_talk(one, other)
        assert other.frames() == 1


@pairs
def test_two_kinds_of_runtimes_over_two_nodes_of_different_domains(
    one: str, other: str, start_node: Callable[..., Node], browser: Any
) -> None:
    here, there = (start_node(DOMAIN=each) for each in ("a.test", "b.test"))
    catalogues = {
        "a.test": f"http://127.0.0.1:{here.port}",
        "b.test": f"http://127.0.0.1:{there.port}",
    }
    with (
        talker(one, browser, {"domain": "b.test", "catalogues": catalogues}) as first,
        talker(other, browser, {"domain": "a.test", "catalogues": catalogues}) as second,
    ):
        they_talk(first, second)
        if isinstance(second, talkers.Page):
            assert second.frames() == 1  # the foreign stub's


@pytest.mark.parametrize("kind", ["nodejs", "python", "chromium"])
def test_a_sandbox_connects_over_tls(
    kind: str, start_node: Callable[..., Node], tmp_path: Path, browser: Any
) -> None:
    node = start_node(PROXIES=1)
    pem = certificate(tmp_path)
    trusted = {"NODE_EXTRA_CA_CERTS": str(pem), "SSL_CERT_FILE": str(pem)}
    with ExitStack() as stack:
        port = stack.enter_context(tls_front(node.port, pem))
        catalogues = {"localhost": f"https://localhost:{port}"}
        options = {"domain": "localhost", "catalogues": catalogues, "sandbox": "all"}
        one = stack.enter_context(talker(kind, browser, options, **trusted))
        other = stack.enter_context(talker("nodejs", browser, options, **trusted))
        they_talk(one, other)
