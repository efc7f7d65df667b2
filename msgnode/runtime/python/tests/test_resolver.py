"""Resolving and loading: the cases that both languages share, and what is Python's alone.

js/tests/resolver-cases.jsonl has the cases, js/tests/resolver.test.mjs plays them, too. Catalogues
are asked over HTTP. The stubs of the shared cases run in this process; those of the others run in
sandboxes.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import pytest
from fake_clock import FakeClock, settled
from shared_cases import cases, like
from world import A, FakeCatalogue, Puppet, R, World, descriptor

from msgnode.runtime.python import Runtime
from msgnode.runtime.python import catalogue as catalogue_module
from msgnode.runtime.python import loader as loader_module
from msgnode.runtime.python.destinations import destination
from msgnode.runtime.python.fetch import Answer, fetch
from msgnode.runtime.python.loader import LoadError
from msgnode.runtime.python.messages import Message
from msgnode.runtime.python.minibus import MiniBus
from msgnode.runtime.python.settings import Limits, Settings
from msgnode.runtime.python.stub_module import start_stub

STUB = """
from world import A, FakeCatalogue, Puppet, R, World, descriptor

def activate(url, bus, config):
    return {"name": "stub", "instance": Puppet(url, bus, config)}
"""
SILENT = """
class default:
    def _start(self, url, bus, config, factory):
        def answer(message):
            head = {"id": message["id"], "type": "response", "from": message["to"]}
            bus.post_message({**head, "to": message["from"], "body": {"code": 200}})

        bus.add_listener("*", answer)
"""
CLASS = f"""{STUB}
class Echo:
    def _start(self, url, bus, config, factory):
        activate(url, bus, config)

    connect = disconnect = lambda self, *_: None
