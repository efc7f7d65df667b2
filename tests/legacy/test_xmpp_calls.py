"""Calls with users of an XMPP network: Jingle beside a small server whose bob is played."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from typing import Any
from xml.etree import ElementTree as Xml

import pytest

from msgnode.core import messages
from msgnode.legacy.descriptions import Candidate, Description, description_in
from msgnode.legacy.jingle import ICE, JINGLE, RTP_INFO, from_jingle, info_of, to_jingle
from msgnode.legacy.xmpp_calls import ERRORS, MESSAGES
from msgnode.legacy.xmpp_stream import tag

from .fake_xmpp import DOMAIN, GATEWAY, STANZAS, named
from .linked import BOB, OURS, Linked, linked
from .test_jingle import AUDIO, HOST, element_of, lines_of

PHONE, ALICE = f"bob@{DOMAIN}/phone", f"alice%a.example@{GATEWAY}"
OFFER, ANSWER = (
    Description("offer", AUDIO),
    Description("answer", AUDIO.replace("actpass", "active")),
)
FIRST = Candidate(HOST, "0", 0)


class Phone:
    """Bob's client, and the runtime of alice that he calls, or that calls him."""

    def __init__(self, each: Linked) -> None:
        self.each, self.node = each, each.node
        self._number = 0
        self.sid = "s1"
        each.node.codes[OURS] = None  # it answers as the test says
        each.server.on_stanza = self._took
        self.taken: list[Xml.Element] = []
        self.answers_iq = True

    def _took(self, stanza: Xml.Element) -> None:
        if stanza.tag == named("iq") and stanza.get("type") == "set":
            self.taken.append(stanza)
            if self.answers_iq:
                self.say("iq", {"type": "result", "id": stanza.get("id")}, to=stanza.get("from"))

    def say(self, name: str, head: dict[str, Any], *inside: str, to: str | None = "") -> None:
        parties = {"from": PHONE, "to": to or f"{ALICE}/node"}
        self.each.server.say(tag(name, {**parties, **head}, *inside))

    def jingle(self, action: str, *inside: str, sid: str = "") -> str:
        self._number += 1
        made = tag("jingle", {"xmlns": JINGLE, "action": action, "sid": sid or self.sid}, *inside)
        self.say("iq", {"type": "set", "id": f"b{self._number}"}, made)
        return f"b{self._number}"

    def terminate(self, reason: str) -> None:
        self.jingle("session-terminate", f"<reason><{reason}/></reason>")

    def initiate(self, offer: Description = OFFER) -> str:
        return self.jingle("session-initiate", *to_jingle(offer, "initiator"))

    async def answer(self, id_: str) -> Xml.Element:
        """What an iq of his was answered."""
        return await self.each.server.expect("iq", id=id_)

    async def said(self, action: str) -> Xml.Element:
        """The Jingle element of an action that he was sent."""

        def find() -> list[Xml.Element]:
            found = [each.find(f"{{{JINGLE}}}jingle") for each in self.taken]
            return [each for each in found if each is not None and each.get("action") == action]

        found = await self.each.until(find)
        return found[-1]

    async def reason(self) -> str:
        said = await self.said("session-terminate")
        return said[0][0].tag.rpartition("}")[2]

    # --- alice ------------------------------------------------------------------------------------

    async def heard(self, type_: str) -> dict[str, Any]:
        """What her hyperty was sent."""
        found = await self.each.until(
            lambda: [one for one in self.node.said if one["type"] == type_ and one["to"] == OURS]
        )
        return dict(found[-1])

    def respond(self, create: dict[str, Any], code: int, **body: Any) -> None:
        message = messages.parse(json.dumps(create).encode())
        self.node.outlet.write(messages.reply(message, {"code": code, **body}))

    def call(self, to: str = BOB) -> str:
        return self.each.send({"value": OFFER.value}, to=to)

    async def ring_up(self) -> dict[str, Any]:
        """Call alice, until she has answered; what she was sent."""
        self.initiate()
        create = await self.heard("create")
        self.respond(create, 200, value=ANSWER.value)
        await self.said("session-accept")
        return create

    def responses(self, id_: str) -> list[dict[str, Any]]:
        found = [each for each in self.node.said if each["type"] == "response"]
        return [each["body"] for each in found if each["id"] == id_]


@asynccontextmanager
async def phone(**settings: Any) -> Any:
    async with linked(**settings) as each:
        yield Phone(each)


def parsed(element: Xml.Element) -> Any:
    return element_of(Xml.tostring(element, encoding="unicode"))


