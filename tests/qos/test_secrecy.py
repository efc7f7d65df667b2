"""Case 41: a credential, a secret and a password stand in nothing that a node writes or shows."""

from __future__ import annotations

import asyncio
import json
import urllib.error
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.client import code
from tests.conftest import Come
from tests.console.browser import log_in
from tests.e2e.test_no_tokens import found, kept
from tests.node import Node
from tests.redis.servers import running as redis_running

from .coturn import PASSWORD, finished, running, talk
from .test_connector import QOS, VIDEO
from .test_coturn import Place, in_redis, until

pytestmark = [pytest.mark.long, pytest.mark.timeout(240)]

PAGES = [
    *("", "qos/turnserver/", "qos/reservation/", "qos/customer/", "qos/trafficclass/"),
    *("qos/roundtrip/", "qos/turnserver/1/change/", "qos/turnserver/1/history/"),
    *("msgnode/auditentry/", "msgnode/session/", "msgnode/componentstatus/", "msgnode/alarm/"),
    *("policies/decisionentry/", "qos/customer/1/change/"),
]
SECRETS = """
import json
from msgnode.qos import secret_store
print(json.dumps(secret_store.current(3600)))
"""


@pytest.fixture
def place(tmp_path: Path, start_node: Callable[..., Node]) -> Iterator[Place]:
    with redis_running(tmp_path) as redis, running(tmp_path, redis.port) as turn:
        node = start_node(
            QOS_BROKER="embedded", QOS_TURN_REDIS_URL=redis.url, QOS_POLL_SECONDS=1,
            POLICY_LOG_SAMPLE=1, POLICY_LOG_MASKS_BODIES="false", RECORD_FLUSH_SECONDS=0.2,
            LOG_LEVEL="DEBUG",
        )  # fmt: skip
        found = Place(node, redis, turn)
        found.shell(turn.row() + 'Customer.objects.create(name="csp1")\nprint(1)')
        yield found


async def test_case_41_no_credential_is_in_anything_that_is_written_or_shown(
    place: Place, come: Come
) -> None:
    browser = await asyncio.to_thread(log_in, place.node)
    client = await come(to=place.node)
    await in_redis(place)
    made = await client.ask("create", QOS, {**VIDEO, "value": {"class": "video", "cspId": "csp1"}})
    assert code(made) == 200, made
    value = made["body"]["value"]
    path = {"resource": f"/reservations/{value['reservationId']}"}
    renewed = (await client.ask("update", QOS, path))["body"]["value"]
    place.node.manage("turn_secret", "--rotate")
    (ice,) = value["iceServers"]
    result = await asyncio.to_thread(finished, talk(place.turn, ice, packets=50))
    assert result.received > 0
    await until(client, value, received=50_000, sent=50_000)
    shown = {"list": json.dumps(await client.ask("read", QOS, {"resource": "/reservations"}))}
    shown |= {"one": json.dumps(await client.ask("read", QOS, path))}
    await client.ask("delete", QOS, path)
    for page in [*PAGES, f"qos/reservation/{value['reservationId']}/change/"]:
        shown[page] = await page_of(browser, page)
    for path_ in ("/metrics", "/health/ready"):
        shown[path_] = await asyncio.to_thread(place.node.text, path_)
    assert value["reservationId"] in shown["qos/reservation/"]
    assert "csp1" in shown["/metrics"]
    secrets = dict(enumerate_(json.loads(place.shell(SECRETS)), "secret"))
    secrets |= {
        "credential": ice["credential"],
        "second credential": renewed["iceServers"][0]["credential"],
        "password": PASSWORD.replace(" ", "-"),
    }
    place.node.terminate()
    assert place.node.status() == 0, place.node.log()
    shown |= {"log of the server": place.turn.log(10**9)}
    faults = [fault for each in shown.items() for fault in found(secrets, *each)]
    names = []
    for name, text in kept(place.node.data_dir):
        names.append(name)
        faults += found(secrets, name, text)
    assert faults == []
    _is_recorded(sorted({name for name in names if name.endswith(".parquet")}))


def _is_recorded(paths: list[str]) -> None:
    """The record tells of the reservation, and of each byte that was relayed for it."""
    rows = [row for path in paths for row in pq.read_table(path).to_pylist() if row.get("event")]
    told = {(row["event"], row["outcome"], row["code"]) for row in rows}
    assert told >= {
        ("reserved", "video", 200), ("relayed", "video", 0), ("reservation-ended", "released", 0)
    }  # fmt: skip
    assert sum(row["size"] for row in rows if row["event"] == "relayed") == 100_000


async def page_of(browser: Any, page: str) -> str:
    try:
        text: str = await browser.get(page)
    except urllib.error.HTTPError as error:
        pytest.fail(f"{page}: {error.code}")
    return text


def enumerate_(values: list[str], name: str) -> Iterator[tuple[str, str]]:
    assert len(values) >= 2, values
    for number, value in enumerate(values):
        yield f"{name} {number}", value
