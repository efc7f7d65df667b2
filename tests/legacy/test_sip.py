"""The SIP gateway against a small proxy, whose other side the test plays."""

from __future__ import annotations

import asyncio
import random
import ssl
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from msgnode.legacy.network import Lost
from msgnode.legacy.sip_messages import (
    MAX_HEAD,
    Framer,
    Incoming,
    challenge_in,
    parsed,
    response,
)
from tests.certificates import certificate

from .fake_proxy import ALICES, BOB, SDP, FakeProxy, sip_linked
from .kamailio import DOMAIN, GATEWAY, Kamailio, Sip, rtpengine, sipp
from .linked import OURS, OWN, REGISTRY
from .prosody import Prosody

TEXT = "Content-Type: text/plain"
GUEST = f"hyperty://{OWN}/guest"
SIGNED = "Contact: <sip:bob@127.0.0.1:9>"


def message(*more: str, first: str = f"MESSAGE {ALICES} SIP/2.0", body: str = "hello") -> bytes:
    lines = [first, "Via: SIP/2.0/TCP 127.0.0.1:1;branch=z9hG4bKx",
             f"From: <sip:bob@{DOMAIN}>;tag=1", f"To: <{ALICES}>", "Call-ID: c1",
             "CSeq: 1 MESSAGE", *more]  # fmt: skip
    return "\r\n".join((*lines, "", body)).encode()


GOOD = message("Content-Length: 5", TEXT)


# --- the parser -----------------------------------------------------------------------------------


def cut(*pieces: bytes) -> tuple[list[bytes], int]:
    """The bodies of what pieces of a stream have, and the pings."""
    found: list[bytes] = []
    pings: list[int] = []
    framer = Framer(lambda each: found.append(each.body), lambda: pings.append(1))
    for piece in pieces:
        framer.feed(piece)
    return found, len(pings)


def test_case_46_messages_are_cut_alike_however_they_come() -> None:
    stream = b"\r\n" + GOOD + b"\r\n\r\n" + GOOD + GOOD
    assert cut(stream) == ([b"hello"] * 3, 1)
    assert cut(*(stream[n : n + 1] for n in range(len(stream)))) == ([b"hello"] * 3, 1)


@pytest.mark.parametrize(
    "more",
    [(), ("Content-Length: -1",), ("Content-Length: 99999",), ("Content-Length: 5", "l: 6"),
     ("Content-Length: 5x",), ("Content-Length: \u00b2",), ("Content-Length: 999999999999",),
     ("X: " + "x" * 20_000,)],
)  # fmt: skip
def test_case_47_a_stream_that_cannot_be_cut_is_given_up(more: tuple[str, ...]) -> None:
    with pytest.raises(Lost):
        cut(message(*more))
    with pytest.raises(Lost):
        cut(b"x" * (MAX_HEAD + 4))


@given(st.binary(max_size=300), st.integers(0, len(GOOD)), st.integers(0, 40))
def test_case_48_whatever_comes_is_a_message_or_a_fault(data: bytes, at: int, gone: int) -> None:
    made = parsed(GOOD[:at] + data + GOOD[at + gone :])
    if made.method and not made.code and made.first("via"):
        response(made, 400 if made.fault else 200, "t", made.fault)
    challenge_in(Incoming(code=401, headers={"www-authenticate": [data.decode("latin-1")]}))


def test_case_48_mutated_messages_neither_raise_nor_take_long() -> None:
    chance = random.Random(48)
    texts = [b"Via: SIP / 2.0 / UDP a;branch=", b'"', b"<", b">", b",", b";", b"\r\n ", b"%",
             b"\xff", b"\0", b"=", b"sip:", b"\r\n\r\n", b"()", b"a" * 300, b"tag=x;tag=y",
             b"self=1"]  # fmt: skip
    for _ in range(2_000):
        data = bytearray(GOOD)
        for _ in range(chance.randint(1, 6)):
            place = chance.randrange(len(data))
            data[place : place + chance.choice((0, 1, 9))] = chance.choice(texts)
        made = parsed(bytes(data))
        if made.method and not made.code and made.first("via"):
            response(made, 400 if made.fault else 200, "t", made.fault)