"""
SOURCES = {
    "stub": STUB,
    "default": f"{STUB}\nclass default:\n    activate = staticmethod(activate)\n\ndel activate\n",
    "class": CLASS.replace("activate", "begin"),
    "silent": SILENT,
    "slow": STUB.replace("Puppet", "SlowPuppet"),
    "nothing": "nothing = 1\n",
    "no script": "this is no script\n",
    "throws": "raise RuntimeError('no')\n",
}


class HereStub(loader_module.OwnStub):
    """A stub in this process, whose ever it is."""

    starting = 0  # how many are about to

    async def connect(self, identity: Any = None) -> None:
        await self.instance.connect(identity)

    async def stop(self) -> None:
        if not self.is_ended:
            await self.instance.disconnect()
            await settled()  # it says so
        self.is_ended = True

    def kill(self, reason: str) -> None:
        self.is_ended = True


async def start_here(
    _: Any, url: str, read: Any, source: str, config: dict[str, Any], on_message: Any, on_end: Any
) -> HereStub:
    """As Loader._sandboxed, without the sandbox."""
    stub: HereStub | None = None

    def take(message: Message) -> None:
        if stub is None or not stub.is_ended:
            on_message(message)

    bus = MiniBus(take)
    HereStub.starting += 1
    try:
        instance = start_stub(source, read.class_name, url, bus, config)
        await settled()  # what it says of itself comes before it has started
    except Exception as error:
        raise LoadError(502, f"The stub of {read.domain} does not start: {error}") from error
    finally:
        HereStub.starting -= 1
    stub = HereStub(url, bus, instance)
    return stub


class Play:
    """The steps of a case: a runtime of the domain d, catalogues, and stubs in this process."""

    def __init__(self, catalogue: FakeCatalogue, given: dict[str, Any]) -> None:
        self._catalogue = catalogue
        self._fetching: list[str] = []  # domains
        self._clock = FakeClock(self._is_fetching)
        domains = ("d", "f", "g", "sip.legacy.example")
        given = {
            "catalogues": {each: f"{catalogue.url}/{each}" for each in domains}
            | given.get("catalogues", {}),
            "routing": given.get("routing", {}),
            "hosts": {name: tuple(each) for name, each in given.get("hosts", {}).items()},
            "digests": {name: (each,) for name, each in given.get("digests", {}).items()},
            "interworking": frozenset(each.split(".")[0] for each in given.get("interworking", [])),
            "stub_config": given.get("stubConfig", {}),
        }
        self._settings = Settings("d", **given)
        self._runtime = Runtime(self._settings, R)
        self._stubs = self._runtime.resolver.stubs
        self._answers: list[Message] = []
        self._heard: list[Message] = []
        self._told: list[Message] = []
        self._asked = 0
        self._runtime.bus.add_listener(f"{R}/status", self._told.append)
        Puppet.started, Puppet.way, HereStub.starting = [], "", 0

    async def fetch(self, url: str, *limits: Any, **more: Any) -> Answer:
        """The loader's, which asks in a thread of its own."""
        domain = f"{urlsplit(url).path}/".split("/")[1]
        self._fetching.append(domain)
        try:
            return await fetch(url, *limits, **more)
        finally:
            self._fetching.remove(domain)

    def _is_fetching(self) -> bool:
        """Whether an answer of a catalogue is under way, which is not held back."""
        held = self._catalogue.held
        return any(each not in held or held[each].is_set() for each in self._fetching)

    async def steps(self, steps: list[list[Any]]) -> None:
        for act, *words in steps:
            done = getattr(self, f"do_{act.replace(' ', '_')}")(*words)
            if done is not None:
                await done

    async def _until(self, holds: Callable[[], object], what: str = "") -> None:
        """Wait for something, in real time: the catalogue is a server, and the clock stands."""
        end = time.monotonic() + 20
        while not holds():
            assert time.monotonic() < end, what or "it did not come about"
            await asyncio.to_thread(time.sleep, 0.002)
        await settled()

    async def _stub(self, name: str) -> Puppet:
        """`f 2` is the second stub of f that has started; it is waited for."""
        domain, _, number = name.partition(" ")

        def found() -> list[Puppet]:
            start = f"runtime://{domain}/"
            return [each for each in Puppet.started if each.url.startswith(start)]

        def is_there() -> bool:
            return not HereStub.starting and len(found()) >= int(number or 1)

        await self._until(is_there, f"no stub {name}")
        return found()[int(number or 1) - 1]

    # --- what happens -----------------------------------------------------------------------------

    do_settle = staticmethod(settled)

    async def do_turn(self, seconds: float) -> None:
        await self._clock.turn(seconds)

    def do_stubs(self, way: str) -> None:
        Puppet.way = way

    def do_serve(
        self, domain: str, changes: dict[str, Any] | None = None, at: str | None = None
    ) -> None:
        changed = dict(changes or {})
        entry = descriptor(SOURCES[changed.pop("source", "stub")])
        package = changed.pop("sourcePackage", {})
        if package is None:
            entry["sourcePackage"] = {}
        else:
            entry["sourcePackage"] |= package
        entry |= {"version": "1.0", **changed}
        name = domain if at else "default"
        self._catalogue.serve(entry, at or domain, name)
        self.do_version(domain, entry["version"])

    def do_beside(self, domain: str) -> None:
        path = f"/{domain}/files/stub"
        entry = descriptor(STUB, sourcePackage=None, sourcePackageURL=path)
        self._catalogue.serve(entry, domain)
        self._catalogue.entries[path] = (200, {}, STUB.encode())

    def do_version(self, domain: str, text: str) -> None:
        self._catalogue.serve((200, {}, text.encode()), domain, "default/version")

    def do_redirect(self, domain: str) -> None:
        self._catalogue.serve((302, {"Location": "http://localhost:1/x"}, b""), domain)

    def do_hold(self, domain: str) -> None:
        self._catalogue.held[domain] = asyncio.Event()

    def do_let_go(self) -> None:
        for each in self._catalogue.held.values():
            each.set()

    def _post(self, kind: str, sender: str, to: str, body: dict[str, Any]) -> None:
        message = {"type": kind, "from": sender, "to": to, "body": body}
        self._runtime.bus.post_message(message, self._answers.append)

    def do_send(self, to: str, count: int) -> None:
        for number in range(count):
            self._post("create", A, to.replace("%", str(number % 3)), {"n": number})

    def do_hold_address(self, address: str) -> None:
        self._post("subscribe", f"{R}/sm", "domain://msg-node.f/sm", {"resources": [address]})

    def do_give_back(self, address: str) -> None:
        self._post("unsubscribe", f"{R}/sm", "domain://msg-node.f/sm", {"resources": [address]})

    async def do_say(self, stub: str, *words: str) -> None:
        (await self._stub(stub)).say(*words)
        await settled()

    async def do_bring(self, stub: str, message: Message) -> None:
        (await self._stub(stub)).bus.post_message({"id": 5, "body": {}, **message})
        await settled()

    async def do_says_of(self, stub: str, sender: str, other: str, value: str) -> None:
        status = f"{(await self._stub(other)).url}/status"
        head = {"type": "update", "from": (await self._stub(sender)).url, "to": status}
        await self.do_bring(stub, {**head, "body": {"value": value}})

    def do_listen(self, address: str) -> None:
        self._runtime.bus.add_listener(address, self._heard.append)

    async def do_original(self, stub: str) -> None:
        self.do_listen(f"{(await self._stub(stub)).url}/status")

    def do_answers(self, address: str, *codes: int) -> None:
        def answer(message: Message) -> None:
            head = {"id": message["id"], "type": "response", "from": message["to"]}
            for code in codes:
                body = {"code": code}
                self._runtime.bus.post_message({**head, "to": message["from"], "body": body})

        self._runtime.bus.add_listener(address, answer)

    async def do_log_in(self, identity: dict[str, Any]) -> None:
        await self._in_time(self._runtime.log_in(identity))

    async def _in_time(self, work: Any) -> Any:
        task = asyncio.ensure_future(work)
        await self._until(task.done)
        return task.result()

    def do_require(self, domain: str) -> None:
        self._runtime.resolver.require(domain)

    async def do_close(self) -> None:
        closing = asyncio.ensure_future(self._runtime.close())
        await self._clock.turn(10.0)
        await self._in_time(closing)

    # --- what is so -------------------------------------------------------------------------------

    async def do_ask(self, to: str, code: int, word: str = "", size: int = 0) -> None:
        asked = {"type": "create", "from": A, "to": to, "body": {"text": "x" * size}}
        body = (await self._in_time(self._runtime.bus.request(asked, 60.0)))["body"]
        assert body["code"] == code and word in body["desc"], body

    async def do_asks(self, asked: tuple[str, int]) -> None:
        await self.do_ask(*asked)

    async def do_answered(self, count: int, code: int) -> None:
        await self.do_last_answer(count, code)
        assert [each["body"]["code"] for each in self._answers] == [code] * count

    async def do_last_answer(self, count: int, code: int, word: str = "") -> None:
        await self._until(lambda: len(self._answers) >= count, f"{count} answers")
        body = self._answers[-1]["body"]
        assert body["code"] == code and word in body.get("desc", ""), body

    async def do_handed(self, name: str, *expected: Any) -> None:
        """What a stub was given since it was last looked at: all of it, by number, [address,
        number] or fields."""
        stub = await self._stub(name)
        read = stub.read
        await self._until(lambda: len(stub.sent) >= read + len(expected), f"no more for {name}")
        found: list[Any] = []
        for message, wanted in zip(stub.sent[read:], (*expected, *[0] * 1000), strict=False):
            by_number = message["body"].get("n")
            found.append(like(wanted, message) if isinstance(wanted, dict) else by_number)
            if isinstance(wanted, list):
                found[-1] = [message["to"], by_number]
        assert found == [*expected]
        stub.read = len(stub.sent)

    async def do_busy(self, name: str) -> None:
        stub = await self._stub(name)
        await self._until(lambda: stub.sent)

    async def do_calls(self, name: str, *expected: list[Any]) -> None:
        stub = await self._stub(name)
        await self._until(lambda: len(stub.calls) >= len(expected), f"{name} is not called")
        assert stub.calls == [*expected]

    def do_loops(self, count: int) -> None:
        """How often a stub was handed a request that it brings back."""
        assert [each["type"] for each in Puppet.started[0].sent].count("create") == count

    async def do_config(self, name: str, expected: dict[str, Any]) -> None:
        assert like(expected, (await self._stub(name)).config) == expected

    async def do_url(self, name: str, pattern: str) -> None:
        assert re.search(pattern, (await self._stub(name)).url)

    async def do_started(self, count: int) -> None:
        await self._until(lambda: len(Puppet.started) >= count, f"{count} stubs")
        assert len(Puppet.started) == count

    async def do_status(self, key: str, expected: str) -> None:
        def holds() -> bool:
            entry = self._stubs.get(key)
            return (entry.status if entry else "") == expected

        await self._until(holds, f"{key} is not {expected}")

    def do_status_not(self, key: str, other: str) -> None:
        entry = self._stubs.get(key)
        assert entry is not None and entry.status != other

    def do_failures(self, key: str, count: int) -> None:
        entry = self._stubs.get(key)
        assert entry is not None and entry.failures == count

    async def do_becomes(self, name: str, becomes: tuple[str, str]) -> None:
        await self.do_say(name, becomes[0])
        await self.do_status(name, becomes[1])

    async def do_told(self, name: str, *expected: str) -> None:
        url = (await self._stub(name)).url
        told = [each for each in self._told if each["body"].get("resource") == url]
        assert [(each["from"], each["body"]["value"]) for each in told] == [
            (R, value) for value in expected
        ]

    def do_heard(self, *expected: dict[str, Any]) -> None:
        pairs = zip(expected, self._heard, strict=True)
        assert [like(*pair) for pair in pairs] == [*expected]

    def do_counted(self, name: str, count: int) -> None:
        assert self._runtime.bus.counters[name] == count

    def do_asked(self, count: int | None = None) -> None:
        """How many requests the catalogues had since they were last looked at."""
        asked = self._catalogue.asked
        if count is not None:
            assert len(asked) - self._asked == count, asked
        self._asked = len(asked)

    def do_found(self, domain: str, name: str) -> None:
        """What was asked last: by this name, at this domain."""
        _, at, *_, last = self._catalogue.asked[-1].split("/")
        assert (at, last) == (domain, name)

    async def do_looked(self) -> None:
        def looks() -> list[str]:
            asked = self._catalogue.asked[self._asked :]
            return [each for each in asked if not each.endswith("/version")]

        await self._until(looks, "no look at the descriptor")

    def do_reaches(self, expected: str, to: str) -> None:
        where = destination(to, self._settings)
        found = f"idp {where.domain}" if where.kind == "idp-proxy" else where.key
        assert found == expected, to

    async def do_retried(self, *waits: float) -> None:
        """Loads that fail are asked for again after these waits, and not before."""
        for wait in waits:
            self.do_asked()
            await self.do_ask("hyperty://f/x", 404)
            assert len(self._catalogue.asked) > self._asked, f"after {wait} s"
            self.do_asked()
            await self.do_turn(wait - 0.5)
            await self.do_ask("hyperty://f/x", 404)
            self.do_asked(0)
            await self.do_turn(0.5)


