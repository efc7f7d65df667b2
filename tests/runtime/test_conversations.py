"""Chromium, Node.js and Python talk, over one node and over two of different domains.

Over two, each loads the other domain's stub from its catalogue into a sandbox and is a visitor
there.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.certificates import certificate
from tests.node import Node, running
from tests.runtime import started, talkers
from tests.runtime.talkers import Talker, talker
from tests.runtime.tls_front import tls_front
from tests.waiting import until

pytestmark = pytest.mark.long

PAIRS = [("nodejs", "chromium"), ("python", "nodejs"), ("python", "chromium")]
pairs = pytest.mark.parametrize(("one", "other"), PAIRS, ids=["-".join(pair) for pair in PAIRS])


COLD = 5_000
"""Most ms until the first message abroad is answered; 500 where the machine is quiet."""


def they_talk(one: Talker, other: Talker, times: int = 20) -> list[float]:
    """Each asks the other; after how many ms the first request of each was answered."""
    first = []
    for who, to in ((one, other), (other, one)):
        told = who.ask(to.url, times)
        assert told["codes"] == [200] * times, told
        first.append(told["latencies"][0])
    return first


@pytest.fixture(scope="module")
def two_domains(
    tmp_path_factory: pytest.TempPathFactory, template: Path
) -> Iterator[dict[str, str]]:
    """The catalogues of two domains, each of a node."""
    place = tmp_path_factory.mktemp("two")
    with ExitStack() as stack:
        nodes = {
            domain: stack.enter_context(running(place / domain, template, DOMAIN=domain))
            for domain in ("a.test", "b.test")
        }
        yield {domain: f"http://127.0.0.1:{node.port}" for domain, node in nodes.items()}


@pytest.fixture(scope="module")
def over_tls(
    tmp_path_factory: pytest.TempPathFactory, template: Path
) -> Iterator[tuple[int, Path]]:
    """The port where a node is reached over TLS, and the certificate to trust."""
    place = tmp_path_factory.mktemp("tls")
    pem = certificate(place).both
    with (
        running(place / "node", template, PROXIES=1) as node,
        tls_front(node.port, pem) as port,
    ):
        yield port, pem


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
    one: str, other: str, two_domains: dict[str, str], browser: Any
) -> None:
    with (
        talker(one, browser, {"domain": "b.test", "catalogues": two_domains}) as first,
        talker(other, browser, {"domain": "a.test", "catalogues": two_domains}) as second,
    ):
        cold = dict(zip((one, other), they_talk(first, second), strict=True))
        print(
            "the first message abroad, cold:", {kind: f"{ms:.0f} ms" for kind, ms in cold.items()}
        )
        assert max(cold.values()) <= COLD
        if isinstance(second, talkers.Page):
            assert second.frames() == 1  # the foreign stub's


@pytest.mark.parametrize("kind", ["nodejs", "python", "chromium"])
def test_a_sandbox_connects_over_tls(kind: str, over_tls: tuple[int, Path], browser: Any) -> None:
    port, pem = over_tls
    trusted = {"NODE_EXTRA_CA_CERTS": str(pem), "SSL_CERT_FILE": str(pem)}
    catalogues = {"localhost": f"https://localhost:{port}"}
    options = {"domain": "localhost", "catalogues": catalogues, "sandbox": "all"}
    with (
        talker(kind, browser, options, **trusted) as one,
        talker("nodejs", browser, options, **trusted) as other,
    ):
        they_talk(one, other)


@pytest.mark.parametrize("sandbox", ["own", "all"])
def test_a_newer_home_stub_is_reached_where_the_older_one_was(sandbox: str, node: Node) -> None:
    catalogues = {"localhost": f"http://127.0.0.1:{node.port}"}
    options = {"domain": "localhost", "catalogues": catalogues, "sandbox": sandbox}
    with (
        started.process("talker", "nodejs", options) as renewed,
        talker("python", None, options) as other,
    ):
        one = talkers.Process(renewed)
        they_talk(one, other, 1)
        renewed.order(renew="localhost")
        until(lambda: other.ask(one.url, 1)["codes"] == [200], 20)  # its subscription is on its way
        they_talk(one, other)