def test_case_48_a_digit_that_is_no_number_is_none() -> None:
    assert parsed(GOOD.replace(b"CSeq: 1", "CSeq: \u00b2".encode())).fault
    assert parsed(message("Max-Forwards: \u00b2")).number_in("max-forwards") is None
    assert not parsed(message(first="SIP/2.0 \u00b2\u00b2\u00b2 OK")).code


def test_case_48_torture_of_rfc_4475_is_read_or_refused() -> None:
    strange = message(
        "TO :\r\n sip:vivekg@chair-dnrc.example.com ;   tag    = 1918181833n",
        "Content-Length: 5", 'Contact: "Quoted string \\"\\"" <sip:jdrosen@example.com>',
    ).replace(f"To: <{ALICES}>\r\n".encode(), b"")  # fmt: skip
    made = parsed(strange)
    assert (made.fault, made.to_tag) == ("", "1918181833n")
    for wrong in (
        GOOD.replace(b"CSeq: 1", b"CSeq: 36893488147419103232"),
        GOOD.replace(b"CSeq: 1 MESSAGE", b"CSeq: 1 INVITE"),
        GOOD.replace(b"From: <sip", b'From: "Unclosed <sip'),
        GOOD.replace(b"sip:alice", b"sip:al ice", 1),
        GOOD.replace(b"Call-ID: c1\r\n", b""),
        GOOD.replace(b"From:", b"From: <sip:a@b>\r\nFrom:"),
        GOOD.replace(b"Call-ID: c1", b"Call-ID: \xff\xfe"),
        GOOD.replace(b"Call-ID: c1", b"Call-ID: c1\nX: y"),
        GOOD.replace(b"Call-ID: c1", b"Call-ID: c1\0"),
    ):
        made = parsed(wrong)
        assert made.fault or not made.method, wrong
        assert not made.method or response(made, 400, reason=made.fault).startswith(
            b"SIP/2.0 400"
        ), wrong


# --- registration and messages --------------------------------------------------------------------


async def test_case_32_what_the_registrar_grants_and_wants_is_obeyed() -> None:
    now = 0.0
    proxy = await FakeProxy().start()
    proxy.on_register = lambda one: (
        (423, "", "Min-Expires: 900") if one["expires"] == "600" else (
            200, "", f"Contact: {one['contact'].partition(';expires')[0]};expires=100")
    )  # fmt: skip
    async with sip_linked(proxy, clock=lambda: now) as linked:
        assert [one["expires"] for one in proxy.registered[-4:]] == ["900"] * 4
        number = len(proxy.registered)
        now = 79.0
        linked.link.network.tick()
        assert len(proxy.registered) == number
        now = 81.0
        linked.link.network.tick()
        await linked.until(lambda: len(proxy.registered) == number + 4)
        assert int(proxy.registered[-1]["cseq"].split()[0]) == 3
    await proxy.stop()


async def test_case_33_53_a_wrong_password_is_tried_once_and_shown_nowhere() -> None:
    proxy = await FakeProxy().start()
    challenge = 'WWW-Authenticate: Digest realm="sip.example", nonce="n1", algorithm=SHA-256'
    proxy.on_register = lambda _: (401, "", challenge)
    async with sip_linked(proxy, secret="wrong secret", pool=1, component="") as linked:
        await linked.until(lambda: linked.link.state == "refused")
        assert len(proxy.registered) == 2
        assert "algorithm=SHA-256" in proxy.registered[1]["authorization"]
        assert "guest001" in linked.link.last_error
        assert linked.node.alarms[0][0] == "legacy-refused"
        shown = repr(linked.link.network.__dict__) + linked.link.last_error
        assert "wrong secret" not in shown
    await proxy.stop()


async def test_tls_is_spoken_with_who_has_a_certificate_for_the_host_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pem = certificate(tmp_path).both
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(pem)
    proxy = await FakeProxy().start(context)
    async with sip_linked(proxy, transport="tls", secret="pw") as linked:
        await linked.until(lambda: "certificate" in linked.link.last_error)
    monkeypatch.setenv("SSL_CERT_FILE", str(pem))
    async with sip_linked(proxy, transport="tls") as linked:
        assert "transport=tls" in proxy.registered[0]["contact"]
        proxy.on_request = lambda _: (200,)
        assert (await linked.ask("hi", to=BOB))["code"] == 200
    await proxy.stop()