@pytest.mark.parametrize("case", cases("resolver"))
async def test_the_resolver(
    catalogue: FakeCatalogue, case: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loader_module.Loader, "_sandboxed", start_here)
    play = Play(catalogue, case.get("with", {}))
    monkeypatch.setattr(catalogue_module, "fetch", play.fetch)
    await play.steps(case["steps"])
    await play.do_close()


# --- what is Python's alone, with stubs in sandboxes ----------------------------------------------


async def test_the_first_message_loads_a_stub_into_a_sandbox(
    catalogue: FakeCatalogue,
) -> None:
    catalogue.serve(descriptor())
    async with World(catalogue) as world:
        assert await world.ask(value="hello") == {"code": 200, "value": "hello", "via": world.url()}
        assert catalogue.asked == ["POST /f/.well-known/protocolstub/default"]
        words = world.words()
        assert words.index("deploying") < words.index("created") < words.index("live")
        assert await world.ask(value="again")
        assert catalogue.asked == ["POST /f/.well-known/protocolstub/default"]


async def test_a_catalogue_that_hangs_delays_no_other_domain(catalogue: FakeCatalogue) -> None:
    async with FakeCatalogue() as other:
        other.hangs = True
        catalogue.serve(descriptor(), "g")
        catalogues = {f"h{n}": f"{other.url}/h{n}" for n in range(20)}
        catalogues |= {"g": f"{catalogue.url}/g", "d": f"{catalogue.url}/d"}
        async with World(catalogue, catalogues=catalogues, fetch=5.0) as world:
            for number in range(20):
                to = f"hyperty://h{number}/x"
                world.bus.post_message({"type": "create", "from": A, "to": to})
            async with asyncio.timeout(4):
                assert (await world.ask("hyperty://g/x"))["code"] == 200


async def test_r46_domains_with_alike_names_have_sandboxes_of_their_own(
    catalogue: FakeCatalogue,
) -> None:
    catalogue.serve(descriptor(), "a.f")
    catalogue.serve(descriptor(), "aa.f")
    async with World(catalogue) as world:
        await asyncio.gather(world.ask("hyperty://a.f/x"), world.ask("hyperty://aa.f/x"))
        assert len({sandbox.pid for sandbox in world.resolver.loader.sandboxes}) == 2


async def test_more_stubs_than_allowed_are_refused(catalogue: FakeCatalogue) -> None:
    catalogue.serve(descriptor())
    catalogue.serve(descriptor(), "g")
    async with World(catalogue, limits=Limits(sandboxes=1)) as world:
        assert (await world.ask())["code"] == 200
        assert (await world.ask("hyperty://g/x"))["code"] == 503
