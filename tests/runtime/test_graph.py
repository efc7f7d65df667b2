"""The Graph Connector over real nodes: Python and Node.js find a person in two domains.

The numbers of cases are those of docs/reference/registry.md.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from msgnode.runtime.python import Runtime, Settings
from tests.node import ROOT, Node
from tests.stubs.runtimes import node_js

SCRIPT = Path(__file__).parent / "graph.mjs"


def settings(domain: str, nodes: dict[str, Node], **more: Any) -> Settings:
    urls = {each: f"http://127.0.0.1:{node.port}" for each, node in nodes.items()}
    return Settings(domain, catalogues=urls, **more)


def in_nodejs(domain: str, nodes: dict[str, Node], guid: str) -> dict[str, Any]:
    """What a runtime in Node.js finds of a person."""
    options = {"domain": domain, "catalogues": dict(settings(domain, nodes).catalogues)}
    done = subprocess.run(
        [*node_js(), str(SCRIPT), json.dumps({"options": options, "find": guid})],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return dict(json.loads(done.stdout))


async def register(runtime: Runtime, uid: str, guid: str) -> str:
    """A hyperty of the runtime at its domain's registry."""
    domain = runtime.settings.domain
    sm, sender = f"domain://msg-node.{domain}/address-allocation", f"{runtime.url}/registry"
    body: dict[str, Any] = {"scheme": "hyperty", "value": {"number": 1}}
    asked = {"type": "create", "from": sender, "to": sm, "body": body}
    url: str = (await runtime.bus.request(asked))["body"]["value"]["allocated"][0]
    value = {"url": url, "user": uid, "guid": guid, "runtime": runtime.url, "expires": 600}
    value |= {"status": "live", "resources": ["chat"], "dataSchemes": ["comm"], "descriptor": "d"}
    asked = {**asked, "to": f"domain://registry.{domain}", "body": {"value": value}}
    answer = await runtime.bus.request(asked)
    assert answer["body"]["code"] == 200, answer
    return url


@pytest.mark.long
async def test_a_person_is_found_in_two_domains_and_a_frozen_one_fails_for_itself(
    start_node: Callable[..., Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = {domain: start_node(DOMAIN=domain) for domain in ("d.localhost", "f.localhost")}
    home, abroad = (settings(domain, nodes) for domain in nodes)
    async with Runtime(home) as alice, Runtime(abroad) as elsewhere:
        assert await alice.log_in() == await elsewhere.log_in() == "live"
        await alice.graph.create()
        guid = alice.graph.guid
        uids = {domain: f"user://{domain}/alice" for domain in nodes}
        for uid in uids.values():
            alice.graph.add_user_id(uid)
        await alice.graph.publish()
        urls = {
            await register(runtime, uids[runtime.settings.domain], guid)
            for runtime in (alice, elsewhere)
        }
        async with Runtime(home) as bob:
            found = await bob.graph.hyperties(guid, resources=["chat"])
            assert {each["hypertyID"] for one in found for each in one.hyperties} == urls
            assert all(each["confirmed"] for one in found for each in one.hyperties)
            # Node.js finds the same.
            said = await asyncio.to_thread(in_nodejs, "d.localhost", nodes, guid)
            assert {each["hypertyID"] for one in said["found"] for each in one["hyperties"]} == urls

            os.kill(nodes["f.localhost"].pid, signal.SIGSTOP)
            try:
                codes = {each.user_id.domain: each.code for each in await bob.graph.hyperties(guid)}
            finally:
                os.kill(nodes["f.localhost"].pid, signal.SIGCONT)
            assert codes.pop("d.localhost") == 200
            assert codes["f.localhost"] in (408, 503, 504)