@pytest.mark.parametrize(
    ("code", "here"), [(404, 404), (477, 503), (503, 503), (413, 413), (480, 404)]
)
async def test_case_34_what_the_other_side_says_is_answered(code: int, here: int) -> None:
    async with sip_linked() as linked:
        linked.server.on_request = lambda _: (code,)
        answer = await linked.ask("hi", to=BOB)
        assert answer["code"] == here
        assert str(code) in answer["description"]


async def test_case_34_no_answer_is_504_and_holds_up_nobody_else() -> None:
    now = 0.0
    async with sip_linked(clock=lambda: now) as linked:
        silent = linked.send("hi", to=BOB)
        second = linked.send("again", to=BOB)
        await linked.server.expect("MESSAGE")
        linked.server.on_request = lambda one: (200,) if "carol" in one.first else None
        assert (await linked.ask("hi", to=f"sip://{DOMAIN}/carol"))["desc"] == "received"
        now = 33.0
        linked.link.network.tick()
        assert (await linked.answer(silent))["code"] == 504
        assert (await linked.answer(second))["code"] == 504


@pytest.mark.parametrize("code", [500, 503])
async def test_a_proxy_that_has_too_much_to_do_gets_the_message_later(code: int) -> None:
    now = 0.0
    async with sip_linked(clock=lambda: now) as linked:
        proxy, network = linked.server, linked.link.network
        proxy.on_request = lambda _: (code, "", "Retry-After: 3") if now < 2 else (200,)
        ids = [linked.send(f"m{n}", to=BOB) for n in range(2)]
        await proxy.expect("MESSAGE")
        await linked.until(lambda: network.due < 4)
        now = 2.9
        network.tick()
        assert (await linked.ask("hi", to=f"sip://{DOMAIN}/carol"))["desc"] == "received"
        now = 3.0
        network.tick()
        assert [(await linked.answer(id_))["code"] for id_ in ids] == [200, 200]
        assert [each.text for each in proxy.of("MESSAGE")] == ["m0", "hi", "m0", "m1"]


@pytest.mark.parametrize(("code", "after", "here"), [(503, "10", 503), (500, "?", 502)])
async def test_who_is_asked_to_wait_for_too_long_is_told_at_once(
    code: int, after: str, here: int
) -> None:
    async with sip_linked() as linked:
        linked.server.on_request = lambda _: (code, "", f"Retry-After: {after}")
        assert (await linked.ask("hi", to=BOB))["code"] == here
        assert len(linked.server.of("MESSAGE")) == 1


async def test_a_proxy_that_never_has_time_is_told_within_the_ten_seconds() -> None:
    now = 0.0
    async with sip_linked(clock=lambda: now) as linked:
        proxy, network = linked.server, linked.link.network
        proxy.on_request = lambda _: (503, "", "Retry-After: 0")  # not at once, again and again
        id_ = linked.send("hi", to=BOB)
        for number in range(1, 11):
            await proxy.expect("MESSAGE", number=number)
            await linked.until(lambda: network.due <= now + 1 or number == 10)  # noqa: B023
            now = float(number)
            network.tick()
        assert (await linked.answer(id_))["code"] == 503
        assert len(proxy.of("MESSAGE")) == 10


async def test_messages_to_one_address_are_sent_one_after_the_other() -> None:
    async with sip_linked() as linked:
        ids = [linked.send(f"m{n}", to=BOB) for n in range(3)]
        await linked.server.expect("MESSAGE")
        await linked.server.until(lambda: linked.server.of("MESSAGE"))
        linked.server.on_request = lambda _: (202,)
        linked.server.answer(linked.server.of("MESSAGE")[0], 200)
        assert [(await linked.answer(id_))["desc"] for id_ in ids] == ["received", "sent", "sent"]
        assert [each.text for each in linked.server.of("MESSAGE")] == ["m0", "m1", "m2"]


async def test_case_44_what_a_lost_flow_may_have_lost_is_sent_again() -> None:
    async with sip_linked() as linked:
        ids = [linked.send(f"m{n}", to=BOB) for n in range(2)]
        await linked.server.expect("MESSAGE")
        linked.server.on_request = lambda _: (200,)
        linked.server.cut()
        assert [(await linked.answer(id_))["code"] for id_ in ids] == [200, 200]
        assert [each.text for each in linked.server.of("MESSAGE")] == ["m0", "m0", "m1"]
        old = linked.server.registered[-1].all("contact")
        assert len(old) == 2
        assert old[1].endswith("expires=0")  # where it was is taken back


