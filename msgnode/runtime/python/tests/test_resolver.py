"""Cases R21–R36, R46, R72: from a message to a stub that runs, and what waits meanwhile."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from world import ECHO, FAR, A, FakeCatalogue, R, World, descriptor

from msgnode.runtime.python import stub_list
from msgnode.runtime.python.destinations import NoDestination, destination
from msgnode.runtime.python.settings import Limits, Settings

DESCRIPTOR_OF_F = "POST /f/.well-known/protocolstub/default"


async def test_r21_the_first_message_loads_once_and_goes_out_after_created(
    catalogue: FakeCatalogue,
) -> None:
    catalogue.serve(descriptor())
    async with World(catalogue) as world:
        assert await world.ask(value="hello") == {"code": 200, "value": "hello", "via": world.url()}
        assert catalogue.asked == [DESCRIPTOR_OF_F]
        words = world.words()
        assert words.index("deploying") < words.index("created") < words.index("live")
        assert await world.ask(value="again")
        assert catalogue.asked == [DESCRIPTOR_OF_F]


async def test_a_stub_that_says_nothing_of_itself_has_the_messages_that_waited(
    catalogue: FakeCatalogue,
) -> None:
    silent = ECHO.replace(
        "def say(self, value, **more):", "def say(self, *_, **more):\n        return"
    )
    catalogue.serve(descriptor(silent))
    async with World(catalogue) as world:
        answers = await asyncio.gather(world.ask(value=1), world.ask(value=2))
        assert [each["value"] for each in answers] == [1, 2]
        assert world.words() == ["deploying", "deployed"]


async def test_a_stub_gets_what_the_settings_say_of_its_domain(catalogue: FakeCatalogue) -> None:
    source = ECHO.replace(
        "def activate(url, bus, config):",
        "def activate(url, bus, config):\n    assert config['max_delay'] == 5.0",
    )
    assert source != ECHO
    catalogue.serve(descriptor(source))
    async with World(catalogue, stub_config={"f": {"max_delay": 5.0}}) as world:
        assert (await world.ask(value=1))["value"] == 1


async def test_r22_messages_of_one_domain_wait_for_one_load_and_keep_their_order(
    catalogue: FakeCatalogue,
) -> None:
    catalogue.serve(descriptor())
    async with World(catalogue) as world:
        got: list[Any] = []
        for number in range(10):
            world.bus.post_message(
                {
                    "type": "create",
                    "from": A,
                    "to": f"hyperty://f/{number % 3}",
                    "body": {"value": number},
                },
                lambda each: got.append(each["body"].get("value")),
            )
        await world.until(lambda: len(got) == 10)
        assert got == list(range(10))
        assert catalogue.asked == [DESCRIPTOR_OF_F]


async def test_r23_a_stub_in_progress_gets_messages_at_once(catalogue: FakeCatalogue) -> None:
    source = ECHO.replace('self.say("live")\n        if', "pass\n        if")
    catalogue.serve(descriptor(source))
    async with World(catalogue) as world:
        await world.ask()
        entry = world.resolver.stubs.get("f")
        assert entry is not None and entry.status == "in-progress"
        assert (await world.ask(value=2))["value"] == 2


async def test_r24_a_failed_stub_answers_503_with_its_words_until_it_connects(
    catalogue: FakeCatalogue,
) -> None:
    source = ECHO.replace(
        'self.say("live")\n        if', 'self.say("failed", desc="Who are you?")\n        if'
    )
    catalogue.serve(descriptor(source))
    async with World(catalogue, retry_load=(0.3, 1.0)) as world:
        await world.ask()
        refused = await world.ask()
        assert (refused["code"], refused["desc"]) == (503, "Who are you?")
        await asyncio.sleep(0.35)
        assert (await world.ask(value=3))["value"] == 3  # connect() is called, and says live
        await world.until(lambda: world.words()[-1] == "live")


async def test_r25_the_home_catalogue_stands_in_under_the_foreign_name(
    catalogue: FakeCatalogue,
) -> None:
    catalogue.serve(descriptor(), "d", "f")
    async with World(catalogue) as world:
        assert (await world.ask())["code"] == 200
        assert catalogue.asked[0] == DESCRIPTOR_OF_F
        assert catalogue.asked[-1] == "POST /d/.well-known/protocolstub/f"


async def test_r26_nowhere_is_404_and_asked_again_only_after_a_while(
    catalogue: FakeCatalogue,
) -> None:
    async with World(catalogue, retry_load=(0.5, 1.0)) as world:
        refused = await world.ask()
        assert refused["code"] == 404 and " f." in refused["desc"]
        asked = len(catalogue.asked)
        assert (await world.ask())["code"] == 404
        assert len(catalogue.asked) == asked
        catalogue.serve(descriptor())
        await asyncio.sleep(0.55)
        assert (await world.ask())["code"] == 200


async def test_an_entry_that_nothing_can_read_is_answered_502(catalogue: FakeCatalogue) -> None:
    package = {**descriptor()["sourcePackage"], "sourceCode": "\ud800", "integrity": ""}
    catalogue.serve(descriptor(sourcePackage=package))
    async with World(catalogue) as world:
        answer = await world.ask()
        assert answer["code"] == 502
        assert "f" in answer["desc"]


async def test_r27_a_catalogue_that_hangs_is_504_and_leaves_nothing_behind(
    catalogue: FakeCatalogue,
) -> None:
    catalogue.hangs = True
    async with World(catalogue, load=0.3) as world:
        assert (await world.ask())["code"] == 504
        entry = world.resolver.stubs.get("f")
        assert entry is not None and entry.status == "deployment-failed"
        assert not world.resolver.loader.sandboxes


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


async def test_r30_the_runtime_url_is_the_runtimes(catalogue: FakeCatalogue) -> None:
    source = ECHO.replace('message.get("body", {}).get("value")', "self.config")
    config = '{"runtimeURL": "runtime://d/other", "maxBuffer": 7}'
    catalogue.serve(descriptor(source, configuration=config))
    async with World(catalogue) as world:
        assert (await world.ask())["value"] == {"runtimeURL": R, "maxBuffer": 7}


@pytest.mark.parametrize(
    "replaced",
    [
        (ECHO, "Echo"),
        (ECHO + "\n\nclass default:\n    activate = staticmethod(activate)\n\n\ndel activate", ""),
        (
            ECHO.replace("def __init__(self, url", "def _start(self, url")
            .replace("bus, config):\n        self.url", "bus, config, factory):\n        self.url")
            .partition("def activate")[0],
            "Echo",
        ),
    ],
    ids=["activate", "default", "class"],
)
async def test_r33_every_way_to_start_a_stub(
    catalogue: FakeCatalogue, replaced: tuple[str, str]
) -> None:
    source, class_name = replaced
    entry = descriptor(source)
    entry["sourcePackage"]["sourceCodeClassname"] = class_name
    catalogue.serve(entry)
    async with World(catalogue) as world:
        assert (await world.ask())["code"] == 200
        assert "created" in world.words()


@pytest.mark.parametrize(
    ("to", "key"),
    [
        ("global://registry/", "d"),
        ("domain://registry.f", "f"),
        ("domain://registry.F/x", "f"),
        ("domain://msg-node.f/sm", "f"),
        ("hyperty://F/x", "f"),
        ("runtime://f/2/p2phandler/1", "f"),
        ("sip:bob@legacy.example", "sip.legacy.example"),
        ("sip://bob@pbx.legacy.example/x", "sip.legacy.example"),
        ("domain-idp://f", "domain-idp://f"),
        ("hyperty://routed/x", "d"),
        ("xmpp://legacy.example/bob", "d"),
    ],
)
def test_r34_r35_r36_which_stub_reaches_an_address(to: str, key: str) -> None:
    settings = Settings("d", interworking=frozenset({"sip"}), routing={"routed": "node"})
    where = destination(to, settings)
    assert where.key == key
    assert (where.kind == "idp-proxy") is to.startswith("domain-idp")


@pytest.mark.parametrize(
    ("to", "code"),
    [
        ("sip:bob@legacy.example", 404),
        ("mn:/session", 400),
        ("nothing", 400),
        ("hyperty://a b/x", 400),
        ("hyperty://../x", 400),
        ("hyperty://f%2f/x", 400),
    ],
)
def test_r35_what_no_stub_reaches(to: str, code: int) -> None:
    with pytest.raises(NoDestination) as refused:
        destination(to, Settings("d"))
    assert refused.value.code == code


async def test_r36_an_identity_proxy_that_cannot_be_loaded_is_404(catalogue: FakeCatalogue) -> None:
    async with World(catalogue) as world:
        assert (await world.ask("domain-idp://f"))["code"] == 404
        assert all("/idp-proxy/" in path for path in catalogue.asked)


async def test_r46_domains_with_alike_names_have_sandboxes_of_their_own(
    catalogue: FakeCatalogue,
) -> None:
    catalogue.serve(descriptor(), "a.f")
    catalogue.serve(descriptor(), "aa.f")
    async with World(catalogue) as world:
        await asyncio.gather(world.ask("hyperty://a.f/x"), world.ask("hyperty://aa.f/x"))
        assert len({sandbox.pid for sandbox in world.resolver.loader.sandboxes}) == 2


async def test_a_queue_for_a_domain_that_loads_is_bounded(
    catalogue: FakeCatalogue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stub_list, "MAX_WAITING", 3)
    catalogue.hangs = True
    async with World(catalogue, load=0.5) as world:
        codes: list[int] = []
        for _ in range(5):
            world.bus.post_message(
                {"type": "create", "from": A, "to": FAR},
                lambda each: codes.append(each["body"]["code"]),
            )
        await world.until(lambda: len(codes) == 5)
        assert sorted(codes) == [503, 503, 504, 504, 504]


async def test_more_stubs_than_allowed_are_refused(catalogue: FakeCatalogue) -> None:
    catalogue.serve(descriptor())
    catalogue.serve(descriptor(), "g")
    async with World(catalogue, limits=Limits(sandboxes=1)) as world:
        assert (await world.ask())["code"] == 200
        assert (await world.ask("hyperty://g/x"))["code"] == 503


async def test_r72_a_domain_routed_to_the_node_loads_no_code_of_its_own(
    catalogue: FakeCatalogue,
) -> None:
    source = ECHO.replace('message.get("body", {}).get("value")', 'message["to"]')
    catalogue.serve(descriptor(source), "d")
    async with World(catalogue, routing={"f": "node"}) as world:
        assert (await world.ask())["value"] == FAR
        assert catalogue.asked == ["POST /d/.well-known/protocolstub/default"]


async def test_r72_what_a_stub_that_cannot_run_here_would_take_goes_through_the_node_in_order(
    catalogue: FakeCatalogue,
) -> None:
    catalogue.serve(descriptor(), "d")
    catalogue.serve(descriptor(constraints={"windowSandbox": True}))
    async with World(catalogue, routing={"f": "stub-else-node"}, retry_load=(0.5, 0.5)) as world:
        got: list[Any] = []
        for number in range(5):
            message = {"type": "create", "from": A, "to": FAR, "body": {"value": number}}
            world.bus.post_message(message, lambda each: got.append(each["body"].get("value")))
        await world.until(lambda: len(got) == 5)
        assert got == list(range(5))
        home, far = (world.resolver.stubs.get(each) for each in ("d", "f"))
        assert home is not None and far is not None
        assert (await world.ask())["via"] == home.url
        assert far.status == "deployment-failed" and far.code == 501
        catalogue.serve(descriptor())
        await asyncio.sleep(0.55)
        assert (await world.ask())["via"] == far.url


async def test_r73_what_a_node_brings_back_for_another_domain_is_not_sent_out_again(
    catalogue: FakeCatalogue,
) -> None:
    """A domain that forwards to this runtime what this runtime has forwarded to it."""
    answers = 'self.answer(message, {"code": 200, "value": message.get("body", {}).get("value")})'
    loops = ECHO.replace('if message["type"] != "response":', "if True:")
    loops = loops.replace(answers, "self.bus.post_message(message)")
    catalogue.serve(descriptor(loops), "d")
    async with World(catalogue, routing={"f": "node"}) as world:
        assert (await world.ask())["code"] == 404
        assert world.bus.counters == {"undeliverable.404": 1}
