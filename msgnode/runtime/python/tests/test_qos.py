"""runtime.qos: reservations are kept, told of and given back; and what is done without a broker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from bus_harness import Bench, R, answer, turn

from msgnode.runtime.python import qos as module
from msgnode.runtime.python.messages import Message
from msgnode.runtime.python.qos import End, Qos, QosRefused

HOME = "domain://qos.d"
pytestmark = pytest.mark.asyncio


class Broker:
    """Answers what leaves the bus, as the node's broker does."""

    def __init__(self, bench: Bench, **changes: Any) -> None:
        self.bench = bench
        self.changes = changes
        self.refuses: dict[str, tuple[int, str]] = {}
        self.seen: list[tuple[str, str, Any]] = []
        self.number = 0
        bench.out.send = self.take  # type: ignore[method-assign]

    def take(self, message: Message, size: int, stub: str) -> str:
        body, type_ = message["body"], message["type"]
        if type_ != "response":
            self.seen.append((type_, message["to"], body))
            asyncio.get_running_loop().call_soon(self.answer, message)
        else:
            self.bench.out.sent.append(message)
        return self.bench.out.stub

    def answer(self, message: Message) -> None:
        type_ = message["type"]
        if type_ in self.refuses:
            code, text = self.refuses[type_]
            body: dict[str, Any] = {"code": code, "desc": text}
        elif type_ in ("create", "update"):
            self.number += 1
            body = {"code": 200, "value": self.granted()}
        elif type_ == "read":
            body = {"code": 200, "value": {"classes": []}}
        else:
            body = {"code": 200}
        said = answer(R, message["id"], body, message["to"])
        self.bench.bus.receive(said, self.bench.out.stub)

    def granted(self) -> dict[str, Any]:
        server = {"urls": ["turn:t"], "username": "u", "credential": f"secret {self.number}"}
        return {
            **{"reservationId": "r1", "class": "video", "bitrate": 2_500_000, "seconds": 3600},
            **{"expires": "2026-11-22T17:00:00+00:00", "iceServers": [server]},
            **{"iceTransportPolicy": "relay", "state": "held", **self.changes},
        }

    def tell(self, sender: str = HOME, **body: Any) -> None:
        told = {"resource": "/reservations/r1", "attribute": "status", **body}
        message = {"id": 9, "type": "update", "from": sender, "to": R, "body": told}
        self.bench.bus.receive(message, self.bench.out.stub)

    def times(self, type_: str) -> int:
        return sum(each[0] == type_ for each in self.seen)


@pytest.fixture
def bench() -> Bench:
    return Bench()


async def until(is_so: Callable[[], object]) -> None:
    for _ in range(2_000):
        if is_so():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("It did not come about.")


async def test_a_reservation_from_its_inquiry_to_its_release(bench: Bench) -> None:
    broker, qos = Broker(bench), Qos(bench.bus, "d")
    await qos.inquire(["video"], csp_id="csp1")
    call = await qos.reserve(["audio", "video"], seconds=600, sessionId="comm://d/1")
    await call.renew()
    ends: list[End] = []
    call.on_ended(ends.append)
    await call.release()
    await call.release()
    assert call.configuration["iceTransportPolicy"] == "relay"
    assert call.configuration["iceServers"][0]["credential"] == "secret 2"
    assert "secret" not in repr(call)
    assert ends == [call.ended] == [("released", "released")]
    flows = [{"mediaType": "audio"}, {"mediaType": "video"}]
    path = {"resource": "/reservations/r1"}
    assert broker.seen == [
        (
            *("read", HOME),
            {"resource": "/resources", "criteria": {"mediaTypes": ["video"], "cspId": "csp1"}},
        ),
        (
            *("create", HOME),
            {
                "resource": "/reservations",
                "value": {"sessionId": "comm://d/1", "flows": flows, "seconds": 600},
            },
        ),
        ("update", HOME, {**path, "value": {"seconds": 600}}),
        ("delete", HOME, path),
    ]
    assert not bench.bus.has_listener(R)


async def test_it_is_renewed_for_as_long_as_it_is_wanted(bench: Bench) -> None:
    broker, qos = Broker(bench, seconds=0.05), Qos(bench.bus, "d")
    call = await qos.reserve(["video"])
    await until(lambda: broker.times("update") >= 3)
    await call.release()
    done = broker.times("update")
    await asyncio.sleep(0.1)
    assert broker.times("update") == done