async def test_case_45_a_proxy_that_is_frozen_loses_its_flow() -> None:
    now = 0.0
    async with sip_linked(clock=lambda: now) as linked:
        linked.server.on_request = lambda _: (200,) if now < 30 else None
        proxy, network = linked.server, linked.link.network
        now = 21.0
        network.tick()
        await proxy.expect("OPTIONS")
        network.tick()
        assert proxy.opened == 1
        proxy._take = lambda _: None  # frozen
        now = 42.0
        network.tick()
        now = 53.0
        del proxy._take
        network.tick()
        await linked.until(lambda: proxy.opened == 2)
        await linked.live()
        proxy.raw(b"\r\n\r\n")
        await linked.until(lambda: proxy.pongs)  # case 46: its own question is answered


async def test_an_idle_network_keeps_nobody_busy() -> None:
    async with sip_linked() as linked:
        linked.server.on_request = lambda _: (200,)
        assert (await linked.ask("hi", to=BOB))["code"] == 200
        await linked.until(lambda: linked.link._looks_at - time.monotonic() > 5.0)


async def test_case_59_without_a_server_its_tests_are_skipped_and_say_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CI", raising=False)
    starts: dict[str, Any] = {"prosody": Prosody, "kamailio": Kamailio}
    starts["rtpengine"] = lambda place: rtpengine(1, place).__enter__()
    for name, start in starts.items():
        with pytest.raises(pytest.skip.Exception, match=f"no {name}: install it"):
            start(tmp_path)
    with pytest.raises(pytest.skip.Exception, match="no sipp: install it"):
        await sipp(SimpleNamespace(port=1), tmp_path).__aenter__()  # type: ignore[arg-type]


async def test_case_36_a_lent_address_reaches_its_borrower_and_nobody_else() -> None:
    async with sip_linked() as linked:
        linked.node.runtimes[GUEST] = "runtime://a.example/guest"
        linked.server.on_request = lambda one: (200,) if one.method == "MESSAGE" else None
        assert (await linked.ask("hi", to=BOB, sender=GUEST))["code"] == 200
        sender = linked.server.of("MESSAGE")[0]["from"]
        assert f"<sip:guest001@{DOMAIN}>" in sender
        to = f"sip:guest001@{DOMAIN}"
        assert (await linked.server.code_of("MESSAGE", "back", TEXT, to=to)).code == 200
        assert linked.created()[-1]["to"] == GUEST
        free = f"sip:guest002@{DOMAIN}"
        assert (await linked.server.code_of("MESSAGE", "hi", TEXT, to=free)).code == 480
        nobody = f"sip:bob%40{DOMAIN}@{GATEWAY}"
        assert (await linked.server.code_of("MESSAGE", "hi", TEXT, to=nobody)).code == 404


async def test_case_56_whom_a_policy_keeps_from_looking_a_user_up_is_told_so() -> None:
    async with sip_linked() as linked:
        linked.node.codes[REGISTRY] = 403
        assert (await linked.server.code_of("MESSAGE", "hi", TEXT)).code == 403
        assert (await linked.server.code_of("INVITE", SDP)).code == 603
        assert not linked.created()


async def test_case_50_what_is_not_taken_is_said_by_its_code() -> None:
    async with sip_linked() as linked:
        proxy = linked.server
        html = "Content-Type: text/html"
        assert (await proxy.code_of("MESSAGE", "<p>", html)).code == 415
        assert (await proxy.code_of("INVITE")).code == 488
        parts = "Content-Type: multipart/mixed;boundary=x"
        assert (await proxy.code_of("INVITE", "--x", parts)).code == 415
        refused = await proxy.code_of("SUBSCRIBE")
        assert (refused.code, "INVITE" in refused["allow"]) == (405, True)
        assert (await proxy.code_of("OPTIONS")).code == 200
        assert (await proxy.code_of("INVITE", SDP, "Require: 100rel")).code == 420


