"""Case R67 over two real nodes: nothing of a log-in at home goes to another domain."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import pytest

from tests.node import Node, running
from tests.runtime.proxies import RecordingProxy
from tests.runtime.talkers import talker
from tests.runtime.test_invitations import token_of

pytestmark = [
    pytest.mark.long,
    pytest.mark.xdist_group("no tokens abroad"),  # one pair of nodes
]


def spellings(secret: str) -> list[str]:
    """A secret as it may be written."""
    encoded = base64.b64encode(secret.encode()).decode().rstrip("=")
    return [secret, quote(secret, safe=""), encoded, encoded.replace("+", "-").replace("/", "_")]


class Nodes(NamedTuple):
    """Two of different domains; `token` is a user's of `a`."""

    a: Node
    b: Node
    token: str


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory, template: Path) -> Iterator[Nodes]:
    place = tmp_path_factory.mktemp("two")
    with (
        running(place / "a", template, DOMAIN="a.localhost") as a,
        running(place / "b", template, DOMAIN="b.localhost") as b,
    ):
        yield Nodes(a, b, token_of(a, "alice", "a.localhost"))


@pytest.mark.parametrize("kind", ["python", "nodejs", "chromium"])
def test_r67_nothing_of_the_log_in_at_home_reaches_the_other_domains_node(
    kind: str, nodes: Nodes, browser: Any
) -> None:
    there = {"b.localhost": f"http://localhost:{nodes.b.port}"}
    with closing(RecordingProxy()) as to_a, closing(RecordingProxy()) as to_b:
        to_a.target, to_b.target = nodes.a.port, nodes.b.port
        recorded = {
            "a.localhost": f"http://localhost:{to_a.port}",
            "b.localhost": f"http://localhost:{to_b.port}",
        }
        logged_in = {"domain": "a.localhost", "catalogues": recorded, "token": nodes.token}
        with (
            talker("nodejs", browser, {"domain": "b.localhost", "catalogues": there}) as bob,
            talker(kind, browser, logged_in) as alice,
        ):
            told = alice.ask(bob.url, 2)
            assert told["codes"] == [200, 200], told

        # The proxies have read all of it: the token went home, and the messages went to b.
        secrets = [nodes.token, *re.findall(r'"runtimeToken":\s*"([^"]+)"', to_a.received())]
        assert len(secrets) > 1
        assert nodes.token in to_a.sent()
        sent = to_b.sent()
        assert bob.url in sent
        assert "websocket" in sent.lower()
        for secret in secrets:
            for each in spellings(secret):
                assert each not in sent
