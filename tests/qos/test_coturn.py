"""A node, a real coturn and Redis between them: counted to the byte, cut, killed in turn."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
import redis.asyncio

from msgnode.qos import credentials
from msgnode.qos.turn_servers import connected
from tests.client import Client, code
from tests.conftest import Come
from tests.node import Node, eventually
from tests.redis.servers import RedisServer
from tests.redis.servers import running as redis_running

from .coturn import PASSWORD, Coturn, finished, running, talk
from .test_connector import QOS, VIDEO

pytestmark = [pytest.mark.long, pytest.mark.timeout(240)]

LIMIT = 40.0
CUSTOMERS = """
Customer.objects.create(name="csp1")
"""


class Place:
    """A node with its broker on, and what stands around it."""

    def __init__(
        self, node: Node, redis: RedisServer, turn: Coturn, started_in: float = 0.0
    ) -> None:
        self.started_in = started_in  # seconds it took the node to start
        self.node = node
        self.redis = redis
        self.turn = turn

    def shell(self, program: str) -> str:
        return self.node.manage("shell", "-c", program).strip().splitlines()[-1]


@pytest.fixture
def place(tmp_path: Path, start_node: Callable[..., Node]) -> Iterator[Place]:
    with redis_running(tmp_path) as redis, running(tmp_path, redis.port) as turn:
        began = time.monotonic()
        node = start_node(QOS_BROKER="embedded", QOS_TURN_REDIS_URL=redis.url, QOS_POLL_SECONDS=1)
        found = Place(node, redis, turn, time.monotonic() - began)
        found.shell(turn.row() + CUSTOMERS + "print(1)")
        yield found


async def reserve(client: Client, customer: str = "csp1") -> dict[str, Any]:
    value = {**VIDEO["value"], "cspId": customer}  # type: ignore[dict-item]
    answer = await client.ask("create", QOS, {**VIDEO, "value": value})
    assert code(answer) == 200, answer
    found: dict[str, Any] = answer["body"]["value"]
    return found


async def until(client: Client, value: dict[str, Any], **wanted: Any) -> dict[str, Any]:
    """The reservation once its fields are these."""
    path = {"resource": f"/reservations/{value['reservationId']}"}
    async with asyncio.timeout(LIMIT):
        while True:
            shown: dict[str, Any] = (await client.ask("read", QOS, path))["body"]["value"]
            if all(shown.get(name) == wish for name, wish in wanted.items()):
                return shown
            await eventually(0.2)


async def number_running(turn: Coturn, user: str) -> int:
    async with connected(f"127.0.0.1:{turn.cli_port}", PASSWORD.replace(" ", "-")) as cli:
        return len((await cli.sessions(user)).sessions)


async def until_running(turn: Coturn, user: str, wish: Callable[[int], bool]) -> None:
    number = 0
    try:
        async with asyncio.timeout(LIMIT):
            while not wish(number := await number_running(turn, user)):
                await eventually()
    except TimeoutError:
        raise AssertionError(f"{number} are running; {turn.log()}") from None


def number_cut(turn: Coturn) -> int:
    """Sessions that were ended by force so far, by the server's own word."""
    return turn.log(10**9).count("to be forcefully canceled")


async def in_redis(place: Place) -> None:
    """The servers know the node's secret."""
    async with redis.asyncio.Redis(port=place.redis.port) as client, asyncio.timeout(LIMIT):
        while not await client.scard("turn/realm/localhost/secret"):
            await eventually()


async def wait(talking: subprocess.Popen[str]) -> Any:
    return await asyncio.to_thread(finished, talking)


async def test_cases_21_22_32_a_call_is_relayed_and_counted_to_the_byte(
    place: Place, come: Come
) -> None:
    client = await come(to=place.node)
    await in_redis(place)
    value = await reserve(client)
    (ice,) = value["iceServers"]
    assert (await wait(talk(place.turn, ice, password="another", packets=2))).received == 0
    result = await wait(talk(place.turn, ice, packets=150, size=500))
    assert (result.sent, result.received) == (300, 300), result.said[-1500:]
    shown = await until(client, value, received=150_000, sent=150_000)
    assert shown["state"] == "active"
    used = place.shell(
        "from msgnode.qos.models import *; u = Usage.objects.get(); "
        "print(u.received, u.sent, u.customer.used, u.is_incomplete, "
        "Reservation.objects.get().is_incomplete)"
    )
    assert used == "150000 150000 300000 False False"
    _shows_nowhere(place, ice["credential"])


def _shows_nowhere(place: Place, credential: str) -> None:
    """Case 41, with coturn's own log."""
    files = [each.read_bytes() for each in place.node.data_dir.rglob("*") if each.is_file()]
    for text in (credential, json.dumps(credential), PASSWORD.replace(" ", "-")):
        assert not any(text.encode() in each for each in files)
        assert text not in place.turn.log()


