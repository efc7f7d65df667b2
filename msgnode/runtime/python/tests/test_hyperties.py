"""Hyperties that others reach: the cases that both runtimes share, and what only time shows."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any, cast

import pytest
from fake_clock import settled

from msgnode.runtime.python import AnswerError, Refusal, Runtime, Settings, Syncher
from msgnode.runtime.python.messages import Message, answer_to

STUB = "runtime://d/protostub/1"
R = "runtime://d/1"
FILE = Path(__file__).parents[2] / "js" / "tests" / "hyperties.jsonl"
CASES = [json.loads(line) for line in FILE.read_text(encoding="utf-8").splitlines()]
OPTIONS = {"dataSchemes": "data_schemes"}
FACTS = {"isHere": "is_here", "isClaimed": "is_claimed", "isRegistered": "is_registered"}


def refuse(value: Any, message: Message) -> None:
    raise Refusal(403, "Not you.")


def broken(value: Any, message: Message) -> None:
    raise RuntimeError("It broke.")


async def later(value: Any, message: Message) -> Any:
    return value


HANDLERS = {
    "echo": lambda value, message: value,
    "nothing": lambda value, message: None,
    "later": later,
    "refuse": refuse,
    "break": broken,
}


class FakeNode:
    """A node that answers 200, unless a case says otherwise; it is the way outside of the bus."""

    def __init__(self, runtime: Runtime, answers: list[Any]) -> None:
        self.sent: list[Message] = []
        self.answers = answers
        self._bus = runtime.bus
        self._bus.outside = self
        self._bus.home_stub = STUB

    def send(self, message: Message, size: int, stub: str) -> str:
        self.sent.append(message)
        if message["type"] != "response":
            body = next(
                (body for *head, body in self.answers if head == [message["type"], message["to"]]),
                {"code": 200},
            )
            self._bus.receive({**answer_to(message, 200, ""), "body": body}, STUB)
        return STUB

    def say(self, value: str) -> None:
        body = {"value": value, "resource": STUB}
        self._bus.tell({"type": "update", "from": R, "to": f"{R}/status", "body": body})


def filled(what: Any, url: str) -> Any:
    text = json.dumps(what).replace('"URL"', json.dumps(url)).replace('"R', f'"{R}')
    return json.loads(text)


def has(found: Any, wanted: dict[str, Any], where: str = "") -> None:
    """`found` has all that is `wanted`; lists are equal."""
    for key, value in wanted.items():
        if isinstance(value, dict):
            has(found[key], value, f"{where}.{key}")
        else:
            assert found[key] == value, f"{where}.{key}"


def told_of(state: dict[str, Any], found: dict[str, Any], url: str) -> None:
    """What the runtime tells of itself; of errors the reason, and words of the text."""
    wanted = json.loads(json.dumps(filled(state, url)).replace("URL", url))
    errors = wanted.pop("errors")
    has(found, wanted)
    for each, (reason, words) in zip(found["errors"], errors, strict=True):
        assert datetime.fromisoformat(each["at"]).tzinfo
        assert each["reason"] == reason
        assert words in each["text"]
    assert json.loads(json.dumps(found)) == found


def options_of(said: dict[str, Any]) -> dict[str, Any]:
    options = {OPTIONS.get(key, key): value for key, value in said.items()}
    handlers = options.get("handlers")
    if isinstance(handlers, dict):
        options["handlers"] = {
            kind: HANDLERS.get(each, each) if isinstance(each, str) else each
            for kind, each in handlers.items()
        }
    elif isinstance(handlers, str):
        options["handlers"] = HANDLERS[handlers]
    return options


async def run(case: dict[str, Any], runtime: Runtime) -> tuple[Any, Any]:
    hyperty: Any = None
    result: Any = None
    if "make" in case:
        name, options = case["make"]
        hyperty = await runtime.hyperty(name, **options_of(options))
    if "find" in case:
        result = await runtime.find(**options_of(case["find"]))
    if "do" in case:
        action, *given = case["do"]
        keywords = given.pop() if given and isinstance(given[-1], dict) else {}
        done = getattr(hyperty, action)(*given, **keywords)
        result = await done if action != "send" else done
    return hyperty, result


@pytest.mark.parametrize("case", CASES, ids=[case["case"] for case in CASES])
async def test_shared(case: dict[str, Any]) -> None:
    async with Runtime(Settings("d"), url=R, on_error=lambda _: None) as runtime:
        node = FakeNode(runtime, case.get("node", []))
        url = ""
        if "error" in case:
            name, code, *words = case["error"]
            kind: Any = {"TypeError": TypeError, "AnswerError": AnswerError}[name]
            with pytest.raises(kind) as raised:
                await run(case, runtime)
                runtime.explain(case["explain"][0])
            assert all(each in str(raised.value) for each in words), raised.value
            assert not code or raised.value.code == code
        else:
            hyperty, result = await run(case, runtime)
            url = hyperty.url if hyperty else ""
            if "result" in case:
                assert result == case["result"]
            if "explain" in case:
                address, wanted = filled(case["explain"], url)
                told = runtime.explain(address)
                assert told.why.endswith(".")
                for fact, value in wanted.items():
                    assert getattr(told, FACTS.get(fact, fact)) == value
            if "bring" in case:
                head = {"id": 7, "type": case["bring"]["type"], "from": "hyperty://f/9", "to": url}
                body = {"value": case["bring"]["value"]}
                runtime.bus.receive({**head, "body": body}, STUB)
                await settled()
                answer = node.sent[-1]
                assert [answer["id"], answer["from"], answer["to"]] == [7, url, "hyperty://f/9"]
                assert answer["body"] == case["answered"]
        await settled()
        if "state" in case:
            told_of(case["state"], runtime.state(), url or node.sent[0]["body"]["resources"][0])
        if "sent" in case:
            if not url and "resources" in node.sent[0].get("body", {}):
                url = node.sent[0]["body"]["resources"][0]
            wanted = filled(case["sent"], url)
            assert [each["type"] for each in node.sent] == [each["type"] for each in wanted]
            for number, each in enumerate(wanted):
                has(node.sent[number], each, str(number))


async def test_it_is_claimed_and_registered_again_after_a_new_session() -> None:
    async with Runtime(Settings("d"), url=R) as runtime:
        node = FakeNode(runtime, [])
        hyperty = await runtime.hyperty("echo")
        node.sent.clear()
        node.answers = [["update", "domain://registry.d", {"code": 404}]]
        node.say("gap")
        await settled()
        assert sorted(f"{each['type']} {each['to']}" for each in node.sent) == [
            "create domain://registry.d",
            "subscribe domain://msg-node.d/sm",
            "update domain://registry.d",
        ]
        assert runtime.explain(hyperty.url).is_registered


async def test_its_address_is_kept_by_its_name_and_one_that_is_held_is_not_taken() -> None:
    storage: dict[str, str] = {}
    urls = []
    for is_held in (False, False, True):
        async with Runtime(Settings("d"), url=R, storage=storage) as runtime:
            node = FakeNode(runtime, [])
            if is_held:
                refused = ["subscribe", "domain://msg-node.d/sm", {"code": 403}]
                node.answers.append(refused)
                take = node.send

                def send(message: Message, size: int, stub: str) -> str:
                    said = take(message, size, stub)  # noqa: B023
                    node.answers.clear()  # noqa: B023
                    return said

                node.send = send  # type: ignore[method-assign]
            urls.append((await runtime.hyperty("echo")).url)
    assert urls[0] == urls[1] != urls[2]


async def test_it_leaves_the_registry_with_the_runtime() -> None:
    runtime = Runtime(Settings("d"), url=R)
    node = FakeNode(runtime, [])
    await runtime.hyperty("echo")
    node.sent.clear()
    await runtime.close()
    assert [each["to"] for each in node.sent if each["type"] == "update"] == ["domain://registry.d"]


async def test_who_debugs_gets_a_line_for_each_decision(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG", "hyperty_runtime.decisions")
    async with Runtime(Settings("d"), url=R, on_error=lambda _: None) as runtime:
        FakeNode(runtime, [["read", "hyperty://d/2", {"code": 404}]])
        me = await runtime.hyperty("me", register=False)
        caplog.clear()
        with pytest.raises(AnswerError):
            await me.request("hyperty://d/2", "x", type="read")
        runtime.bus.post_message({"type": "read", "from": me.url, "to": f"{R}/nobody"})
        await settled()
        out, back, refused, *_ = [each.getMessage() for each in caplog.records]
        assert out.startswith("out node read ") and f"{me.url} -> hyperty://d/2: through" in out
        assert back.startswith("in node response 404 ")
        assert refused.startswith("-- none read ") and "404 Nobody listens" in refused
    with pytest.raises(TypeError, match="settings is a Settings"):
        Runtime("d")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="debug"):
        Runtime(Settings("d"), debug="yes")  # type: ignore[arg-type]


async def test_wrong_arguments_of_other_parts_are_named_before_anything_is_asked() -> None:
    async with Runtime(Settings("d"), url=R) as runtime:
        node = FakeNode(runtime, [])
        any_: Any = runtime
        wrong: dict[str, Callable[[], Any]] = {
            "listener is a function": lambda: any_.on_identity(7),
            "listener is a function, not 7": lambda: any_.bus.add_listener(R, 7),
            "address is a text": lambda: any_.bus.add_listener(7, print),
            "invited is a function": lambda: any_.invitations.receive(7),
            "user is bob@example.org, a user URL, or a card": lambda: any_.invitations.send(7, ""),
            "hyperty is an address": lambda: any_.invitations.send("bob@f", ""),
            "user is bob@example.org or a user URL": lambda: any_.card_of(7),
            "media_types is a list of texts": lambda: any_.qos.reserve("video"),
            "runtime is a Runtime": lambda: Syncher(any_.bus),
            "url is a text": lambda: Syncher(runtime).subscribe(cast(Any, 7)),
            "message is a dict": lambda: any_.bus.post_message(7),
            "domain is a text": lambda: Settings(cast(Any, 7)),
            "catalogues is a mapping by domain": lambda: Settings("d", catalogues=cast(Any, 7)),
            "catalogues['d'] is a text": lambda: Settings("d", catalogues=cast(Any, {"d": 7})),
            "p2p is a P2PSettings": lambda: Settings("d", p2p=cast(Any, True)),
        }
        for words, call in wrong.items():
            with pytest.raises(TypeError) as raised:
                made = call()
                await made
            assert str(raised.value).startswith(words), raised.value
        await settled()
        assert node.sent == []


async def test_what_a_hyperty_sends_that_was_closed_is_refused_at_once() -> None:
    async with Runtime(Settings("d"), url=R, on_error=lambda _: None) as runtime:
        node = FakeNode(runtime, [])
        me = await runtime.hyperty("me", register=False)
        await me.close()
        await settled()
        sent = len(node.sent)
        with pytest.raises(AnswerError, match="was closed") as raised:
            await me.request("hyperty://d/2")
        me.send("hyperty://d/2", 7)
        await settled()
        assert (raised.value.code, len(node.sent)) == (503, sent)
        assert runtime.bus.counters["undeliverable.503"] == 1