@pytest.mark.parametrize("who", [f"guest001@{DOMAIN}", f"alice@{OWN}", f"alice@{GATEWAY.upper()}"])
async def test_case_51_who_says_that_he_is_of_this_node_is_refused(who: str) -> None:
    async with sip_linked() as linked:
        posing = {"From": f"<sip:{who}>;tag=1"}
        assert (await linked.server.code_of("MESSAGE", "hi", TEXT, **posing)).code == 403
        assert linked.node.alarms[0][0] == "legacy-posing"
        assert not linked.created()
        inside = f"sip://{DOMAIN}/{who.lower()}"
        assert (await linked.ask("hi", to=inside))["code"] == 404


async def test_case_52_loops_end() -> None:
    async with sip_linked() as linked:
        assert (await linked.server.code_of("MESSAGE", "hi", TEXT, Max_Forwards="0")).code == 483
        linked.send("hi", to=BOB)
        ours = await linked.server.expect("MESSAGE")
        back = {"Call_ID": ours["call-id"]}
        assert (await linked.server.code_of("MESSAGE", "hi", TEXT, **back)).code == 482
        carols = f"sip:carol%40b.example@{GATEWAY}"  # of another node
        assert (await linked.server.code_of("MESSAGE", "hi", TEXT, to=carols)).code == 480
        assert not linked.created()
        assert len(linked.server.of("MESSAGE")) == 1
        assert linked.link.exchange.counters.refused == 3


async def test_a_user_of_another_gateway_there_is_answered_by_the_name_he_has() -> None:
    async with sip_linked() as linked:
        carol = {"From": f"<sip:carol%40b.example@{DOMAIN}>;tag=1"}
        assert (await linked.server.code_of("MESSAGE", "hi", TEXT, **carol)).code == 200
        linked.send("hello", to=linked.created()[0]["from"])
        answer = await linked.server.expect("MESSAGE")
        assert answer.first.split()[1] == f"sip:carol%40b.example@{DOMAIN}"


async def test_a_user_there_has_a_rate_and_an_address_with_his_domain() -> None:
    async with sip_linked(per_minute=10) as linked:
        other = {"From": "<sip:+49123@other.example>;tag=1"}
        codes = [
            (await linked.server.code_of("MESSAGE", "hi", TEXT, **other)).code for _ in range(12)
        ]
        assert codes == [200] * 10 + [480] * 2
        assert linked.created()[0]["from"] == f"sip://{DOMAIN}/+49123@other.example"
        linked.send("hi", to=linked.created()[0]["from"])
        assert (await linked.server.expect("MESSAGE")).first.split()[
            1
        ] == "sip:+49123@other.example"


# --- calls ----------------------------------------------------------------------------------------


async def test_case_35_a_call_from_here_is_answered_and_hung_up() -> None:
    async with sip_linked() as linked:
        id_ = linked.call_out()
        invite = await linked.server.expect("INVITE")
        assert (invite.text, ALICES in invite["from"]) == (SDP, True)
        linked.server.answer(invite, 180)
        assert await linked.codes(id_, final=False) == [100]
        linked.server.answer(invite, 200, SDP, SIGNED, "Record-Route: <sip:p1;lr>, <sip:p2;lr>")
        assert (await linked.codes(id_))[-1] == 200
        said = linked.last("response")["body"]
        assert said["value"]["connectionDescription"] == {"type": "answer", "sdp": SDP}
        ack = await linked.server.expect("ACK")
        assert ack.first.split()[1] == "sip:bob@127.0.0.1:9"
        assert ack.all("route") == ["<sip:p2;lr>", "<sip:p1;lr>"]
        linked.server.answer(invite, 200, SDP, SIGNED)
        await linked.server.expect("ACK", number=2)  # case 41
        linked.send({"resource": said["resource"]}, to=BOB, type_="delete")
        bye = await linked.server.expect("BYE")
        assert (bye["to"].endswith("tag=t1"), bye["call-id"]) == (True, invite["call-id"])


