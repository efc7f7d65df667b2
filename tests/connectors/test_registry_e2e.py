"""Both registries over real sockets: messages, REST, notifications, and a node that uses another's.

Cases 19-30 and 42 of docs/reference/registry.md; each test runs against the embedded registry,
against a node whose registries are that of another node, over HTTP, and against one where scripts
of examples/connectors stand before that node.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import re
import shutil
import uuid
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from msgnode.sandbox.process import find_deno
from tests import waiting
from tests.client import Client, Frame, address, code, runtime
from tests.node import ROOT, Node, running
from tests.registry.test_global import GUID, jwt

REGISTRY = "domain://registry.localhost"
GLOBAL = "global://registry"
RECORD = jwt(lastUpdate="2026-01-01T00:00:00Z")

Come = Callable[..., Awaitable[Client]]


@pytest.fixture(scope="module")
def relay(tmp_path_factory: pytest.TempPathFactory, template: Path, node: Node) -> Iterator[Node]:
    """A node that keeps no registry of its own."""
    base = f"http://127.0.0.1:{node.port}"
    with running(
        tmp_path_factory.mktemp("relay"),
        template,
        DOMAIN_REGISTRY_URL=f"{base}/domain-registry",
        GLOBAL_REGISTRY_URL=f"{base}/global-registry",
        REGISTRY_CLOSE_GRACE=0,
    ) as other:
        yield other


@pytest.fixture(scope="module")
def scripted(
    tmp_path_factory: pytest.TempPathFactory, template: Path, node: Node
) -> Iterator[Node]:
    """A node whose registries are scripts."""
    if not find_deno():
        pytest.skip("Deno is not installed")
    place = Node(tmp_path_factory.mktemp("scripted"), REGISTRY_CLOSE_GRACE=0)
    shutil.copy(template, place.data_dir / "node.sqlite3")
    give_scripts(f"http://127.0.0.1:{node.port}", place)
    try:
        yield place.start()
    finally:
        place.kill()


def give_scripts(base: str, node: Node) -> None:
    for port in ("domain-registry", "global-registry"):
        script = str(ROOT / "examples" / "connectors" / f"{port}.js")
        config = json.dumps({"base": f"{base}/{port}"})
        words = ("--script", script, "--config", config, "--origins", base)
        node.manage("connectors", "add", port, *words)
        node.manage("connectors", "approve", port)


@pytest.fixture(params=["embedded", "remote", "script"])
async def arrive(request: pytest.FixtureRequest, come: Come) -> Callable[[], Awaitable[Client]]:
    places = {"remote": "relay", "script": "scripted"}
    place = request.getfixturevalue(places[request.param]) if request.param in places else None

    async def bring() -> Client:
        return await come(to=place)

    return bring


class Person:
    """A runtime with a hyperty and a data object of names nobody else uses."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.mail = f"{uuid.uuid4().hex}+x@d.example"
        self.hyperty = address()
        self.object = address("connection")
        self.name = f"chat {uuid.uuid4()}"
        self.guid = f"user-guid://{uuid.uuid4().hex}"

    async def ask(self, type_: str, to: str = REGISTRY, **body: Any) -> Frame:
        answer = await self.client.ask(type_, to, body)
        assert answer["from"] == to
        return answer["body"]

    async def register(self, **other: Any) -> Frame:
        value = {
            "user": f"user://d.example/{self.mail}",
            "url": self.hyperty,
            "descriptor": "hyperty-catalogue://localhost/.well-known/hyperty/Chat",
            "expires": 3600,
            "resources": ["chat"],
            "dataSchemes": ["comm"],
            "runtime": self.client.runtime_url,
            "status": "live",
            "guid": self.guid,
        } | other
        return await self.ask("create", value=value)

    async def report(self, **other: Any) -> Frame:
        value = {
            "url": self.object,
            "name": self.name,
            "schema": "hyperty-catalogue://localhost/.well-known/dataschema/Connection",
            "reporter": self.hyperty,
            "expires": 3600,
            "resources": ["chat"],
            "dataSchemes": ["connection"],
            "runtime": self.client.runtime_url,
            "status": "live",
        } | other
        return await self.ask("create", value=value)


@pytest.fixture
async def alice(arrive: Callable[[], Awaitable[Client]]) -> Person:
    return Person(await arrive())


