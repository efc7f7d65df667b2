"""Cases 18-28: address allocation, over real sockets.

Case 27 fills its pool through the database before the node starts; the console's way to it comes
with the pools.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.client import ALLOCATION, DOMAIN, SM, Client, Frame, address, code, runtime
from tests.conftest import Come
from tests.node import Node, running

BOTH = pytest.mark.parametrize("handshake", ["ws", "stub"])
UUID4 = r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"
NAMES = ["address-allocation", "hyperty-address-allocation", "object-address-allocation"]


async def create(client: Client, body: Frame, to: str = ALLOCATION) -> Frame:
    answer = await client.ask("create", to, body)
    assert (answer["from"], answer["to"]) == (to, client.runtime_url)
    body = answer["body"]
    assert isinstance(body, dict)
    return body


async def delete(client: Client, body: Frame) -> int:
    return code(await client.ask("delete", ALLOCATION, body))


async def reaches(talker: Client, to: str, owner: Client) -> bool:
    """Whether a message of the talker to this address comes to its owner."""
    await talker.send("create", to)
    return [each["to"] for each in await owner.received_from(talker)] == [to]


@BOTH
async def test_case_18_three_addresses_are_asked_for_and_three_distinct_ones_come(
    come: Come, handshake: str
) -> None:
    client = await come(handshake=handshake)
    body = await create(client, {"scheme": "comm", "value": {"number": 3}})
    assert body["code"] == 200
    allocated = body["value"]["allocated"]
    assert len(set(allocated)) == 3
    assert all(re.fullmatch(f"comm://{DOMAIN}/{UUID4}", each) for each in allocated)


@pytest.mark.parametrize("body", [{}, {"value": {}}, {"value": "{}"}, {"value": {"number": 1}}])
async def test_case_19_the_default_is_one_hyperty_address(come: Come, body: Frame) -> None:
    answer = await create(await come(), body)
    (allocated,) = answer["value"]["allocated"]
    assert re.fullmatch(f"hyperty://{DOMAIN}/{UUID4}", allocated)


@BOTH
async def test_case_20_a_message_to_an_allocated_address_arrives_there_only(
    come: Come, handshake: str
) -> None:
    owner, talker, third = await come(handshake=handshake), await come(), await come()
    (held,) = await owner.allocate()
    assert await reaches(talker, held, owner)
    assert await third.settled() == []


@pytest.mark.parametrize("listed", [False, True])
async def test_case_21_a_block_goes_with_its_key_and_may_go_twice(come: Come, listed: bool) -> None:
    owner, talker = await come(), await come()
    block, other = await owner.allocate(number=3, key="k"), await owner.allocate(key="other")
    for _ in range(2):
        assert await delete(owner, {"resource": ["k"] if listed else "k"}) == 200
    for held in block:
        assert code(await talker.ask("create", held)) == 404
    assert await reaches(talker, other[0], owner)


@pytest.mark.parametrize("nested", [False, True])
async def test_case_22_single_addresses_go_alone(come: Come, nested: bool) -> None:
    owner, talker = await come(), await come()
    first, second, third = await owner.allocate(number=3)
    items = [[first, [second]]] if nested else [first, second]
    assert await delete(owner, {"childrenResources": items}) == 200
    assert code(await talker.ask("create", first)) == 404
    assert code(await talker.ask("create", second)) == 404
    assert await reaches(talker, third, owner)


async def test_case_22_a_delete_that_names_nothing_is_refused(come: Come) -> None:
    client = await come()
    bodies: tuple[Frame, ...] = (
        {}, {"value": {}}, {"resource": 7}, {"childrenResources": [{"a": 1}]}
    )  # fmt: skip
    for body in bodies:
        assert await delete(client, body) == 400, body


async def test_case_22_an_address_may_be_named_as_resource(come: Come) -> None:
    owner, talker = await come(), await come()
    (held,) = await owner.allocate()
    assert await delete(owner, {"resource": held}) == 200
    assert code(await talker.ask("create", held)) == 404


async def test_case_23_every_name_of_the_component_and_any_case_of_the_type(come: Come) -> None:
    client = await come()
    for name in NAMES:
        for type_ in ("create", "CREATE", "Create"):
            address = f"domain://msg-node.{DOMAIN}/{name}"
            answer = await client.ask(type_, address, {"scheme": "comm"})
            assert (code(answer), answer["from"]) == (200, address)


async def test_case_24_an_address_of_somebody_else_is_not_deleted(come: Come) -> None:
    owner, stranger = await come(), await come()
    (held,) = await owner.allocate(key="k")
    assert await delete(stranger, {"childrenResources": [held]}) == 200
    assert await delete(stranger, {"resource": "k"}) == 200
    assert await delete(stranger, {"resource": held}) == 200
    assert await reaches(stranger, held, owner)


@BOTH
async def test_case_25_a_hyperty_url_made_by_the_runtime_is_registered_by_subscription(
    come: Come, handshake: str
) -> None:
    owner, talker, own = await come(handshake=handshake), await come(), address()
    body = {"resources": [own], "source": f"{owner.runtime_url}/address-allocation"}
    assert code(await owner.ask("subscribe", SM, body)) == 200
    assert await reaches(talker, own, owner)


async def test_case_26_a_second_runtime_cannot_claim_a_claimed_address(come: Come) -> None:
    owner, second, own = await come(), await come(), address()
    assert code(await owner.subscribe(own)) == 200
    assert code(await second.subscribe(own)) == 403
    assert code(await owner.subscribe(own)) == 200
    assert await reaches(second, own, owner)
    await owner.close_session()
    assert code(await second.subscribe(own)) == 200
    talker = await come()
    assert await reaches(talker, own, second)


async def test_case_26_claims_at_the_same_moment_have_one_winner(come: Come) -> None:
    own, clients = address(), [await come() for _ in range(6)]
    ids = [await each.send("subscribe", SM, {"resources": [own]}) for each in clients]
    codes = [code(await each.answer(id_)) for each, id_ in zip(clients, ids, strict=True)]
    assert sorted(codes) == [200] + [403] * 5
    winner = clients[codes.index(200)]
    assert await reaches(clients[codes.index(403)], own, winner)


async def test_case_26_a_runtime_that_comes_back_claims_its_address_again(
    node: Node, come: Come
) -> None:
    url, own, talker = runtime(), address(), await come()
    first, second = await come(url), await come(url)
    await first.subscribe(own)
    await first.hang_up()
    while code(await second.subscribe(own)) != 200:
        pass  # until the node has seen the first one go
    assert await reaches(talker, own, second)


async def test_case_26_claiming_twice_in_a_row_is_one_claim(come: Come) -> None:
    owner, talker, own = await come(), await come(), address()
    ids = [await owner.send("subscribe", SM, {"resources": [own]}) for _ in range(5)]
    assert [code(await owner.answer(id_)) for id_ in ids] == [200] * 5
    assert await reaches(talker, own, owner)


async def test_case_26_a_claim_given_up_in_the_same_breath_is_free(come: Come) -> None:
    owner, other, own = await come(), await come(), address()
    claim = await owner.send("subscribe", SM, {"resources": [own]})
    release = await owner.send("unsubscribe", SM, {"resources": [own]})
    assert code(await owner.answer(claim)) == 200
    assert code(await owner.answer(release)) == 200
    assert code(await other.subscribe(own)) == 200


async def test_case_26_claims_of_a_session_that_closes_meanwhile_are_free(come: Come) -> None:
    leaving, other = await come(), await come()
    own = [address() for _ in range(100)]
    for each in own:
        await leaving.send("subscribe", SM, {"resources": [each]})
    assert await leaving.close_session() == 1000
    assert code(await other.subscribe(*own)) == 200


@pytest.mark.long
async def test_case_27_a_pool_lends_its_addresses_and_takes_them_back(
    tmp_path: Path, template: Path, come: Come
) -> None:
    pool = ["sip:one@pool.example", "sip:two@pool.example"]
    with running(tmp_path, template, GRACE_PERIOD=0.2) as own:
        own.kill()
        rows = [{"model": "msgnode.addresspool", "pk": 1, "fields": {"scheme": "sip"}}]
        rows += [
            {"model": "msgnode.pooladdress", "pk": n, "fields": {"pool": 1, "address": each}}
            for n, each in enumerate(pool)
        ]
        (tmp_path / "pool.json").write_text(json.dumps(rows))
        own.manage("loaddata", str(tmp_path / "pool.json"))
        own.start()
        first, second, talker = [await come(to=own) for _ in range(3)]
        lent = await first.allocate("sip", number=2)
        assert sorted(lent) == pool
        assert await reaches(talker, lent[0], first)
        exhausted = await create(second, {"scheme": "sip"})
        assert exhausted["code"] == 503
        assert exhausted["desc"]
        assert await delete(first, {"resource": lent[0]}) == 200
        assert await second.allocate("sip") == [lent[0]]
        await first.close_session()
        assert await talker.allocate("sip") == [lent[1]]
        await second.hang_up()
        while (await create(talker, {"scheme": "sip"}))["code"] != 200:
            pass  # until the grace of the lost session is over


async def test_case_28_zero_addresses_are_an_empty_list(come: Come) -> None:
    answer = await create(await come(), {"value": {"number": 0}})
    assert answer == {"code": 200, "value": {"allocated": []}}


async def test_case_28_a_number_that_is_none_is_refused(come: Come) -> None:
    client = await come()
    numbers: tuple[object, ...] = (-1, 1001, 10**30, 1.5, "5", "many", True, [], None)
    for number in numbers:
        answer = await create(client, {"value": {"number": number}})
        assert answer["code"] == 400, number
        assert "number" in answer["desc"]


async def test_case_28_the_largest_block_is_given(come: Come) -> None:
    assert len(set(await (await come()).allocate(number=1000))) == 1000


async def test_a_scheme_that_is_no_address_scheme_of_the_domain_is_refused(come: Come) -> None:
    client = await come()
    for scheme in ("javascript", "runtime", "domain", "mn", "", 7, None, "hyperty:", "a" * 300):
        assert (await create(client, {"scheme": scheme}))["code"] == 400, scheme