async def test_case_40_of_two_phones_that_answer_the_second_is_hung_up() -> None:
    async with sip_linked() as linked:
        invite, said = await live_call(linked)
        linked.server.answer(invite, 200, SDP, "Contact: <sip:bob@127.0.0.1:8>", tag="other")
        ack = await linked.server.expect("ACK", number=2)
        bye = await linked.server.expect("BYE")
        for each in (ack, bye):
            assert each.first.split()[1] == "sip:bob@127.0.0.1:8"
            assert each["to"].endswith("tag=other")
        linked.send({"resource": said["resource"]}, to=BOB, type_="delete")  # the first goes on
        assert (await linked.server.expect("BYE", number=2))["to"].endswith("tag=t1")


@pytest.mark.parametrize(
    ("code", "here"), [(486, 486), (603, 403), (404, 404), (408, 408), (488, 488), (500, 502)]
)
async def test_case_39_who_refuses_a_call_is_told_here(code: int, here: int) -> None:
    async with sip_linked() as linked:
        linked.server.on_request = lambda one: (code,) if one.method == "INVITE" else None
        assert (await linked.codes(linked.call_out()))[-1] == here
        assert (await linked.server.expect("ACK"))["to"].endswith("tag=t1")


async def test_case_37_a_call_is_withdrawn_and_an_answer_that_crosses_is_hung_up() -> None:
    async with sip_linked() as linked:
        for crosses in (False, True):
            id_ = linked.call_out()
            invite = await linked.server.expect("INVITE", number=1 + crosses)
            linked.server.answer(invite, 180)
            await linked.codes(id_, final=False)
            linked.send({}, to=BOB, type_="delete")
            cancel = await linked.server.expect("CANCEL", number=1 + crosses)
            assert cancel["via"] == invite["via"]
            linked.server.answer(invite, 200, SDP, SIGNED) if crosses else (
                linked.server.answer(invite, 487))  # fmt: skip
            await linked.server.expect("ACK", number=1 + crosses)
            assert (await linked.codes(id_))[-1] == 487
        await linked.server.expect("BYE")


async def test_case_36_a_call_from_there_is_answered_and_ended_there() -> None:
    async with sip_linked() as linked:
        linked.node.codes[OURS] = None
        sent = linked.server.request(
            "INVITE", SDP, "Record-Route: <sip:p1;lr>\r\nRecord-Route: <sip:p2;lr>"
        )
        frame = await linked.until(lambda: linked.last("create"))
        assert frame["body"]["value"]["connectionDescription"] == {"type": "offer", "sdp": SDP}
        linked.answer_call(frame)
        ok = await linked.server.expect("INVITE", 200)
        assert (ok.text, ok["contact"].startswith("<sip:alice%40")) == (SDP, True)
        await linked.server.until(lambda: len(linked.server.of("INVITE", 200)) > 2)  # not ACKed yet
        parties = {"From": sent["From"], "To": ok["to"], "Call_ID": sent["Call-ID"]}
        linked.server.request("ACK", CSeq="1 ACK", **parties)
        assert (await linked.server.code_of("INFO", **parties, CSeq="2 INFO")).code == 405
        assert (await linked.server.code_of("BYE", **parties, CSeq="3 BYE")).code == 200
        await linked.until(lambda: linked.last("delete"))


async def test_case_42_a_request_is_of_a_dialog_that_there_is_and_comes_in_order() -> None:
    async with sip_linked() as linked:
        invite, said = await live_call(linked)
        dialog = {"From": f"{invite['to']};tag=t1", "To": invite["from"],
                  "Call_ID": invite["call-id"]}  # fmt: skip

        async def asked(method: str, number: int, **other: str) -> int:
            named = {**dialog, "CSeq": f"{number} {method}", **other}
            return (await linked.server.code_of(method, **named)).code

        for wrong in (
            {"To": f"<{ALICES}>;tag=unknown"},
            {"From": f"{invite['to']};tag=of-another-phone"},
            {"Call_ID": "of-another-call"},
        ):
            assert [await asked(each, 9, **wrong) for each in ("BYE", "INFO")] == [481, 481]
        assert await asked("BYE", 9, To=f"<{ALICES}>") == 481  # it has no tag of ours at all
        assert await asked("INVITE", 5) == 488  # without an offer; the number counts
        assert await asked("OPTIONS", 5) == 200
        linked.server.request("INVITE", SDP, **dialog, CSeq="7 INVITE")
        await linked.until(lambda: linked.last("update"))
        assert [await asked(each, 6) for each in ("BYE", "OPTIONS")] == [500, 500]
        assert linked.last("delete") is None
        assert await asked("BYE", 8) == 200
        assert (await linked.until(lambda: linked.last("delete")))["body"]["resource"] == (
            said["resource"])  # fmt: skip
        assert await asked("BYE", 9) == 481