@pytest.fixture
async def bob(arrive: Callable[[], Awaitable[Client]]) -> Person:
    return Person(await arrive())


async def test_case_19_a_hyperty_is_found_by_every_key(alice: Person) -> None:
    assert await alice.register() == {"code": 200}
    one = (await alice.ask("read", resource=alice.hyperty))["value"]
    assert (one["hypertyID"], one["guid"]) == (alice.hyperty, alice.guid)
    for resource in (
        f"user://d.example/{alice.mail}",
        f"/hyperty/user/user://d.example/{alice.mail}",
        f"/hyperty/idp-identifier/{alice.mail}",
        alice.guid,
    ):
        assert await alice.ask("read", resource=resource) == {
            "code": 200,
            "value": {alice.hyperty: one},
        }
    criteria = {"resources": ["chat"], "dataSchemes": ["comm"]}
    mail = f"/hyperty/idp-identifier/{alice.mail}"
    assert (await alice.ask("read", resource=mail, criteria=criteria))["code"] == 200
    nothing = await alice.ask("read", resource=mail, criteria={"resources": ["voice"]})
    assert nothing == {"code": 404, "desc": "Not Found", "description": "Not Found"}


async def test_case_19_data_objects_are_found_by_every_key(alice: Person) -> None:
    await alice.register()
    assert await alice.report() == {"code": 200}
    for resource, criteria in (
        (alice.name, {}),
        (alice.name, {"resources": ["chat"]}),
        ("/comm", {"reporter": alice.hyperty}),
        ("/comm", {"reporter": alice.hyperty, "dataSchemes": ["connection"]}),
    ):
        answer = await alice.ask("read", resource=resource, criteria=criteria)
        assert (answer["code"], list(answer["value"])) == (200, [alice.object])


@pytest.mark.parametrize("form", ["/hyperty/{id}", "/hyperty/{url}", "{url}"])
async def test_case_21_unregistering_disconnects_and_is_announced(
    alice: Person, bob: Person, form: str
) -> None:
    await alice.register()
    await bob.client.subscribe(f"{alice.hyperty}/registration")
    resource = form.format(url=alice.hyperty, id=alice.hyperty.rsplit("/", 1)[1])
    body = {"resource": resource, "value": "disconnected", "attribute": "status"}
    assert await alice.ask("update", **body) == {"code": 200}
    news = await bob.client.expect(type="update", to=f"{alice.hyperty}/registration")
    assert news["from"] == REGISTRY
    assert (news["body"]["value"], news["body"]["attribute"]) == ("disconnected", "status")


async def test_case_22_a_refresh_is_announced_only_if_it_revives(
    alice: Person, bob: Person
) -> None:
    await alice.register()
    await bob.client.subscribe(f"{alice.hyperty}/registration")
    live = {"resource": alice.hyperty, "value": {"status": "live"}, "method": "refresh"}
    assert await alice.ask("update", **live) == {"code": 200}
    assert await alice.ask("update", resource=alice.hyperty) == {"code": 200}
    await alice.ask("update", resource=alice.hyperty, value={"status": "disconnected"})
    await alice.ask("update", **live)
    heard = [await bob.client.expect(type="update") for _ in range(2)]
    assert [news["body"]["value"] for news in heard] == ["disconnected", "live"]
    assert await bob.client.received_from(bob.client) == []


async def test_case_24_unavailable_is_408_with_the_records(alice: Person) -> None:
    await alice.register(status="disconnected")
    answer = await alice.ask("read", resource=f"user://d.example/{alice.mail}")
    assert (answer["code"], answer["description"]) == (408, "Temporarily Unavailable")
    assert answer["value"][alice.hyperty]["status"] == "disconnected"
    answer = await alice.ask("read", resource=alice.hyperty)
    assert (answer["code"], answer["value"]["hypertyID"]) == (408, alice.hyperty)


async def test_case_25_permanent_refusals_are_never_408_or_500(alice: Person, bob: Person) -> None:
    assert (await alice.ask("update", resource=alice.hyperty))["code"] == 404
    await alice.register()
    bob.hyperty = alice.hyperty
    assert (await bob.register())["code"] == 404
    assert (await alice.register(expires="soon"))["code"] == 400
    await alice.report()
    bob.object = alice.object
    bob.hyperty = address()
    assert (await bob.report())["code"] == 403


