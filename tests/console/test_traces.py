"""Traces on real nodes: shown in the console, across workers, and sent to a collector by OTLP."""

from __future__ import annotations

import asyncio
import json
import re
import threading
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests import waiting
from tests.client import Client
from tests.console.browser import Browser, log_in
from tests.console.test_live_socket import LIMIT, until, watching
from tests.node import Node
from tests.services import redis_server

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SAMPLED = f"00-{TRACE}-{SPAN}-01"


def place(**filter_: str) -> str:
    return f"traces/?{urllib.parse.urlencode(filter_)}"


async def test_a_message_and_its_response_are_followed_on_the_page(
    console: tuple[Node, Browser],
) -> None:
    node, browser = console
    async with node.ws() as alice, node.ws() as bob:
        await alice.open()
        await bob.open()
        id_ = await browser.key("session", alice.runtime_url)
        page = await browser.get(f"msgnode/session/{id_}/change/")
        link = re.search(r"/admin/traces/\?session=(\w+)", page)
        assert link
        async with watching(node, browser, place(session=link[1])) as socket:
            await until(socket, lambda told: "traces" in told)
            await asked_and_answered(alice, bob)
            seen = await parts_of(socket, 2)
        async with watching(node, browser, place(trace=seen[0]["trace"])) as socket:
            await until(socket, lambda told: "traces" in told)
            await socket.send('{"length":"traces"}')
            kept = await until(socket, lambda told: told["type"] == "history")
            assert len(kept["points"]) == 2
    request, response = seen
    assert request["trace"] == response["trace"]
    steps = [span["name"] for span in request["spans"]]
    assert steps == ["read", "admission", "policies in", "route", "policies out", "deliver"]
    assert response["why"] == "response"
    assert request["session"] and request["outcome"] == "delivered"


async def test_the_page_is_for_who_may_see_sessions(console: tuple[Node, Browser]) -> None:
    page = await console[1].get("traces/?type=read&address=comm%3A%2F%2Fa")
    assert "/admin/live/traces/?address=comm%3A%2F%2Fa&amp;type=read" in page
    assert "traces.js" in page


async def test_the_list_of_sessions_has_rates_and_is_sorted_by_them(
    console: tuple[Node, Browser],
) -> None:
    node, browser = console
    async with node.ws() as quiet, node.ws() as busy:
        await quiet.open()
        await busy.open()
        await browser.get("msgnode/session/?o=5")  # from here on, rates are known
        for _ in range(20):
            await busy.ask("read", "domain://registry.localhost/")
        page = await browser.get("msgnode/session/?o=5")
        assert page.index(busy.runtime_url) < page.index(quiet.runtime_url)
        assert "KB" in bytes_of(page, busy)
        plain = await browser.get(f"msgnode/session/?q={quiet.runtime_url}")
        assert "KB" not in bytes_of(plain, quiet) and "bytes" in bytes_of(plain, quiet)


@pytest.mark.long
async def test_a_trace_goes_on_at_another_worker_and_back(start_node: Any) -> None:
    with redis_server() as url:
        first = start_node(REDIS_URL=url, WORKER_TIMEOUT=8)
        database = f"sqlite:///{first.data_dir}/node.sqlite3"
        second = start_node(DATABASE_URL=database, REDIS_URL=url, WORKER_TIMEOUT=8)
        browser = await asyncio.to_thread(log_in, first)
        async with first.ws() as alice, second.ws() as bob:
            await alice.open()
            await bob.open()
            async with watching(first, browser, place(session=alice.runtime_url)) as socket:
                await until(socket, lambda told: "traces" in told)
                await asked_and_answered(alice, bob)
                seen = await parts_of(socket, 4)
            busiest = await browser.get("msgnode/session/?o=5")
            assert bytes_of(busiest, alice) != "–" and bytes_of(busiest, bob) != "–"
    assert len({part["trace"] for part in seen}) == 1
    by_why: dict[tuple[str, str], dict[str, Any]] = {
        (part["type"], part["why"]): part for part in seen
    }
    asked, there = by_why["read", "watched"], by_why["read", "link"]
    assert asked["worker"].endswith(f":{first.pid}") and there["worker"].endswith(f":{second.pid}")
    deliver = next(span for span in asked["spans"] if span["name"] == "deliver")
    assert there["parent"] == deliver["id"]
    answered = by_why["response", "response"]
    assert answered["worker"] == there["worker"]
    assert answered["parent"] == there["spans"][0]["id"]
    assert by_why["response", "link"]["worker"] == asked["worker"]