async def test_case_28_a_release_cuts_what_runs_and_a_credential_of_before_is_of_no_use(
    place: Place, come: Come
) -> None:
    client = await come(to=place.node)
    await in_redis(place)
    value = await reserve(client)
    (ice,) = value["iceServers"]
    talking = talk(place.turn, ice, packets=3000)
    await until_running(place.turn, ice["username"], lambda number: number > 0)
    await until(client, value, state="active")
    path = {"resource": f"/reservations/{value['reservationId']}"}
    assert code(await client.ask("delete", QOS, path)) == 200
    told = await client.expect(type="update", sender=QOS)
    assert told["body"]["value"] == "released"
    await until_running(place.turn, ice["username"], lambda number: number == 0)
    talking.kill()
    talking.communicate()
    before = number_cut(place.turn)
    again = talk(place.turn, ice, packets=3000)
    async with asyncio.timeout(LIMIT):
        while number_cut(place.turn) == before:  # its sessions may be gone before anybody looks
            await eventually()
    await until_running(place.turn, ice["username"], lambda number: number == 0)
    again.kill()
    again.communicate()


async def test_case_23_a_rotated_secret_breaks_nothing(place: Place, come: Come) -> None:
    client = await come(to=place.node)
    await in_redis(place)
    (before,) = (await reserve(client))["iceServers"]
    place.node.manage("turn_secret", "--rotate")
    (after,) = (await reserve(client))["iceServers"]
    for ice in (before, after):
        assert (await wait(talk(place.turn, ice, packets=5))).received > 0


def packets_for(seconds: float, starts_of_a_node: float) -> int:
    """Of a call that lasts so long, and several times as long as a node takes to start here."""
    return round(50 * (seconds + 5 * starts_of_a_node))


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
async def test_case_35_a_server_that_is_killed_or_frozen_is_down_and_comes_back(
    place: Place, come: Come, how: signal.Signals
) -> None:
    client = await come(to=place.node)
    await in_redis(place)
    value = await reserve(client)
    place.turn.send(how)
    told = await client.expect(type="update", sender=QOS)
    assert told["body"]["value"] == "lost"
    assert code(await client.ask("create", QOS, VIDEO)) == 503
    alarm = "from msgnode.models import Alarm; print(list(Alarm.objects.filter(kind='turn-down', "
    assert place.shell(f"{alarm}cleared_at=None).values_list('subject', flat=True)))") == (
        f"['t{place.turn.port}']"
    )
    if how is signal.SIGSTOP:
        place.turn.send(signal.SIGCONT)
    else:
        place.turn.kill()
        place.turn.start()
    async with asyncio.timeout(LIMIT):
        while code(await client.ask("create", QOS, VIDEO)) != 200:
            await eventually(0.2)
    assert (await until(client, value, state="ended"))["reason"] == "lost"


async def test_cases_33_and_34_redis_or_the_node_away_cuts_no_call_and_counts_none_twice(
    place: Place, come: Come
) -> None:
    client = await come(to=place.node)
    await in_redis(place)
    value = await reserve(client)
    (ice,) = value["iceServers"]
    packets = packets_for(6, place.started_in)
    talking = talk(place.turn, ice, packets=packets, size=500)
    await until(client, value, state="active")
    place.redis.stop()
    await asyncio.to_thread(place.redis.start)
    await in_redis(place)
    assert code(await client.ask("read", QOS, {"resource": "/resources"})) == 200
    assert talking.poll() is None, "the call was to outlast Redis"
    result = await wait(talking)
    assert (result.sent, result.received) == (2 * packets, 2 * packets), result.said[-1500:]
    shown = await until(client, value, state="active")
    one_way = packets * 500
    assert (shown["received"], shown["sent"]) in {(n * one_way, n * one_way) for n in (0, 1, 2)}


async def test_case_43_the_configuration_that_is_shipped_denies_private_peers(
    tmp_path: Path,
) -> None:
    with (
        redis_running(tmp_path) as store,
        running(tmp_path, store.port, relays_here=False) as turn,
        redis.Redis(port=store.port) as client,
    ):
        client.sadd("turn/realm/localhost/secret", "s3cret")
        credential = credentials.make("s3cret", credentials.new_id(), int(time.time()) + 3600)
        ice = {"username": credential.username, "credential": credential.password}
        for peer in ("169.254.169.254", "10.0.0.1", "127.0.0.1", "192.168.1.1"):
            said = (await wait(talk(turn, ice, packets=1, peer=peer))).said
            assert "403" in said or "orbidden" in said, f"{peer}: {said[-1500:]}"


async def test_cases_26_and_27_the_second_lock_refuses_and_polices(tmp_path: Path) -> None:
    with (
        redis_running(tmp_path) as store,
        running(tmp_path, store.port, max_bps=3000, bps_capacity=9000) as turn,
        redis.Redis(port=store.port) as client,
    ):
        client.sadd("turn/realm/localhost/secret", "s3cret")
        credential = credentials.make("s3cret", credentials.new_id(), int(time.time()) + 3600)
        ice = {"username": credential.username, "credential": credential.password}
        talking = talk(turn, ice, packets=200, size=500)
        await until_running(turn, ice["username"], lambda number: number >= 2)
        refused = (await wait(talk(turn, ice, packets=2))).said
        assert "486" in refused or "uota" in refused, refused[-1500:]
        assert (await wait(talking)).received < 200  # of 400, at 25 kB/s each