async def test_case_28_and_30_every_form_of_a_request_has_an_answer(alice: Person) -> None:
    for to in (REGISTRY, f"{REGISTRY}/"):
        for type_ in ("READ", "read", "Read"):
            answer = await alice.client.ask(
                type_, to, {"resource": alice.hyperty}, id=f"{type_}{to}"
            )
            assert (answer["from"], answer["to"]) == (to, alice.client.runtime_url)
            assert code(answer) == 404
        for type_ in ("execute", "subscribe", "forward"):
            assert code(await alice.client.ask(type_, to, {})) == 400


@pytest.mark.parametrize(
    "place", ["embedded", pytest.param("remote", marks=pytest.mark.long), "script"]
)
async def test_the_end_of_the_last_session_disconnects(
    request: pytest.FixtureRequest, start_node: Callable[..., Node], come: Come, place: str
) -> None:
    to = (
        request.getfixturevalue({"remote": "relay", "script": "scripted"}[place])
        if place != "embedded"
        else start_node(REGISTRY_CLOSE_GRACE=0)
    )
    alice, bob = Person(await come(to=to)), Person(await come(to=to))
    await alice.register()
    await alice.report()
    await bob.client.subscribe(f"{alice.hyperty}/registration", f"{alice.object}/registration")
    await alice.client.close_session()
    news = [await bob.client.expect(type="update") for _ in range(2)]
    assert {each["to"] for each in news} == {
        f"{alice.hyperty}/registration",
        f"{alice.object}/registration",
    }
    assert {each["body"]["value"] for each in news} == {"disconnected"}
    assert (await bob.ask("read", resource=alice.hyperty))["code"] == 408


@pytest.mark.parametrize("to", [GLOBAL, f"{GLOBAL}/"])
@pytest.mark.parametrize(
    ("keys", "type_"), [(("guid", "jwt"), "CREATE"), (("resource", "value"), "create")]
)
async def test_case_42_every_form_of_a_record_has_the_same_answer(
    alice: Person, to: str, keys: tuple[str, str], type_: str
) -> None:
    guid, record = keys
    text = RECORD
    answer = await alice.ask(type_, to, **{guid: GUID, record: text})
    assert {answer["code"], answer["Code"]} == {200}
    read = "READ" if type_.isupper() else "read"
    for written in (GUID, f"user-guid://{GUID}"):
        answer = await alice.ask(read, to, **{guid: written})
        assert {answer["code"], answer["Code"]} == {200}
        assert {answer["value"], answer["Value"]} == {text}
    answer = await alice.ask(read, to, **{guid: "x" * 43})
    assert (answer["Code"], answer["code"], "Value" in answer) == (404, 404, False)
    assert answer["Description"] == answer["description"]
    assert (await alice.ask("create", to, guid="x" * 43, jwt="a.b.c"))["Code"] == 400
    assert (await alice.ask("delete", to, guid=GUID))["Code"] == 400


@pytest.mark.long
async def test_case_23_expiry_reaches_every_subscriber_from_another_process(
    start_node: Callable[..., Node], come: Come
) -> None:
    place = start_node()
    alice, *others = [Person(await come(to=place)) for _ in range(4)]
    await alice.register(expires=0)
    for other in others:
        await other.client.subscribe(f"{alice.hyperty}/registration")
    while '"done": 0' in place.manage("registry_expire", "--json"):
        pass
    for other in others:
        news = await other.client.expect(type="update", to=f"{alice.hyperty}/registration")
        assert news["body"]["value"] == "disconnected"
        assert await other.client.received_from(other.client) == []


@pytest.mark.long
async def test_case_24_older_runtimes_can_be_given_500(
    start_node: Callable[..., Node], come: Come
) -> None:
    alice = Person(await come(to=start_node(REGISTRY_UNAVAILABLE_CODE=500)))
    await alice.register(status="disconnected")
    answer = await alice.ask("read", resource=alice.hyperty)
    assert (answer["code"], "value" in answer) == (500, True)


