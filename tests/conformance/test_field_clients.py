"""The field's own clients: they end and begin sessions as they like, and are served as at first.

Open, work, drop the socket without a word or say `close`, and open again at once with the same
runtime URL, many times; two tabs; a reload; a refusal that a stub must hear of.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from time import monotonic

import pytest

from tests.client import REGISTRY, SESSION, SM, address, code, runtime
from tests.field_stubs import RUNTIMES, FieldRuntime, MatrixRuntime, VertxRuntime
from tests.node import Node, eventually, running

BOTH = pytest.mark.parametrize("handshake", ["ws", "stub"])
ROUNDS = pytest.mark.parametrize(
    ("handshake", "end", "rounds"),
    [
        *((handshake, end, 25) for handshake in ("ws", "stub") for end in ("drop", "leave")),
        pytest.param("ws", "drop", 200, marks=pytest.mark.long),
        pytest.param("stub", "leave", 200, marks=pytest.mark.long),
    ],
)

Start = Callable[..., Awaitable[FieldRuntime]]


@pytest.fixture(scope="module")
def narrow(tmp_path_factory: pytest.TempPathFactory, template: Path) -> Iterator[Node]:
    """A node that lets a runtime URL have three sessions."""
    place = tmp_path_factory.mktemp("narrow")
    with running(place, template, MAX_SESSIONS_PER_RUNTIME=3) as node:
        yield node


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    """Starts runtimes: `await start(node, "ws", url)`; their sockets are closed at the end."""
    started: list[FieldRuntime] = []

    async def begin(node: Node, handshake: str, url: str = "") -> FieldRuntime:
        started.append(RUNTIMES[handshake](node, url or runtime()))
        return await started[-1].begin()

    yield begin
    for each in started:
        await each.client.hang_up()


# --- many rounds ----------------------------------------------------------------------------------


@ROUNDS
async def test_every_round_of_open_work_and_end_is_served_as_the_first(
    node: Node, start: Start, handshake: str, end: str, rounds: int
) -> None:
    hyperty, user = address(), f"user://d.example/{uuid.uuid4().hex}"
    one = await start(node, handshake)
    assert code(await one.register(hyperty, user)) == 200
    for _ in range(rounds):
        await one.work(hyperty)
        for resource in (hyperty, user):
            assert code(await one.find(resource)) == 200
        assert code(await one.ask("update", REGISTRY, {"resource": hyperty})) == 200
        old = one.client
        await (one.drop() if end == "drop" else one.leave())
        await one.begin()
        if end == "leave":
            assert await old.close_code() == 1000
    await one.work(hyperty)
    assert code(await one.find(user)) == 200


@BOTH
async def test_a_tab_that_reloads_again_and_again_beside_another_is_never_locked_out(
    narrow: Node, start: Start, handshake: str
) -> None:
    url = runtime()
    tab, other = await start(narrow, handshake, url), await start(narrow, handshake, url)
    mine, others = address(), address()
    await other.work(others)
    for _ in range(12):
        await tab.work(mine)
        await tab.drop()
        await tab.begin()
    await tab.work(mine)
    await other.work(others)


@pytest.mark.long
@BOTH
async def test_where_only_a_token_resumes_the_oldest_detached_sessions_make_room(
    start_node: Callable[..., Node], start: Start, handshake: str
) -> None:
    careful = start_node(RESUME="with-proof", MAX_SESSIONS_PER_RUNTIME=3)
    one, hyperty = await start(careful, handshake), address()
    for _ in range(12):
        await one.work(hyperty)
        await one.drop()
        await one.begin()
    await one.work(hyperty)


@pytest.mark.long
async def test_what_made_room_is_free_and_the_others_are_resumed_by_their_tokens(
    start_node: Callable[..., Node],
) -> None:
    careful = start_node(RESUME="with-proof", MAX_SESSIONS_PER_RUNTIME=2)
    url, held = runtime(), []
    for _ in range(3):
        async with careful.ws() as client:
            await client.open(url)
            held.append((client.token, (await client.allocate())[0]))
            await client.hang_up()
    async with careful.ws() as talker, careful.ws() as back:
        await talker.open()
        assert code(await talker.ask("create", held[0][1])) == 404
        token, allocated = held[1]
        assert "runtimeToken" not in (await back.reopen(url, token))["body"]
        await talker.send("create", allocated, {"value": "still yours"})
        assert (await back.expect(to=allocated))["body"]["value"] == "still yours"


async def test_a_stub_that_comes_back_again_and_again_is_served_as_at_first(
    node: Node, start: Start
) -> None:
    hyperty, user = address(), f"user://d.example/{uuid.uuid4().hex}"
    one = await start(node, "ws")
    assert isinstance(one, VertxRuntime)
    assert code(await one.register(hyperty, user)) == 200
    for _ in range(10):
        await one.drop()
        await one.come_back()
        await one.work(hyperty)
        await one.leave()
        await one.connect_again()  # names its runtime by `via` alone
        await one.work(hyperty)
        assert code(await one.find(user)) == 200


async def test_what_is_posted_while_a_socket_opens_is_answered(node: Node) -> None:
    for _ in range(5):
        one = VertxRuntime(node, runtime())
        answer = await one.begin_and_ask("subscribe", SM, {"resources": [address()]})
        assert code(answer) == 200, answer
        await one.work(address())
        await one.client.hang_up()


async def test_runtimes_named_as_the_suites_before_2018_name_them_are_served(
    node: Node, start: Start
) -> None:
    """`runtime:/alice` has one slash, no domain, and a protostub of its own as `via`."""
    name = uuid.uuid4().hex
    alice, bob = [await start(node, "ws", f"runtime:/{who}-{name}") for who in ("alice", "bob")]
    thing = f"resource://localhost/{name}"
    await alice.work(address())
    listed = {"subscribe": [f"{thing}/changes"], "source": address(), "via": alice.stub_url}
    answer = await alice.client.ask("SUBSCRIBE", SM, listed, sender=f"{alice.url}/sm")
    assert code(answer) == 200, answer
    await bob.client.send("update", f"{thing}/changes", {"value": 1}, sender=thing)
    heard = await alice.client.expect(type="update")
    assert (heard["to"], heard["body"]["value"]) == (f"{thing}/changes", 1)
    id_ = await bob.client.send("create", f"{alice.url}/sm", {}, sender=f"{bob.url}/sm")
    assert (await alice.client.expect(id=id_))["from"] == f"{bob.url}/sm"
    await alice.client.send(
        "response", f"{bob.url}/sm", {"code": 200}, id=id_, sender=f"{alice.url}/sm"
    )
    assert code(await bob.client.expect(id=id_, type="response")) == 200
    assert isinstance(alice, VertxRuntime)
    await alice.drop()
    await alice.come_back()
    await bob.client.send("update", f"{thing}/changes", {"value": 2}, sender=thing)
    assert (await alice.client.expect(type="update"))["body"]["value"] == 2


@BOTH
async def test_two_sockets_of_a_runtime_speak_as_the_same_stub(
    node: Node, start: Start, handshake: str
) -> None:
    """A suite that forgets to disconnect one stub goes on with the next, of the same addresses."""
    one = await start(node, handshake)
    other = await start(node, handshake, one.url)
    for _ in range(2):
        await one.work(address())
        await other.work(address())


# --- registrations after a close ------------------------------------------------------------------


@pytest.mark.long
@BOTH
async def test_registrations_live_through_the_grace_and_end_after_it(
    start_node: Callable[..., Node], start: Start, handshake: str
) -> None:
    grace = 3
    hasty = start_node(REGISTRY_CLOSE_GRACE=grace)
    watcher, gone = await start(hasty, "ws"), await start(hasty, handshake)
    back = await start(hasty, handshake)
    left, kept = address(), address()
    assert code(await back.register(kept, "user://d.example/back")) == 200
    assert code(await gone.register(left, "user://d.example/gone")) == 200
    await watcher.client.subscribe(f"{left}/registration", f"{kept}/registration")
    await back.leave()
    await back.begin()
    left_at = monotonic()
    await gone.leave()
    assert await gone.client.close_code() == 1000
    found = code(await watcher.find(left))
    assert found == 200 or monotonic() - left_at >= grace  # a starved machine may need as long
    news = await watcher.client.expect(type="update")
    assert (news["to"], news["body"]["value"]) == (f"{left}/registration", "disconnected")
    assert code(await watcher.find(left)) == 408
    assert code(await watcher.find(kept)) == 200
    await gone.begin()
    assert code(await gone.ask("update", REGISTRY, {"resource": left})) == 200
    assert code(await watcher.find(left)) == 200


@BOTH
@pytest.mark.parametrize("by", ["status", "delete"])
async def test_an_unregistration_by_the_runtime_ends_them_at_once(
    node: Node, start: Start, handshake: str, by: str
) -> None:
    watcher, one, hyperty = await start(node, "ws"), await start(node, handshake), address()
    assert code(await one.register(hyperty, "user://d.example/one")) == 200
    await one.leave()
    await one.begin()
    if by == "status":
        ended = {"resource": hyperty, "value": "disconnected", "attribute": "status"}
        answer = await one.ask("update", REGISTRY, ended)
    else:
        value = {"url": hyperty, "user": "user://d.example/one"}
        answer = await one.ask("delete", REGISTRY, {"value": value})
    assert code(answer) == 200
    assert code(await watcher.find(hyperty)) == 408


@pytest.mark.long
async def test_a_stranger_with_the_same_runtime_url_revives_nothing(
    start_node: Callable[..., Node], start: Start
) -> None:
    strict = start_node(REGISTRY_CLOSE_GRACE=1, SHARE_RUNTIME_URL="false", RESUME="with-proof")
    owner, hyperty = await start(strict, "ws"), address()
    assert code(await owner.register(hyperty, "user://d.example/owner")) == 200
    await owner.leave()
    assert await owner.client.close_code() == 1000
    stranger = await start(strict, "ws", owner.url)
    await stranger.client.subscribe(f"{hyperty}/registration")
    while code(await stranger.find(hyperty)) == 200:
        await eventually()
    assert code(await stranger.find(hyperty)) == 408


# --- refusals -------------------------------------------------------------------------------------


async def test_a_refusal_reaches_a_stub_that_counts_itself_as_live(
    narrow: Node, start: Start
) -> None:
    url = runtime()
    tabs = [await start(narrow, "stub", url) for _ in range(3)]
    late = await MatrixRuntime(narrow, url).begin()
    for type_, to in (("subscribe", SM), ("create", f"{url}/sm"), ("open", SESSION)):
        answer = await late.ask(type_, to, {"resources": [address()]})
        assert (code(answer), answer["from"]) == (429, to), answer
        assert "has 3 sessions already" in answer["body"]["desc"]
    assert await late.client.close_code() == 4429
    for tab in tabs:
        await tab.work(address())
    await tabs[0].leave()
    assert await tabs[0].client.close_code() == 1000
    await (await start(narrow, "stub", url)).work(address())