async def test_case_24_a_call_from_there_is_offered_rings_and_is_accepted() -> None:
    async with phone() as bob:
        id_ = bob.initiate()
        create = await bob.heard("create")
        assert (await bob.answer(id_)).get("type") == "result"  # before anybody has answered
        assert (create["from"], create["body"]["source"]) == (BOB, BOB)
        assert lines_of(description_in(create["body"]["value"]).sdp) == lines_of(AUDIO)
        bob.respond(create, 100)
        info = await bob.said("session-info")
        assert info.find(f"{{{RTP_INFO}}}ringing") is not None
        bob.respond(create, 200, value=ANSWER.value)
        accept = await bob.said("session-accept")
        assert accept.get("responder") == f"{ALICE}/node"
        heard = from_jingle(parsed(accept), "responder", AUDIO)
        assert lines_of(heard.sdp) == lines_of(ANSWER.sdp)
        bob.terminate("success")
        assert (await bob.heard("delete"))["body"]["resource"] == create["body"]["resource"]


async def test_case_24_a_call_from_here_is_announced_and_goes_to_the_client_that_proceeds() -> None:
    async with phone() as bob:
        id_ = bob.call()
        message = await bob.each.server.expect("message", to=f"bob@{DOMAIN}")
        (propose,) = message.findall(f"{{{MESSAGES}}}propose")
        assert propose[0].get("media") == "audio"
        bob.sid = propose.get("id")
        bob.say("message", {}, tag("ringing", {"xmlns": MESSAGES, "id": bob.sid}))
        await bob.each.until(lambda: bob.responses(id_))
        bob.say("message", {}, tag("proceed", {"xmlns": MESSAGES, "id": bob.sid}))
        offered = await bob.said("session-initiate")
        assert bob.taken[-1].get("to") == PHONE
        heard = from_jingle(parsed(offered), "initiator")
        assert lines_of(heard.sdp) == lines_of(AUDIO)
        bob.jingle("session-accept", *to_jingle(ANSWER, "responder"))
        answer = await bob.each.until(lambda: bob.responses(id_)[1:])
        assert [body["code"] for body in bob.responses(id_)] == [100, 200]
        assert lines_of(description_in(answer[0]["value"]).sdp) == lines_of(ANSWER.sdp)
        assert (await bob.each.ask({}, type_="delete"))["code"] == 200
        assert await bob.reason() == "success"


async def test_case_25_candidates_pass_both_ways_and_early_ones_are_kept() -> None:
    async with phone() as bob:
        info = info_of("0", "abcd", "pw", FIRST)
        bob.initiate()
        bob.jingle("transport-info", info)
        create = await bob.heard("create")
        bob.jingle("transport-info", info)
        await bob.answer(bob.jingle("session-info"))
        assert not [each for each in bob.node.said if each["type"] == "update"]
        bob.respond(create, 200, value=ANSWER.value)
        await bob.each.until(lambda: len([e for e in bob.node.said if e["type"] == "update"]) == 2)
        update = await bob.heard("update")
        assert update["body"] == {
            "resource": create["body"]["resource"], "attribute": "iceCandidates.1",
            "value": FIRST.value,
        }  # fmt: skip
        said = {"attribute": "iceCandidates.0", "value": FIRST.value}
        assert (await bob.each.ask(said, type_="update"))["code"] == 200
        told = await bob.said("transport-info")
        (candidate,) = told.iter(f"{{{ICE}}}candidate")
        (ice,) = told.iter(f"{{{ICE}}}transport")
        assert (candidate.get("port"), ice.get("ufrag")) == ("50000", "abcd")


@pytest.mark.parametrize(
    ("code", "reason"),
    [(403, "decline"), (486, "busy"), (404, "gone"), (408, "timeout"), (500, "failed-application")],
)
async def test_case_26_a_refusal_here_is_a_reason_there(code: int, reason: str) -> None:
    async with phone() as bob:
        bob.initiate()
        bob.respond(await bob.heard("create"), code)
        assert await bob.reason() == reason


@pytest.mark.parametrize(
    ("reason", "code"),
    [("decline", 403), ("busy", 486), ("gone", 480), ("timeout", 408), ("failed-transport", 488)],
)
async def test_case_26_a_reason_there_is_a_code_here(reason: str, code: int) -> None:
    async with phone() as bob:
        id_ = bob.call(f"{BOB}/phone")
        bob.sid = (await bob.said("session-initiate")).get("sid")
        bob.terminate(reason)
        await bob.each.until(lambda: [e for e in bob.responses(id_) if e["code"] == code])


async def test_case_26_a_client_that_refuses_or_declines_and_a_user_that_there_is_not() -> None:
    async with phone() as bob:
        bob.answers_iq = False
        first = bob.call(f"{BOB}/phone")
        await bob.said("session-initiate")
        error = f"<error type='cancel'><service-unavailable xmlns='{STANZAS}'/></error>"
        head = {"type": "error", "id": bob.taken[-1].get("id")}
        bob.say("iq", head, error)
        assert (await bob.each.answer(first))["code"] == 404
        second = bob.call()
        message = await bob.each.server.expect("message", to=f"bob@{DOMAIN}")
        bob.say("message", {}, tag("reject", {"xmlns": MESSAGES, "id": message[0].get("id")}))
        assert (await bob.each.answer(second))["code"] == 403
        assert (await bob.each.answer(bob.call(f"xmpp://{DOMAIN}/nobody")))["code"] == 404