async def test_case_41_an_invite_that_comes_again_is_answered_again_and_calls_once() -> None:
    async with sip_linked() as linked:
        linked.node.codes[OURS] = 486
        sent = linked.server.request("INVITE", SDP)
        await linked.server.expect("INVITE", 486)
        linked.server.request("INVITE", SDP, **{k.replace("-", "_"): v for k, v in sent.items()})
        await linked.server.expect("INVITE", 486, number=2)
        assert len(linked.created()) == 1


async def test_case_37_a_call_that_is_withdrawn_there_ends_here() -> None:
    async with sip_linked() as linked:
        linked.node.codes[OURS] = None
        sent = linked.server.request("INVITE", SDP)
        await linked.until(lambda: linked.last("create"))
        named = {k.replace("-", "_"): v for k, v in sent.items()} | {"CSeq": "1 CANCEL"}
        linked.server.request("CANCEL", **named)
        await linked.server.expect("INVITE", 487)
        await linked.until(lambda: linked.last("delete"))
        network: Any = linked.link.network
        assert len(network.calls) == 0


async def live_call(linked: Any) -> tuple[Sip, dict[str, Any]]:
    """A call from here that is live: its INVITE, and what the runtime was told."""
    id_ = linked.call_out()
    invite = await linked.server.expect("INVITE")
    linked.server.answer(invite, 200, SDP, SIGNED)
    await linked.codes(id_)
    return invite, linked.last("response")["body"]


async def test_case_38_a_new_offer_passes_both_ways_and_one_of_two_at_once_wins() -> None:
    held = SDP + "a=inactive\r\n"
    async with sip_linked() as linked:
        invite, said = await live_call(linked)
        change = {"resource": said["resource"], "attribute": "connectionDescription"}
        linked.send({**change, "value": {"type": "offer", "sdp": held}}, to=BOB, type_="update")
        again = await linked.server.expect("INVITE", number=2)
        assert again.text == held
        dialog = {
            "From": f"{invite['to']};tag=t1",
            "To": invite["from"],
            "Call_ID": invite["call-id"],
        }
        glare = await linked.server.code_of("INVITE", SDP, **dialog, CSeq="5 INVITE")
        assert glare.code == 491
        linked.server.answer(again, 491)
        third = await linked.server.expect("INVITE", number=3)  # after 2.1 to 4.1 seconds
        assert third.text == held
        linked.server.answer(third, 200, held, SIGNED)
        told = await linked.until(lambda: linked.last("update"))
        assert told["body"]["value"] == {"type": "answer", "sdp": held}
        linked.server.request("INVITE", SDP, **dialog, CSeq="6 INVITE")
        await linked.until(lambda: linked.last("update")["body"]["value"]["type"] == "offer")
        linked.send({**change, "value": {"type": "answer", "sdp": SDP}}, to=BOB, type_="update")
        assert (await linked.server.expect("INVITE", 200)).text == SDP


async def test_case_49_one_dialog_however_its_headers_are_written() -> None:
    async with sip_linked() as linked:
        linked.node.codes[OURS] = None
        body = SDP
        linked.server.raw((
            f"INVITE {ALICES} SIP/2.0\r\nv: SIP/2.0/TCP 127.0.0.1:1;branch=z9hG4bKc\r\n"
            f"f: sip:bob@{DOMAIN};tag=b1\r\nt:\r\n <{ALICES}>\r\ni: folded\r\nCSEQ:  1  INVITE\r\n"
            "m: sip:sipp@127.0.0.1:9;ob\r\nRecord-Route: <sip:p1;lr>,\r\n\t<sip:p2;lr>\r\n"
            f"c: application/sdp\r\nl: {len(body)}\r\n\r\n{body}"
        ).encode())  # fmt: skip
        linked.answer_call(await linked.until(lambda: linked.last("create")))
        ok = await linked.server.expect("INVITE", 200)
        linked.server.request("ACK", CSeq="1 ACK", From=f"sip:bob@{DOMAIN};tag=b1", To=ok["to"],
                              Call_ID="folded")  # fmt: skip
        url = linked.last("create")["body"]["resource"]
        linked.send({"resource": url}, to=BOB, type_="delete")
        bye = await linked.server.expect("BYE")
        assert bye.first.split()[1] == "sip:sipp@127.0.0.1:9"
        assert bye.all("route") == ["<sip:p1;lr>", "<sip:p2;lr>"]


