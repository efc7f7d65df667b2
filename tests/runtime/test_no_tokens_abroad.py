"""Case R67 over two real nodes: nothing of a log-in at home goes to another domain."""

from __future__ import annotations

import asyncio
import base64
import json
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import pytest

from msgnode.runtime.python import Runtime, Settings
from tests.client import LIMIT
from tests.node import Node
from tests.runtime.recording_proxy import recording_proxy
from tests.runtime.test_invitations import log_in, token_of

pytestmark = [pytest.mark.any_server, pytest.mark.long]


def spellings(secret: str) -> list[str]:
    """A secret as it may be written."""
    encoded = base64.b64encode(secret.encode()).decode().rstrip("=")
    return [secret, quote(secret, safe=""), encoded, encoded.replace("+", "-").replace("/", "_")]


async def test_r67_nothing_of_the_log_in_at_home_reaches_the_other_domains_node(
    start_node: Callable[..., Node],
) -> None:
    with recording_proxy() as to_a, recording_proxy() as to_b:
        a, b = start_node(DOMAIN="a.localhost"), start_node(DOMAIN="b.localhost")
        to_a.target, to_b.target = a.port, b.port
        urls = {
            "a.localhost": f"http://localhost:{to_a.port}",
            "b.localhost": f"http://localhost:{to_b.port}",
        }
        token = await asyncio.to_thread(token_of, a, "alice", "a.localhost")
        direct = {**urls, "b.localhost": f"http://localhost:{b.port}"}
        async with (
            Runtime(Settings("a.localhost", catalogues=urls)) as alice,
            Runtime(Settings("b.localhost", catalogues=direct)) as bob,
        ):
            await log_in(alice, token)
            await bob.log_in()
            heard: asyncio.Queue[Any] = asyncio.Queue()
            bob.bus.add_listener(f"{bob.url}/me", heard.put_nowait)
            message = {"type": "create", "from": f"{alice.url}/me", "to": f"{bob.url}/me"}
            asking = asyncio.ensure_future(
                alice.bus.request({**message, "body": {"value": "only this"}})
            )
            async with asyncio.timeout(LIMIT):
                came = await heard.get()
            head = {"id": came["id"], "type": "response", "from": came["to"], "to": came["from"]}
            bob.bus.post_message({**head, "body": {"code": 200}})
            assert (await asking)["body"]["code"] == 200

        # The proxies have read all of it: the token went home, and the message went to b.
        secrets = [token, *re.findall(r'"runtimeToken":\s*"([^"]+)"', to_a.received())]
        assert len(secrets) > 1
        assert token in to_a.sent()
        sent = to_b.sent()
        assert "only this" in sent
        assert "websocket" in sent.lower()
        for secret in secrets:
            for each in spellings(secret):
                assert each not in sent
                assert each not in json.dumps(came)