@pytest.mark.long
async def test_spans_reach_a_collector_and_one_that_is_away_costs_only_spans(
    start_node: Any,
) -> None:
    with collector() as (url, received):
        node = start_node(OTEL_EXPORTER_OTLP_ENDPOINT=url, OTEL_BSP_SCHEDULE_DELAY=200)
        async with node.ws() as alice, node.ws() as bob:
            await alice.open()
            await bob.open()
            await asked_and_answered(alice, bob, traceparent=SAMPLED)
            await asyncio.to_thread(waiting.until, lambda: request_in(received), LIMIT)
        assert {each.trace_id.hex() for each in spans_in(received)} == {TRACE}
        (resource,) = {
            (attribute.key, attribute.value.string_value)
            for batch in received
            for each in batch.resource_spans
            for attribute in each.resource.attributes
            if attribute.key == "service.name"
        }
        assert resource == ("service.name", "messaging-node")
    async with node.ws() as alice, node.ws() as bob:  # the collector has gone
        await alice.open()
        await bob.open()
        await asked_and_answered(alice, bob, traceparent=SAMPLED)
    assert node.is_running(), node.log()


def bytes_of(page: str, client: Client) -> str:
    """What the list of sessions says of a session's bytes."""
    found = re.search(
        rf"{client.runtime_url}<.*?field-volume[^>]*>\s*([^<]*?)\s*<", page, re.DOTALL
    )
    assert found, page
    return found[1]


async def asked_and_answered(alice: Client, bob: Client, **beside: str) -> None:
    """A request of one runtime to another, and its response; neither is told of a trace."""
    await alice.send("read", bob.runtime_url, **beside)
    asked = await bob.expect(type="read")
    assert asked.get("traceparent") == beside.get("traceparent")
    assert set(asked["body"]) <= {"auth"}
    await bob.send("response", alice.runtime_url, {"code": 200}, id=asked["id"])
    assert (await alice.answer(asked["id"]))["body"]["code"] == 200


async def parts_of(socket: Any, number: int) -> list[dict[str, Any]]:
    """So many parts as the page is told them."""
    seen: list[dict[str, Any]] = []

    def has_all(told: dict[str, Any]) -> bool:
        seen.extend(told.get("traces", ()))
        return len(seen) >= number

    await until(socket, has_all)
    assert len(seen) == number, json.dumps(seen, indent=1)
    return seen


@contextmanager
def collector() -> Iterator[tuple[str, list[ExportTraceServiceRequest]]]:
    """What takes OTLP over HTTP, and what it has been sent."""
    received: list[ExportTraceServiceRequest] = []

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:  # noqa: N802 (http.server)
            body = self.rfile.read(int(self.headers["Content-Length"]))
            assert self.path == "/v1/traces"
            received.append(ExportTraceServiceRequest.FromString(body))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Receiver) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", received
        finally:
            server.shutdown()
            thread.join()


def request_in(received: list[ExportTraceServiceRequest]) -> bool:
    """Whether all spans of the request have come: they are sent in several parts."""
    spans = spans_in(received)
    request = next((each for each in spans if each.parent_span_id.hex() == SPAN), None)
    if request is None:
        return False
    assert request.name.startswith("read ")
    children = {each.name for each in spans if each.parent_span_id == request.span_id}
    return {"admission", "policies in", "deliver"} <= children


def spans_in(received: list[ExportTraceServiceRequest]) -> list[Any]:
    return [
        span
        for batch in received
        for each in batch.resource_spans
        for scope in each.scope_spans
        for span in scope.spans
    ]
