"""The production shape behind each proxy: traffic, console and API pass, and a worker may die."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.client import code
from tests.node import eventually
from tests.production import REFERER, Production, log_in, settings, token_of

pytestmark = [pytest.mark.long, pytest.mark.timeout(400)]

PASSWORD = "a long enough passphrase"
OPERATOR = (
    "from django.contrib.auth import get_user_model as users; "
    f"users().objects.create_superuser('olga', password={PASSWORD!r})"
)


def program(name: str) -> str:
    """The path of a proxy; `.ci/run` installs it."""
    found = os.environ.get(name.upper()) or shutil.which(
        name, path=f"{os.environ['PATH']}:/usr/sbin"
    )
    if found is None:
        if os.environ.get("CI"):
            pytest.fail(f"CI has no {name}: install it")
        pytest.skip(f"no {name}: install it or name it in {name.upper()}")
    return found


@pytest.fixture(params=["nginx", "haproxy"])
def node(
    request: pytest.FixtureRequest, tmp_path: Path, migrated_url: str, redis_url: str
) -> Iterator[Production]:
    front = program(request.param)
    place = tmp_path / "node"
    made = Production(place, request.param, front, **settings(migrated_url, redis_url))
    try:
        made.start()
        yield made
    finally:
        made.stop()


async def test_console_and_api_have_a_process_of_their_own_and_a_worker_may_die(
    node: Production,
) -> None:
    node.one.manage("shell", "--verbosity", "0", "-c", OPERATOR)
    health = json.loads(node.web.text("/health/ready"))
    assert (health["checks"], health["workers"]) == ({"database": True}, 2)
    told = node.web.text("/metrics")
    assert "process_resident_memory_bytes" in told
    of_the_node = {line.split("{")[0] for line in told.splitlines() if line.startswith("msgnode_")}
    own = {"msgnode_build_info", "msgnode_faults_total", "msgnode_faults_created"}
    assert of_the_node <= own, "no worker's"

    # Two runtimes talk; what is registered through the web process is found by a message.
    alice, bob = await node.come(), await node.come()
    for client in (alice, bob):
        await client.open()
    await alice.send("update", bob.runtime_url, {"value": "hello"})
    assert (await bob.expect(type="update"))["body"]["value"] == "hello"

    browser = node.browser()
    log_in(browser, "olga", PASSWORD)
    answered = browser.get("/admin/msgnode/session/")
    assert answered.headers["X-Answered-By"] == f"127.0.0.1:{node.web.port}"
    assert alice.runtime_url in answered.text
    assert browser.get("/metrics").headers["X-Answered-By"] != f"127.0.0.1:{node.web.port}"
    entry = {"descriptor": "d", "resources": [], "dataSchemes": [], "status": "live",
             "expires": 60, "runtime": alice.runtime_url}  # fmt: skip
    place = "/domain-registry/hyperty/user/user%3A%2F%2Fl%2Fa/hyperty%3A%2F%2Flocalhost%2Fweb"
    assert node.browser().put(place, json=entry).status_code == 200
    found = await bob.ask(
        "read", "domain://registry.localhost", {"resource": "hyperty://localhost/web"}
    )
    assert code(found) == 200, found

    # Pages that move are told of all workers by one that the proxy has chosen.
    async with asyncio.timeout(30):  # a worker that is late is not heard of for a moment
        while sum(each["is_heard"] for each in (await node.watch(browser))["workers"]) != 2:
            await eventually()

    # What the operator does there reaches the worker that has the socket.
    carol = await node.come()
    await carol.open()
    page = browser.get("/admin/msgnode/ban/add/")
    fields = {
        "kind": "runtime", "value": carol.runtime_url, "reason": "floods",
        "expires_at_0": "", "expires_at_1": "", "csrfmiddlewaretoken": token_of(page),
    }  # fmt: skip
    answer = browser.post(str(page.url), data=fields, headers=REFERER)
    assert (answer.status_code, answer.url.path) == (200, "/admin/msgnode/ban/"), answer.text
    assert await carol.close_code() == 4403

    # One worker is killed: its runtimes come back to the other, through the proxy.
    node.one.kill()
    back = []
    for before in (alice, bob):
        before.cut()
        client = await node.come()
        back.append(await client.resume(before))
    await back[0].send("update", back[1].runtime_url, {"value": "again"})
    again = await back[1].expect(type="update", sender=alice.runtime_url)  # before it, the gap
    assert again["body"]["value"] == "again"

    # Without the web process a worker answers, and the operator stays logged in.
    node.web.terminate()
    assert node.web.status() == 0
    page = browser.get("/admin/")
    assert (page.status_code, page.url.path) == (200, "/admin/")
    assert page.headers["X-Answered-By"].endswith(f"127.0.0.1:{node.other.port}")