async def test_case_44_a_live_call_is_told_where_this_node_is_after_a_loss() -> None:
    async with sip_linked() as linked:
        invite, said = await live_call(linked)
        linked.server.cut()
        again = await linked.server.expect("INVITE", number=2)
        assert (again.text, again["contact"] != invite["contact"]) == (SDP, True)
        linked.server.answer(again, 200, SDP, SIGNED)
        await linked.server.expect("ACK", number=2)
        linked.send({"resource": said["resource"]}, to=BOB, type_="delete")
        await linked.server.expect("BYE")


async def test_case_44_a_call_that_ends_while_the_proxy_is_away_ends_there_when_it_is_back() -> (
    None
):
    now = 0.0
    async with sip_linked(clock=lambda: now) as linked:
        invite, _ = await live_call(linked)
        linked.server.on_register = lambda _: None
        linked.server.cut()
        await linked.until(lambda: linked.server.opened == 2)
        del linked.node.users[OURS]
        now = 6.0
        linked.link.network.tick()
        await linked.until(lambda: not len(linked.link.network.calls))
        linked.server.on_register = lambda _: (200,)
        linked.server.cut()
        bye = await linked.server.expect("BYE")
        assert (bye["call-id"], bye["to"]) == (invite["call-id"], f"{invite['to']};tag=t1")
        assert len(linked.server.of("INVITE")) == 1


async def test_case_58_calls_of_a_worker_that_died_are_hung_up_by_the_next() -> None:
    from .linked import Kept

    kept = Kept()
    async with sip_linked(kept=kept) as linked:
        invite, _ = await live_call(linked)
        linked.link.abort()
    async with sip_linked(kept=kept) as linked:
        bye = await linked.server.expect("BYE")
        assert bye["call-id"] == invite["call-id"]
        await asyncio.sleep(0)
        assert not [row for row in kept.rows if row[0] == "call"]


async def test_candidates_that_follow_an_offer_are_put_into_it() -> None:
    async with sip_linked() as linked:
        id_ = linked.call_out(SDP + "a=ice-ufrag:abcd\r\n")
        candidate = {"candidate": "candidate:1 1 udp 1 192.0.2.1 9 typ host", "sdpMLineIndex": 0}
        linked.send({"attribute": "iceCandidates.0", "value": candidate}, to=BOB, type_="update")
        invite = await linked.server.expect("INVITE")  # two seconds later
        assert "a=candidate:1 1 udp" in invite.text
        linked.server.answer(invite, 486)
        assert (await linked.codes(id_))[-1] == 486


async def test_a_flood_of_messages_leaves_a_call_that_rings_alone() -> None:
    async with sip_linked() as linked:
        linked.node.codes[OURS] = None
        sent = linked.server.request("INVITE", SDP)
        await linked.until(lambda: linked.last("create"))
        for _ in range(1_100):
            linked.server.request("OPTIONS")
        await linked.until(lambda: len(linked.server.of("OPTIONS", 200)) == 1_100)
        named = {k.replace("-", "_"): v for k, v in sent.items()} | {"CSeq": "1 CANCEL"}
        linked.server.request("CANCEL", **named)
        await linked.server.expect("INVITE", 487)


async def test_a_user_there_is_looked_up_and_found_as_in_a_registry() -> None:
    async with sip_linked() as linked:
        linked.server.on_request = lambda one: (404,) if "nobody" in one.first else (200,)
        for to, body in ((BOB, {}), (f"domain://registry.{DOMAIN}", {
            "resource": f"user://{DOMAIN}/bob@{DOMAIN}"})):  # fmt: skip
            answer = await linked.ask(body, to=to, type_="read")
            assert answer["value"][BOB]["user"] == f"user://{DOMAIN}/bob@{DOMAIN}"
        assert (await linked.ask({}, to=f"sip://{DOMAIN}/nobody", type_="read"))["code"] == 404