async def test_one_that_is_not_to_be_kept_is_not_renewed(bench: Bench) -> None:
    broker, qos = Broker(bench, seconds=0.01), Qos(bench.bus, "d")
    await qos.reserve(["video"], keep=False)
    await asyncio.sleep(0.1)
    assert broker.times("update") == 0


async def test_a_renewal_that_fails_is_tried_again_until_the_end(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "RETRY_LEAST", 0.01)
    broker, qos = Broker(bench, seconds=0.2), Qos(bench.bus, "d")
    broker.refuses["update"] = (503, "not now")
    call = await qos.reserve(["video"])
    await until(lambda: call.ended)
    assert call.ended == ("ended", "expired")
    assert broker.times("update") > 1


async def test_one_that_the_broker_does_not_know_any_more_has_ended(bench: Bench) -> None:
    broker, qos = Broker(bench, seconds=0.02), Qos(bench.bus, "d")
    call = await qos.reserve(["video"])
    broker.refuses["update"] = (404, "The reservation r1 has ended.")
    await until(lambda: call.ended)
    assert call.ended == ("ended", "The reservation r1 has ended.")


async def test_the_broker_tells_of_the_end_and_nobody_else_does(bench: Bench) -> None:
    broker, qos = Broker(bench), Qos(bench.bus, "d")
    call = await qos.reserve(["video"])
    ends: list[End] = []
    call.on_ended(ends.append)
    broker.tell("domain://qos.f", value="exceeded", reason="exceeded")
    broker.tell("hyperty://d/x", value="exceeded", reason="exceeded")
    await turn()
    assert ends == []
    broker.tell(value="ended", reason="expired")
    broker.tell(value="lost", reason="lost")
    await turn()
    call.on_ended(ends.append)
    assert ends == [("ended", "expired")] * 2
    assert not bench.bus.has_listener(R)


async def test_another_request_to_the_runtime_itself_is_answered_404_as_without_it(
    bench: Bench,
) -> None:
    Broker(bench)
    await Qos(bench.bus, "d").reserve(["video"])
    head = {"id": 7, "from": "hyperty://f/x", "to": R}
    bench.bus.receive({**head, "type": "execute", "body": {}}, bench.out.stub)
    await until(lambda: bench.out.sent)
    assert [each["body"]["code"] for each in bench.out.sent] == [404]
    assert not bench.faults


async def test_a_refusal_says_the_brokers_code_and_words(bench: Bench) -> None:
    Broker(bench).refuses["create"] = (503, "No TURN server has room.")
    with pytest.raises(QosRefused, match="no room|has room") as caught:
        await Qos(bench.bus, "d").reserve(["video"])
    assert caught.value.code == 503


async def test_without_a_broker_connections_get_the_fallback(bench: Bench) -> None:
    broker, qos = Broker(bench), Qos(bench.bus, "d")
    stun = {"urls": ["stun:s"]}
    found = await qos.ice_servers(fallback=[stun])
    assert found.configuration["iceTransportPolicy"] == "all"
    assert found.configuration["iceServers"][1] == stun
    await found.release()
    broker.refuses["create"] = (503, "no QoS broker")
    found = await qos.ice_servers(fallback=[stun])
    assert found.configuration == {"iceServers": [stun], "iceTransportPolicy": "all"}
    assert found.error is not None and found.error.code == 503
    await found.release()
    assert bench.bus.counters["qos.none"] == 1


async def test_a_foreign_broker_is_asked_by_its_domain(bench: Bench) -> None:
    broker, qos = Broker(bench), Qos(bench.bus, "d")
    call = await qos.reserve(["video"], domain="f")
    broker.tell("domain://qos.f", value="lost", reason="lost")
    await turn()
    assert call.ended == ("lost", "lost")


async def test_closing_releases_and_waits_for_no_broker_that_is_silent(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CLOSE_SECONDS", 0.05)
    broker, qos = Broker(bench), Qos(bench.bus, "d")
    call = await qos.reserve(["video"])
    broker.answer = lambda message: None  # type: ignore[method-assign]
    await qos.close()
    assert broker.times("delete") == 1
    assert call.ended == ("ended", "closed")


async def test_what_a_listener_raises_goes_to_the_error_hook(bench: Bench) -> None:
    Broker(bench)
    call = await Qos(bench.bus, "d").reserve(["video"])
    call.on_ended(lambda end: 1 / 0)
    await call.release()
    assert [fault.reason for fault in bench.faults] == ["listener.failed"]