async def test_case_26_nobody_takes_calls_of_a_user_who_is_not_there() -> None:
    async with phone() as bob:
        bob.node.registry.clear()
        bob.initiate()
        assert await bob.reason() == "gone"
        bob.say("message", {}, tag("propose", {"xmlns": MESSAGES, "id": "p1"}))
        await bob.each.until(
            lambda: [e for e in bob.each.server.of("message") if e[0].tag.endswith("reject")]
        )


async def test_case_26_a_call_that_is_withdrawn_is_retracted_or_cancelled() -> None:
    async with phone() as bob:
        bob.call()
        await bob.each.ask({}, type_="delete")
        (retract,) = await bob.each.until(lambda: bob.each.server.of("message")[1:])
        assert retract[0].tag == f"{{{MESSAGES}}}retract"
        bob.call(f"{BOB}/phone")
        await bob.said("session-initiate")
        await bob.each.ask({}, type_="delete", to=f"{BOB}/phone")
        assert await bob.reason() == "cancel"
        bob.initiate()
        await bob.heard("create")
        bob.terminate("cancel")
        await bob.heard("delete")


async def test_a_client_that_is_announced_to_is_told_to_proceed() -> None:
    async with phone() as bob:
        bob.say("message", {"to": ALICE}, tag("propose", {"xmlns": MESSAGES, "id": "p1"}))
        message = await bob.each.server.expect("message", to=PHONE)
        assert message[0].tag == f"{{{MESSAGES}}}proceed"
        assert message.get("from") == f"{ALICE}/node"


@pytest.mark.parametrize("action", ["session-accept", "session-terminate", "transport-info", "x"])
async def test_case_27_an_unknown_session_is_said_to_be_unknown(action: str) -> None:
    async with phone() as bob:
        answer = await bob.answer(bob.jingle(action, sid="another"))
        assert answer.get("type") == "error"
        assert answer.find(f".//{{{ERRORS}}}unknown-session") is not None


async def test_case_27_a_session_is_unknown_to_others_than_its_party() -> None:
    async with phone() as bob:
        await bob.ring_up()
        made = tag("jingle", {"xmlns": JINGLE, "action": "session-terminate", "sid": "s1"})
        for number, sender in enumerate((f"bob@{DOMAIN}/other", f"carol@{DOMAIN}/phone")):
            bob.say("iq", {"type": "set", "id": f"x{number}", "from": sender}, made)
            assert (await bob.answer(f"x{number}")).get("type") == "error"
        assert not [each for each in bob.node.said if each["type"] == "delete"]


@pytest.mark.parametrize("action", ["content-add", "content-modify", "transport-replace"])
async def test_case_28_what_would_change_a_call_is_not_implemented_and_the_call_lives(
    action: str,
) -> None:
    async with phone() as bob:
        await bob.ring_up()
        answer = await bob.answer(bob.jingle(action, *to_jingle(OFFER, "initiator")))
        assert answer.find(f".//{{{STANZAS}}}feature-not-implemented") is not None
        said = {"attribute": "connectionDescription", "value": {"type": "offer", "sdp": AUDIO}}
        assert (await bob.each.ask(said, type_="update"))["code"] == 501
        bob.terminate("success")
        await bob.heard("delete")


async def test_case_29_a_description_that_injects_ends_its_session_and_is_counted() -> None:
    async with phone() as bob:
        bad = "".join(to_jingle(OFFER, "initiator")).replace('"abcd"', '"a&#13;&#10;a=x"')
        bob.jingle("session-initiate", bad)
        assert await bob.reason() == "failed-transport"
        assert bob.each.link.exchange.counters.refused == 1
        assert not bob.each.created()
        bob.sid = "s2"
        await bob.ring_up()
        bob.jingle("transport-info", info_of("0", "a", "b", FIRST).replace("50000", "x"))
        await bob.heard("delete")


@pytest.mark.parametrize("is_ours_lower", [True, False])
async def test_case_31_of_two_calls_at_once_that_with_the_lower_id_counts(
    is_ours_lower: bool,
) -> None:
    async with phone() as bob:
        id_ = bob.call()
        await bob.each.server.expect("message", to=f"bob@{DOMAIN}")
        bob.sid = "zz" if is_ours_lower else "!"
        answer = await bob.answer(bob.initiate())
        assert (answer.find(f".//{{{ERRORS}}}tie-break") is not None) == is_ours_lower
        if is_ours_lower:
            assert not bob.each.created()
        else:
            await bob.heard("create")
            assert (await bob.each.answer(id_))["code"] == 409


async def test_case_22_who_calls_too_often_is_told_to_wait() -> None:
    async with phone(per_minute=1) as bob:
        for each in range(10):
            bob.sid = f"s{each}"
            await bob.answer(bob.initiate())
        bob.sid = "last"
        answer = await bob.answer(bob.initiate())
        assert answer.find(f".//{{{STANZAS}}}resource-constraint") is not None
