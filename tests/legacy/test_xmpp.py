"""The XMPP gateway against a small server: what passes, what is answered, what is refused.

The numbers are those of the cases of legacy networks.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import json
import random
import time
import tracemalloc
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from msgnode.core import messages
from msgnode.core.errors import BadMessage
from msgnode.legacy import address_pool, xmpp, xmpp_rooms, xmpp_stream, xmpp_unacknowledged
from msgnode.legacy import link as links
from msgnode.legacy.network import Lost, named_address
from msgnode.legacy.xmpp_addresses import XmppAddresses, escaped, prepared, unescaped
from msgnode.legacy.xmpp_stream import Element, StanzaParser, cleaned, stanza
from msgnode.monitoring import peer_figures

from .fake_xmpp import DOMAIN, GATEWAY, STANZAS, named
from .linked import ALICE, BOB, OURS, OWN, Kept, linked

ASKS = "<request xmlns='urn:xmpp:receipts'/>"
RECEIPT = "{urn:xmpp:receipts}received"


async def test_a_message_there_is_answered_once_the_server_has_taken_it() -> None:
    async with linked() as each:
        assert await each.ask("hi Bob, <you> & me") == {"code": 200, "desc": "sent"}
        message = await each.server.expect("message")
    assert message.findtext(named("body")) == "hi Bob, <you> & me"
    assert (message.get("type"), message.get("to")) == ("chat", f"bob@{DOMAIN}")
    assert message.get("from") == "alice%a.example@gw.legacy.example"


async def test_case_1_a_receipt_comes_from_the_address_of_who_was_written_to() -> None:
    async with linked() as each:
        each.server.message("hello Alice", inside=ASKS, id="m1")
        receipt = await each.server.expect("message")
        (told,) = each.created()
    assert (told["from"], told["to"]) == (BOB, OURS)
    assert told["body"]["value"] == {"type": "chat", "content": "hello Alice"}
    found = receipt.find(RECEIPT)
    assert found is not None
    assert found.get("id") == "m1"
    assert receipt.get("from") == "alice%a.example@gw.legacy.example"


async def test_case_3_an_unknown_user_is_named_in_the_answer() -> None:
    async with linked() as each:
        body = await each.ask("hi", to=f"xmpp://{DOMAIN}/nobody")
        assert body["code"] == 404
        assert f"nobody@{DOMAIN}" in body["desc"]


async def test_case_5_a_hundred_messages_have_a_barrier_each_twenty_and_keep_their_order() -> None:
    async with linked() as each:
        ids = [each.send(f"m{number}") for number in range(100)]
        assert [await each.answer(id_) for id_ in ids] == [{"code": 200, "desc": "sent"}] * 100
        assert each.server.texts() == [f"m{number}" for number in range(100)]
        assert each.server.pings == [20, 40, 60, 80, 100]


async def test_case_6_what_a_lost_connection_may_have_lost_is_sent_again_with_the_same_id() -> None:
    async with linked() as each:
        each.server.answers_pings = False
        ids = [each.send(f"m{number}") for number in range(50)]
        await each.until(lambda: len(each.server.texts()) == 50)
        first = [message.get("id") for message in each.server.of("message")]
        assert each.server.pings[:2] == [20, 40]
        each.server.answers_pings = True
        each.server.pings.clear()
        each.server.cut()
        assert [await each.answer(id_) for id_ in ids] == [{"code": 200, "desc": "sent"}] * 50
        again = [message.get("id") for message in each.server.of("message")][50:]
    assert again == first
    assert len(set(first)) == 50
    assert each.server.pings == [70, 90, 100]  # never before the messages that it is about


async def test_case_6_nobody_but_the_server_says_what_it_has_taken_or_refused() -> None:
    async with linked() as each:
        each.server.answers_pings = False
        id_ = each.send("hi Bob")
        message = await each.server.expect("message")
        await each.until(lambda: each.server.pings)
        bob = f"from='bob@{DOMAIN}/phone' to='{GATEWAY}'"
        for number in range(9):
            each.server.say(f"<iq type='result' id='p{number}' {bob}/>")
        carol = f"from='carol@{DOMAIN}/1' to='{message.get('from')}'"
        each.server.say(f"<message type='error' id='{message.get('id')}' {carol}/>")
        each.server.message("all was read")
        await each.until(each.created)
        assert not [told for told in each.node.said if told["type"] == "response"]
        each.server.answers_pings = True
        each.server.cut()
        assert await each.answer(id_) == {"code": 200, "desc": "sent"}


async def test_case_7_a_server_that_comes_back_gets_what_waits_and_one_that_does_not_is_504(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(xmpp_unacknowledged, "RESEND_SECONDS", 0.5)
    async with linked() as each:
        each.server.answers_pings = False
        sent = each.send("was on the wire")
        await each.until(each.server.texts)
        await each.server.stop()
        await each.until(lambda: each.link.state == "waiting")
        waits = each.send("waits")
        assert (await each.answer(sent))["code"] == 504
        each.server.answers_pings = True
        await each.server.start()
        assert await each.answer(waits) == {"code": 200, "desc": "sent"}


async def test_case_7_a_stored_message_outlives_the_connection() -> None:
    async with linked() as each:
        await each.server.stop()
        await each.until(lambda: each.link.state == "waiting")
        id_ = each.send("later", store=True)
        await each.server.start()
        assert await each.answer(id_) == {"code": 200, "desc": "sent"}


async def test_case_8_a_second_worker_waits_until_the_first_has_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(links, "CONFLICT_SECONDS", 0.1)
    async with linked() as first:
        server = first.server
        node_of_second = linked(server)
        second = asyncio.create_task(node_of_second.__aenter__())
        await server.until(lambda: "conflict" in server.refused)
        assert first.link.state == "live"
        first.link.network.abort()
        first.link._is_stopped = True
        each = await second
        assert each.link.state == "live"
        await node_of_second.__aexit__(None, None, None)


async def test_case_9_a_wrong_secret_is_tried_once_and_an_alarm_says_so() -> None:
    async with linked(secret="another") as each:
        await each.until(lambda: each.link.state == "refused")
        assert "not-authorized" in each.link.last_error
        assert "another" not in each.link.last_error
        assert [kind for kind, _ in each.node.alarms] == ["legacy-refused"]
        assert each.server.refused == ["not-authorized"]
        assert links.REFUSED_SECONDS == 300.0


async def test_case_10_a_text_that_is_too_long_is_413_and_the_stream_lives() -> None:
    async with linked() as each:
        assert (await each.ask("x" * 300 * 1024))["code"] == 413
        assert (await each.ask("<" * 100_000))["code"] == 413  # as XML it is four times as long
        assert (await each.ask("short"))["code"] == 200
        assert each.server.opened == 1


@pytest.mark.parametrize("char", ["\0", "\x0b", "\uffff", "\ufffe"])
async def test_case_10_a_character_that_xml_does_not_have_is_left_out(char: str) -> None:
    async with linked() as each:
        assert (await each.ask(f"a{char}b"))["code"] == 200
        assert (await each.ask(char))["code"] == 400
        assert each.server.texts() == ["ab"]
        assert each.server.opened == 1


def test_case_10_a_lone_surrogate_is_left_out() -> None:
    assert cleaned("a\ud800b") == "ab"


@pytest.mark.parametrize(
    "sender", ["bob@legacy.example", "alice@gw.legacy.example@legacy.example", "x@other/gw", ""]
)
def test_case_11_a_stanza_from_another_domain_is_not_made(sender: str) -> None:
    with pytest.raises(ValueError, match="is not of the domain"):
        stanza(GATEWAY, "message", {"from": sender})


async def test_case_12_a_probe_is_answered_with_her_presence_or_unavailable() -> None:
    async with linked() as each:
        for local, type_ in (("alice%a.example", None), ("nobody%a.example", "unavailable")):
            each.server.taken.clear()
            each.server.say(f"<presence type='probe' from='bob@{DOMAIN}' to='{local}@{GATEWAY}'/>")
            told = await each.server.expect("presence")
            assert told.get("type") == type_
            assert (told.get("from") or "").startswith(f"{local}@{GATEWAY}")


async def test_case_13_who_there_has_subscribed_a_user_sees_her_come_and_go() -> None:
    async with linked() as each:
        each.server.say(
            f"<presence type='subscribe' from='bob@{DOMAIN}' to='alice%a.example@{GATEWAY}'/>"
        )
        await each.server.expect("presence", type="subscribed")
        await each.until(lambda: [p for p in each.server.of("presence") if not p.get("type")])
        each.node.registry[ALICE][OURS]["status"] = "disconnected"
        async with asyncio.timeout(2.0):
            await each.server.expect("presence", type="unavailable")
        each.node.registry[ALICE][OURS]["status"] = "live"
        each.server.taken.clear()
        async with asyncio.timeout(2.0):
            await each.until(lambda: [p for p in each.server.of("presence") if not p.get("type")])


async def test_case_13_a_user_there_is_subscribed_as_the_contact_of_the_gateway() -> None:
    async with linked() as each:
        each.link.subscriptions.want([f"{BOB}/status"])
        asked = await each.server.expect("presence", type="subscribe")
        assert (asked.get("from"), asked.get("to")) == (GATEWAY, f"bob@{DOMAIN}")
        each.server.say(f"<presence type='subscribed' from='bob@{DOMAIN}' to='{GATEWAY}'/>")
        await each.until(lambda: each.link.subscriptions.held)
        each.server.say(f"<presence from='bob@{DOMAIN}/phone' to='{GATEWAY}'/>")
        each.server.say(f"<presence type='unavailable' from='bob@{DOMAIN}/phone' to='{GATEWAY}'/>")
        told = await each.until(lambda: [s for s in each.node.said if s["type"] == "update"][1:])
        assert (told[0]["from"], told[0]["to"]) == (BOB, f"{BOB}/status")
        values = [s["body"]["value"] for s in each.node.said if s["type"] == "update"]
    assert values == ["live", "disconnected"]


async def test_case_13_a_user_who_refuses_is_403() -> None:
    async with linked() as each:
        each.link.subscriptions.want([f"{BOB}/status"])
        await each.server.expect("presence", type="subscribe")
        each.server.say(f"<presence type='unsubscribed' from='bob@{DOMAIN}' to='{GATEWAY}'/>")
        await each.until(lambda: getattr(each.node, "granted", None))
        assert each.node.granted.code == 403


ROOM = f"picnic@rooms.{DOMAIN}"
OBJECT = f"comm://{DOMAIN}/{ROOM}"


@pytest.mark.parametrize("room", ["x@elsewhere.example", f"x@{GATEWAY}", f"X@rooms.{DOMAIN}", "x"])
async def test_case_14_a_room_is_below_the_domain_of_the_network(room: str) -> None:
    async with linked() as each:
        to = f"comm://{DOMAIN}/{room}/subscription"
        assert (await each.ask({}, to=to, type_="subscribe"))["code"] == 404
        assert not each.server.taken


async def test_case_14_15_who_joins_has_a_name_of_his_own_and_leaves_with_his_runtime_or_the_stream(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(xmpp_rooms, "LOOK_SECONDS", 0.1)
    async with linked() as each:
        each.server.users.add("picnic")
        assert (await each.ask("too early", to=f"{OBJECT}/children/"))["code"] == 403

        async def join() -> None:
            each.server.taken.clear()
            id_ = each.send({"subscriber": OURS}, to=f"{OBJECT}/subscription", type_="subscribe")
            joins = await each.server.expect("presence", to=f"{ROOM}/alice")
            taken = f"<error type='cancel'><conflict xmlns='{STANZAS}'/></error>"
            head = f"from='{ROOM}/alice' to='{joins.get('from')}'"
            each.server.say(f"<presence type='error' {head}>{taken}</presence>")
            await each.server.expect("presence", to=f"{ROOM}/alice-2")
            own = "<x xmlns='http://jabber.org/protocol/muc#user'><status code='110'/></x>"
            each.server.say(f"<presence {head.replace('/alice', '/alice-2')}>{own}</presence>")
            assert (await each.answer(id_))["value"]["data"]["participants"] == ["alice-2"]

        await join()
        writes = each.send("lost", to=f"{OBJECT}/children/")
        await each.server.expect("message", type="groupchat")
        each.server.cut()
        assert (await each.answer(writes))["code"] == 502
        await each.until(lambda: each.server.opened == 2)
        await each.live()
        assert (await each.ask({}, to=OBJECT, type_="read"))["code"] == 403
        await join()
        del each.node.users[OURS]
        await each.server.expect("presence", type="unavailable", to=f"{ROOM}/alice-2")


async def test_case_16_a_pool_lends_an_address_until_the_runtime_has_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(address_pool, "LOOK_SECONDS", 0.1)
    async with linked(pool=2) as each:
        guests = [f"hyperty://{OWN}/g{number}" for number in range(3)]
        each.node.runtimes = {guest: guest.replace("hyperty", "runtime") for guest in guests}
        for guest in guests[:2]:
            assert (await each.ask("hi", sender=guest))["code"] == 200
        assert [kind for kind, _ in each.node.alarms] == ["legacy-pool-empty"]
        assert (await each.ask("hi", sender=guests[2]))["code"] == 503
        each.server.message("for the first", to="guest001")
        (told,) = await each.until(each.created)
        assert told["to"] == guests[0]
        del each.node.runtimes[guests[0]]
        await each.until(lambda: not each.link.network.pool.runtime_of("guest001"))  # type: ignore[attr-defined]
        assert (await each.ask("hi", sender=guests[2]))["code"] == 503  # it rests
        refused = each.link.exchange.counters.refused
        each.server.message("late", to="guest001")
        await each.server.expect("message", type="error")
        assert each.link.exchange.counters.refused == refused + 1
        assert len(each.created()) == 1


async def test_case_16_the_presence_of_a_lent_address_cannot_be_subscribed() -> None:
    async with linked(pool=2) as each:
        each.server.say(f"<presence type='subscribe' from='bob@{DOMAIN}' to='guest001@{GATEWAY}'/>")
        await each.server.expect("presence", type="unsubscribed")


async def test_case_58_the_next_worker_knows_contacts_and_lent_addresses() -> None:
    kept, guest = Kept(), f"hyperty://{OWN}/g"
    async with linked(pool=2, kept=kept) as each:
        each.node.runtimes = {guest: f"runtime://{OWN}/g"}
        assert (await each.ask("hi", sender=guest))["code"] == 200
        each.server.say(
            f"<presence type='subscribe' from='bob@{DOMAIN}' to='alice%a.example@{GATEWAY}'/>"
        )
        await each.server.expect("presence", type="subscribed")
    assert list(kept.rows) == [
        ("lent", f"runtime://{OWN}/g", "guest001"), ("contact", ALICE, f"bob@{DOMAIN}"),
    ]  # fmt: skip
    async with linked(pool=2, kept=kept) as each:
        each.node.runtimes = {guest: f"runtime://{OWN}/g"}
        presence = await each.server.expect("presence")  # bob has said nothing
        assert (presence.get("type"), presence.get("to")) == (None, f"bob@{DOMAIN}")
        assert (await each.ask("hi again", sender=guest))["code"] == 200
        message = await each.server.expect("message")
        assert message.get("from") == f"guest001@{GATEWAY}"
        each.server.say(
            f"<presence type='unsubscribe' from='bob@{DOMAIN}' to='alice%a.example@{GATEWAY}'/>"
        )
        await each.server.expect("presence", type="unsubscribed")
    assert [kind for kind, _, _ in kept.rows] == ["lent"]


async def test_without_a_pool_who_is_not_logged_in_is_403() -> None:
    async with linked() as each:
        guest = f"hyperty://{OWN}/g"
        each.node.runtimes = {guest: f"runtime://{OWN}/g"}
        assert (await each.ask("hi", sender=guest))["code"] == 403


def user(name: str) -> str:
    return f"user://{OWN}/{name}"


AT = XmppAddresses(OWN, DOMAIN, GATEWAY)


def test_case_17_ascii_is_prepared_as_the_tables_say() -> None:
    for char in map(chr, range(128)):
        alone, beside = prepared(char), prepared(f"é{char}")  # which is looked up in the tables
        assert beside == (f"é{alone}" if alone else ""), char
    assert (len(prepared("A" * 1_023)), prepared("A" * 1_024)) == (1_023, "")


@pytest.mark.parametrize(
    "name", ["Alice@a.example", "paypa\u217c@a.example", "\uff41lice@a.example"]
)
def test_case_17_a_name_that_the_server_would_change_is_refused(name: str) -> None:
    assert prepared(name.partition("@")[0]) in ("alice", "paypal")
    with pytest.raises(BadMessage, match="cannot be expressed"):
        AT.local_of(user(name))


NAMES = st.text("aA\uff41l\u217c@%\\40 .'25c", min_size=1, max_size=6)


@given(NAMES, NAMES)
def test_case_17_no_two_users_have_one_address_there(one: str, other: str) -> None:
    found: dict[str, str] = {}
    for url in {named_address(f"user://{OWN}/", name) for name in (one, other)}:
        with suppress(BadMessage):
            local = AT.local_of(url)
            assert prepared(local) == local
            assert found.setdefault(local, url) == url


@pytest.mark.parametrize(
    ("name", "local"),
    [
        ("alice@a.example", "alice%a.example"),
        ("alice", "alice"),
        ("d'artagnan@a.example", r"d\27artagnan%a.example"),
        ("a&b@a.example", r"a\26b%a.example"),
        ("a%25b@a.example", r"a%b\40a.example"),
        ("j\u00fcrgen@a.example", "j\u00fcrgen%a.example"),
        ("x" * 1_013 + "@a.example", "x" * 1_013 + "%a.example"),
    ],
)
def test_case_18_a_name_comes_back_as_it_was(name: str, local: str) -> None:
    assert len(local.encode()) <= 1_023
    assert AT.local_of(user(name)) == local
    assert AT.user_of(local) == user(name)


@pytest.mark.parametrize("name", ["", "x" * 1_014 + "@a.example", "a%b", "a%25b"])
def test_case_18_a_name_that_cannot_come_back_is_refused(name: str) -> None:
    with pytest.raises(BadMessage, match="cannot be expressed"):
        AT.local_of(user(name))


@pytest.mark.parametrize("text", ["a b", "'", "/", "@", r"\20", r"\\", "\\", r"a\5c40", '<>&"'])
def test_case_18_escapes_come_back(text: str) -> None:
    assert unescaped(escaped(text)) == text


@pytest.mark.parametrize("local", ["", "%", "@", r"\40", "a" * 3_000, "\u202e", "\0", " "])
def test_case_18_any_name_from_there_is_a_user_or_nobody(local: str) -> None:
    found = AT.user_of(local)
    assert not found or found.startswith("user://")


@pytest.mark.parametrize("to", [f"xmpp://{DOMAIN}", f"xmpp://{DOMAIN}/a%40b.example", f"{BOB}%00"])
async def test_case_19_an_address_that_names_nobody_there_is_refused_and_nothing_is_sent(
    to: str,
) -> None:
    async with linked() as each:
        assert (await each.ask("hi", to=to))["code"] == 400
        assert not each.server.taken


async def test_case_21_what_a_server_that_stalls_does_not_read_is_bounded_and_passes_later() -> (
    None
):
    async with linked() as each:
        assert each.server._writer is not None
        each.server._writer.transport.pause_reading()
        network, queue = each.link.network, each.link.exchange.queue
        ids: list[str] = []
        while network.has_room:  # the kernels of some machines take several megabytes
            assert len(ids) < 2_000
            ids += [each.send("x" * 100_000) for _ in range(20)]
            await each.until(lambda: not (network.has_room and queue))
        ids += [each.send("x" * 100_000) for _ in range(250)]
        assert queue.bytes <= links.QUEUE_BYTES
        each.server._writer.transport.resume_reading()
        codes = [(await each.answer(id_))["code"] for id_ in ids]
        assert set(codes) == {200, 503}
        assert len(each.server.texts()) == codes.count(200)


async def test_case_21_a_server_that_acknowledges_nothing_has_few_large_messages_under_way() -> (
    None
):
    async with linked() as each:
        each.server.answers_pings = False
        ids = [each.send("x" * 100_000) for _ in range(30)]
        await each.until(lambda: len(each.server.texts()) == 30)
        ids += [each.send("x" * 100_000) for _ in range(30)]
        await each.until(lambda: len(each.server.texts()) == 42)  # 4 MiB
        assert not each.link.network.has_room
        each.server.answers_pings = True
        each.server.cut()
        assert {(await each.answer(id_))["code"] for id_ in ids} == {200}


async def test_case_22_who_sends_too_much_is_told_to_wait() -> None:
    async with linked(per_minute=20) as each:
        for number in range(21):
            each.server.message(f"m{number}", id=f"m{number}")
        refusal = await each.server.expect("message", type="error")
        assert refusal.get("id") == "m20"
        assert refusal.find(".//{*}resource-constraint") is not None
        assert len(each.created()) == 20
        carols = {"from": f"carol@{DOMAIN}/1"}
        each.server.message("another's", **carols)
        await each.until(lambda: len(each.created()) == 21)


@pytest.mark.parametrize("type_", ["error", "headline", "groupchat"])
async def test_case_23_what_is_no_message_to_her_is_not_answered(type_: str) -> None:
    async with linked() as each:
        each.server.message("no", to="nobody%a.example", type=type_, id="1")
        each.server.message("yes", to="nobody%a.example", id="2")
        await each.server.expect("message", type="error", id="2")
        assert len(each.server.of("message")) == 1


@pytest.mark.parametrize("to", ["carol%b.example", f"bob%{DOMAIN}", r"bob\40legacy.example", "bob"])
async def test_case_23_what_a_gateway_sends_here_for_a_user_of_another_network_goes_no_further(
    to: str,
) -> None:
    async with linked() as each:
        each.server.message("hi", to=to, id="m1", inside=ASKS)
        refusal = await each.server.expect("message", type="error", id="m1")
        assert refusal.find(".//{*}service-unavailable") is not None
        each.server.message("last", inside=ASKS, id="m2")  # all before it is over
        await each.server.until(lambda: len(each.server.of("message")) == 2)
        assert [told["body"]["value"]["content"] for told in each.created()] == ["last"]
        counters = each.link.exchange.counters
        assert (counters.sent, counters.refused) == (0, 1)
        assert "nobody here is" in each.link.last_error


async def test_who_is_not_there_is_told_to_who_writes_from_there() -> None:
    async with linked() as each:
        each.node.codes[OURS] = 403
        each.server.message("hi", id="m1")
        refusal = await each.server.expect("message", type="error", id="m1")
        assert refusal.find(".//{*}forbidden") is not None


async def test_a_hyperty_that_has_gone_is_replaced_by_the_one_that_the_registry_has() -> None:
    async with linked() as each:
        other = f"hyperty://{OWN}/2"
        assert (await each.ask("hi"))["code"] == 200
        each.node.codes[OURS] = 404
        each.node.registry[ALICE] = {other: {"status": "live"}}
        each.node.users[other] = ALICE
        each.server.message("answer")
        told = await each.until(lambda: each.created()[1:])
        assert (told[0]["to"], told[0]["body"]["value"]["content"]) == (other, "answer")


async def test_another_domain_s_users_are_not_heard() -> None:
    async with linked() as each:
        each.server.message("hi", **{"from": "mallory@elsewhere.example/1"})
        each.server.message("hi", **{"from": f"x@{GATEWAY}"})  # our own comes back
        each.server.message("last")
        await each.until(each.created)
        assert len(each.created()) == 1
        assert each.link.exchange.counters.refused == 2


async def test_a_user_there_is_found_by_reading_his_address() -> None:
    async with linked() as each:
        each.server.on_stanza = lambda asked: each.server._answer(asked, "result")
        body = await each.ask({}, type_="read")
        assert body["value"][BOB] == {
            "url": BOB, "hypertyID": BOB, "resources": ["chat", "audio", "video"],
            "dataSchemes": ["comm", "connection"], "user": f"user://{DOMAIN}/bob@{DOMAIN}",
            "userID": f"user://{DOMAIN}/bob@{DOMAIN}", "status": "live",
        }  # fmt: skip
        registry = f"domain://registry.{DOMAIN}"
        for resource in (f"user://{DOMAIN}/bob", f"/hyperty/idp-identifier/bob@{DOMAIN}"):
            said = await each.ask({"resource": resource}, type_="read", to=registry)
            assert said["value"] == body["value"]
        named = {"resource": f"user://{DOMAIN}/bob", "criteria": {"resources": ["fax"]}}
        assert (await each.ask(named, type_="read", to=registry))["code"] == 404
        assert (await each.ask({"resource": "x"}, type_="read", to=registry))["code"] == 501
        assert (await each.ask({}, type_="read", to=f"xmpp://{DOMAIN}/nobody"))["code"] == 404


async def test_a_receipt_is_waited_for_where_the_row_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(xmpp_unacknowledged, "RECEIPT_SECONDS", 0.3)
    async with linked(wants_receipts=True) as each:
        id_ = each.send("one")
        message = await each.server.expect("message")
        forged = f"<received xmlns='urn:xmpp:receipts' id='{message.get('id')}'/>"
        head = f"to='alice%a.example@{GATEWAY}'>{forged}</message>"
        each.server.say(f"<message from='carol@{DOMAIN}' {head}")  # it was not for her
        each.server.say(f"<message from='bob@{DOMAIN}/phone' {head}")
        assert await each.answer(id_) == {"code": 200, "desc": "received"}
        assert await each.ask("two") == {"code": 200, "desc": "sent"}


async def test_a_frozen_server_is_left_and_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(xmpp, "PING_SECONDS", 0.3)
    async with linked() as each:
        each.server.answers_pings = False
        id_ = each.send("hi")
        await each.until(lambda: each.server.opened == 2)
        each.server.answers_pings = True
        assert (await each.answer(id_))["code"] == 200


HOSTILE = {
    "depth": "<a>" * 10_000,
    "attributes": "<a " + " ".join(f"a{n}='1'" for n in range(100_000)) + "/>",
    "doctype": "<!DOCTYPE a [<!ENTITY b 'c'>]><a/>",
    "elements": "<m>" + "<a/>" * 100_000 + "</m>",
    "endless": "<m>" + "x" * 1_100_000,
    "no XML": "<<<",
}


@pytest.mark.parametrize("what", HOSTILE)
async def test_case_20_a_hostile_stream_ends_its_connection_alone(what: str) -> None:
    async with linked() as each:
        each.server.say(HOSTILE[what])
        await each.until(lambda: each.server.opened == 2)
        await each.live()
        assert (await each.ask("after"))["code"] == 200


def test_case_20_mutated_stanzas_never_raise_anything_but_that_the_stream_is_lost() -> None:
    head = (
        b"<stream:stream xmlns='jabber:component:accept' id='1' "
        b"xmlns:stream='http://etherx.jabber.org/streams'>"
    )
    good = (
        f"<message from='bob@{DOMAIN}/1' to='alice%a.example@{GATEWAY}'>"
        "<body>hi &amp; ho</body></message>"
    )
    numbers = random.Random(48)
    taken: list[Element] = []

    def parse(piece: bytes) -> None:
        parser = StanzaParser(lambda _: None, taken.append)
        parser.feed(head)
        with suppress(Lost):
            parser.feed(piece)

    def mutated() -> bytes:
        piece = bytearray(good.encode())
        for _ in range(numbers.randint(1, 4)):
            place = numbers.randrange(len(piece))
            match numbers.randrange(3):
                case 0:
                    piece[place] = numbers.randrange(256)
                case 1:
                    del piece[place : place + numbers.randint(1, 9)]
                case _:
                    piece[place:place] = numbers.choice([b"<", b">", b"&", b"'", b"<!--", b"<?x"])
        return bytes(piece)

    tracemalloc.start()
    for _ in range(2_000):
        parse(mutated())
        taken.clear()
    gc.collect()
    before, _ = tracemalloc.get_traced_memory()
    for _ in range(10_000):
        parse(mutated())
        taken.clear()
    gc.collect()
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert after - before < 200_000


def test_a_stream_in_pieces_of_one_byte_is_the_same_stream() -> None:
    told: list[Any] = []
    parser = StanzaParser(lambda of: told.append(of["id"]), told.append)
    text = (
        "<?xml version='1.0'?><stream:stream xmlns='jabber:component:accept' id='7' "
        "xmlns:stream='http://etherx.jabber.org/streams'><iq id='1'/><message><body>\u00e4</body>"
        "</message>"
    )
    for byte in text.encode():
        parser.feed(bytes([byte]))
    assert told[0] == "7"
    assert [each.local_name for each in told[1:]] == ["iq", "message"]
    assert told[2].children[0].text == "\u00e4"


async def test_an_answer_that_cannot_be_read_is_one_all_the_same() -> None:
    async with linked() as each:
        each.node.codes[OURS] = None
        each.server.message("hello Alice", id="m1")
        (told,) = await each.until(each.created)
        reply = messages.reply(messages.parse(json.dumps(told).encode()), {"code": 1})
        each.node.outlet.write(reply.replace(b'"code":1', b'"code":1e999'))
        refusal = await each.server.expect("message")
    assert (refusal.get("type"), refusal.get("id")) == ("error", "m1")


async def test_what_is_refused_is_told_in_words_that_every_database_stores() -> None:
    async with linked() as each:
        each.link.refused("a\0b\ud800" + "x" * 9_999)
        assert each.link.last_error.startswith("refused: a b x")
        assert len(each.link.last_error) <= 300
        assert each.link.exchange.into.error.isprintable()


STREAM = (
    b"<?xml version='1.0'?><stream:stream xmlns='jabber:component:accept' id='7' "
    b"xmlns:stream='http://etherx.jabber.org/streams' xmlns:x='urn:x'>"
)


@pytest.mark.parametrize("size", [1, 7, 64, 100, 4_096])
def test_a_parser_that_is_replaced_loses_nothing_wherever_a_read_ends(
    monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr(xmpp_stream, "RENEWED_BYTES", 100)
    told: list[Element] = []
    parser = StanzaParser(lambda _: None, told.append)
    first = parser._parser
    stanzas = [
        f"<message id='{n}>' to='a'><body>{n} &gt; {'ä' * (n % 9)}</body><x:y/></message> <iq/>"
        for n in range(50)
    ]
    text = STREAM + "".join(stanzas).encode()
    for start in range(0, len(text), size):
        parser.feed(text[start : start + size])
    assert parser._parser is not first or size > len(text)
    bodies = [each for each in told if each.local_name == "message"]
    assert len(told) == 2 * len(bodies)
    assert [each.get("id") for each in bodies] == [f"{n}>" for n in range(50)]
    names = {tuple(child.name for child in each.children) for each in bodies}
    assert names == {("jabber:component:accept body", "urn:x y")}
    assert bodies[8].children[0].text == f"8 > {'ä' * 8}"
    with pytest.raises(Lost, match="ended the stream"):
        parser.feed(b"</stream:stream>")


@pytest.mark.parametrize("name", [b'n%x=""', b'xmlns:n%x="u"'])
def test_names_that_users_there_think_of_are_not_kept(
    monkeypatch: pytest.MonkeyPatch, name: bytes
) -> None:
    monkeypatch.setattr(xmpp_stream, "RENEWED_BYTES", 50_000)
    parser, numbers = StanzaParser(lambda _: None, lambda _: None), itertools.count()
    parser.feed(STREAM)
    tracemalloc.start()
    for _ in range(200):
        some = [b"<a %b/>" % b" ".join(name % next(numbers) for _ in range(40)) for _ in range(20)]
        parser.feed(b"<message>%b</message>" % b"".join(some))
    gc.collect()
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept < 3_000_000, f"{next(numbers)} names"


async def test_an_idle_network_keeps_nobody_busy() -> None:
    async with linked() as each:
        assert (await each.ask("hi"))["code"] == 200
        await each.until(lambda: each.link._looks_at - time.monotonic() > 20.0)


async def test_a_network_has_the_metrics_of_a_peer() -> None:
    async with linked() as each:
        served: Any = SimpleNamespace(links={1: each.link})

        def told(name: str, **labels: str) -> float:
            of = {"peer": DOMAIN, **labels}
            metrics = {metric.name: metric for metric in peer_figures.peers(served)}
            samples = metrics[f"msgnode_peer_{name}"].samples
            (found,) = [sample.value for sample in samples if sample.labels == of]
            return float(found)

        assert told("state", state="live") == 1
        assert (await each.ask("hi"))["code"] == 200
        each.server.message("hi")
        each.server.message("?", to="nobody%a.example", id="m1")
        await each.server.expect("message", type="error", id="m1")
        outcomes = ("sent", "received", "refused", "expired", "failed")
        assert [told("messages", outcome=name) for name in outcomes] == [1, 2, 1, 0, 0]
        assert told("round_trip_seconds") > 0
        each.server.answers_pings = False
        await each.server.stop()
        await each.until(lambda: each.link.state != "live")
        assert told("state", state=each.link.state) == 1
        assert told("restarts") >= 1
        each.send("waits")
        await each.until(lambda: told("queue") == 1)
        await each.until(lambda: told("queue_oldest_seconds") > 0)
        assert told("sandbox_bytes") == told("sandbox_cpu_seconds") == told("subscriptions") == 0


async def test_case_57_who_writes_is_vouched_for_by_a_trusted_network_alone() -> None:
    async with linked() as each:
        each.server.message("hello")
        await each.until(each.created)
        assert each.node.vouched is None
        for sender in (f"alice%{OWN}@{GATEWAY}", f"alice@{OWN}"):  # addresses of ours
            each.server.message("I am Alice", **{"from": sender})
        await each.until(lambda: each.link.exchange.counters.refused == 2)
        assert len(each.created()) == 1
    async with linked(trusted=True) as each:
        each.server.message("hello")
        await each.until(each.created)
        found = each.node.vouched
        assert found is not None
        assert (found.issuer, found.subject) == (f"xmpp:{DOMAIN}", f"bob@{DOMAIN}")
        assert found.is_known_as(f"user://{DOMAIN}/bob@{DOMAIN}")