@pytest.mark.long
async def test_case_29_a_registry_out_of_reach_is_504(
    start_node: Callable[..., Node], come: Come
) -> None:
    nowhere = "http://127.0.0.1:9"
    place = start_node(DOMAIN_REGISTRY_URL=nowhere, GLOBAL_REGISTRY_URL=nowhere)
    alice = Person(await come(to=place))
    answer = await alice.ask("read", resource=alice.hyperty)
    assert (answer["code"], answer["description"]) == (
        504,
        "Error contacting the domain registry.",
    )
    assert (await alice.register())["code"] == 504
    assert (await alice.ask("read", GLOBAL, guid="x" * 43))["Code"] == 504


def test_case_14_ids_survive_the_way_through_a_real_server(node: Node) -> None:
    """One segment whatever is in it: the server must hand on the path as it was sent."""
    door = http.client.HTTPConnection("127.0.0.1", node.port, timeout=20)
    body = {
        "descriptor": "", "expires": 60, "resources": ["chät"], "dataSchemes": ["a b"],
        "status": "live", "runtime": runtime(),
    }  # fmt: skip
    for odd in ("a+b", "a/b//c", "50%25", "ü€😀", "a?b#c", ".", ".."):
        user, url = f"user://d/{odd}{uuid.uuid4()}", f"hyperty://d/{odd}/{uuid.uuid4()}"
        path = f"/domain-registry/hyperty/user/{quote(user, safe='')}/{quote(url, safe='')}"
        door.request("PUT", path, json.dumps(body), {"Content-Type": "application/json"})
        answer = door.getresponse()
        assert (answer.status, json.load(answer)["message"]) == (200, "Hyperty created")
        query = f"resources={quote('chät')}&dataSchemes=a+b"
        path = f"/domain-registry/hyperty/user/{quote(user, safe='')}/hyperty?{query}"
        door.request("GET", path)
        assert list(json.load(door.getresponse())) == [url]
    path = f"/domain-registry/hyperty/user/{quote('user://d/x', safe='')}/hyperty%3A%2F%2Fd%2Fa%20b"
    door.request("PUT", path, json.dumps(body), {"Content-Type": "application/json"})
    assert (refusal := door.getresponse()).status == 400
    assert "blank" in json.load(refusal)["message"]


# --- a script that harms ------------------------------------------------------------------------

HOSTILE = """export default (node) => ({ handles: "domain-registry", async find({ url }) {
  if (url.endsWith("loop")) for (;;) {}
  if (url.endsWith("memory")) { const all = []; for (;;) all.push(new Array(1e6).fill(1)); }
  for (;;) { node.log("x"); node.news([[url, "live"]]); }
} });"""


def ends_of(node: Node) -> float:
    found = re.search(r'script_ends_total\{port="domain-registry"\} (\S+)', node.text("/metrics"))
    return float(found[1]) if found else 0.0


@pytest.mark.long
@pytest.mark.skipif(not find_deno(), reason="Deno is not installed")
async def test_beside_a_script_that_loops_eats_memory_and_floods_all_else_goes_on_in_order(
    tmp_path: Path, template: Path, come: Come
) -> None:
    (tmp_path / "hostile.js").write_text(HOSTILE)
    with running(tmp_path / "node", template) as node:
        words = ("--script", str(tmp_path / "hostile.js"))
        node.manage("connectors", "add", "domain-registry", *words)
        node.manage("connectors", "approve", "domain-registry")
        seen = "SELECT state FROM msgnode_connector"
        waiting.until(lambda: node.rows(seen) == [("live",)], 60.0, node.log)
        asking, one, other = [await come(to=node) for _ in range(3)]
        (mine,), (theirs,) = await one.allocate(), await other.allocate()
        is_over = asyncio.Event()

        async def talk() -> int:
            number = 0
            while not is_over.is_set():
                for n in range(number, number + 10):
                    await one.send("update", theirs, {"n": n}, sender=mine)
                heard = [(await other.expect(type="update"))["body"]["n"] for _ in range(10)]
                assert heard == list(range(number, number + 10))
                number += 10
            return number

        talking = asyncio.create_task(talk())
        for attack in ("loop", "memory", "flood"):
            before = ends_of(node)
            url = f"hyperty://localhost/{attack}"
            assert code(await asking.ask("read", REGISTRY, {"resource": url})) in (503, 504)
            await waiting.so(lambda before=before: ends_of(node) > before)
            assert code(await asking.ask("read", GLOBAL, {"guid": "nobody"})) == 404
        is_over.set()
        assert await talking >= 100
