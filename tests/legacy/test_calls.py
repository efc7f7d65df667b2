"""Calls, whatever the network speaks: what each side says and hears, with both ends played."""

from __future__ import annotations

import json
from typing import Any

import pytest

from msgnode.core import messages
from msgnode.core.errors import BadMessage, NodeError, NotFound, Unavailable
from msgnode.legacy.calls import (
    CANCELLED,
    MAX_CALLS,
    NO_SIGN,
    NORMAL,
    TIMED_OUT,
    Call,
    Calls,
    CallState,
)
from msgnode.legacy.descriptions import Candidate, Description, description_in

ALICE, BOB = "hyperty://a.example/1", "xmpp://legacy.example/bob"
SDP = "v=0\r\no=- 1 1 IN IP4 0.0.0.0\r\ns=-\r\nt=0 0\r\nm=audio 9 RTP/AVP 0\r\na=mid:0\r\n"
OFFER, ANSWER = Description("offer", SDP), Description("answer", SDP)
FIRST = Candidate("candidate:1 1 udp 1 192.0.2.1 9 typ host", "0", 0)


class Ends:
    """The node and the network of calls: what each was told, in order."""

    def __init__(self) -> None:
        self.now = 0.0
        self.told: list[tuple[str, dict[str, Any]]] = []  # to the runtime
        self.wire: list[tuple[Any, ...]] = []  # to the network
        self.counted: list[str] = []
        self.runtimes = {ALICE: "runtime://a.example/1"}
        self.rows: set[tuple[str, str, str]] = set()
        self.fault: NodeError | None = None
        self.said: Any = None
        self.calls = Calls("legacy.example", self, self, lambda: self.now)  # type: ignore[arg-type]
        self._number = 0

    # --- Here -------------------------------------------------------------------------------------

    def answer(self, message: messages.Message, body: dict[str, Any]) -> None:
        self.told.append(("response", body))

    def ask(self, type_: str, sender: str, to: str, body: dict[str, Any], said: Any) -> None:
        assert (sender, to) == (BOB, ALICE)
        self.told.append((type_, body))
        if type_ == "create":
            self.said = said

    def tell(self, sender: str, to: str, body: dict[str, Any]) -> None:
        assert (sender, to) == (BOB, ALICE)
        self.told.append(("update", body))

    def runtime_of(self, address: str) -> str:
        return self.runtimes.get(address, "")

    def if_gone(self, runtime: str, then: Any) -> None:
        then()

    def refused(self, why: str) -> None:
        self.counted.append(why)

    def keep(self, kind: str, here: str, there: str, is_kept: bool = True) -> None:
        (self.rows.add if is_kept else self.rows.remove)((kind, here, there))

    # --- Signalling -------------------------------------------------------------------------------

    def invite(self, call: Call) -> None:
        self._put("invite", call, call.offer)

    def ring(self, call: Call) -> None:
        self._put("ring", call)

    def accept(self, call: Call, answer: Description) -> None:
        self._put("accept", call, answer)

    def trickle(self, call: Call, candidate: Candidate) -> None:
        self._put("trickle", call, candidate)

    def describe(self, call: Call, description: Description) -> None:
        self._put("describe", call, description)

    def hang_up(self, call: Call, code: int, text: str) -> None:
        self._put("hang_up", call, code)

    def kept(self, call: Call) -> str:
        return f"kept {call.id}"

    def restored(self, call: Call, text: str) -> None:
        assert text.startswith("kept ")

    def _put(self, name: str, call: Call, *more: Any) -> None:
        self.wire.append((name, *more))
        if self.fault is not None:
            raise self.fault
        self.call = call

    # --- the runtime ------------------------------------------------------------------------------

    def send(self, type_: str, sender: str = ALICE, to: str = BOB, **body: Any) -> bool:
        self._number += 1
        head = {"id": self._number, "type": type_, "from": sender, "to": to, "body": body}
        return self.calls.take(messages.parse(json.dumps(head).encode()))

    def call_out(self, description: Description = OFFER) -> Call:
        assert self.send("create", value=description.value)
        return self.call

    def call_in(self) -> Call:
        return self.calls.called(BOB, ALICE, OFFER)

    def codes(self) -> list[int]:
        return [body["code"] for type_, body in self.told if type_ == "response"]


def test_a_call_from_here_rings_is_answered_and_hung_up_here() -> None:
    ends = Ends()
    call = ends.call_out()
    ends.calls.rings(call, is_ringing=False)
    ends.calls.rings(call)
    ends.calls.trickled(call, FIRST)
    ends.calls.accepted(call, ANSWER)
    assert ends.codes() == [100, 100, 200]
    said = ends.told[-1][1]
    assert said["resource"] == f"connection://legacy.example/{call.id}"
    assert description_in(said["value"]) == ANSWER._replace(candidates=(FIRST,))  # it came early
    ends.send("update", attribute="iceCandidates.0", value=FIRST.value)
    ends.calls.trickled(call, FIRST)
    assert ends.told[-1][1]["attribute"] == "iceCandidates.1"
    ends.send("delete")
    assert ends.wire == [("invite", OFFER), ("trickle", FIRST), ("hang_up", NORMAL)]
    assert len(ends.calls) == 0
    with pytest.raises(NotFound):
        ends.send("delete")


def test_a_call_from_there_rings_is_answered_and_hung_up_there() -> None:
    ends = Ends()
    call = ends.call_in()
    (_, body) = ends.told[0]
    assert body["source"] == BOB
    assert description_in(body["value"]) == OFFER
    ends.calls.trickled(call, FIRST)
    ends.said(100, {})
    ends.said(100, {})
    ends.said(200, {"value": ANSWER.value})
    assert ends.wire == [("ring",), ("accept", ANSWER)]
    assert ends.told[1][1] == {  # what came early waits for the answer
        "resource": body["resource"], "attribute": "iceCandidates.0", "value": FIRST.value,
    }  # fmt: skip
    ends.calls.hung_up(call)
    assert [type_ for type_, _ in ends.told] == ["create", "update", "delete"]
    assert len(ends.calls) == 0


def test_an_answer_may_come_in_an_object_of_its_own() -> None:
    ends = Ends()
    ends.call_in()
    ends.said(200, {})
    mine = "connection://a.example/7/subscription"
    ends.runtimes[mine] = ends.runtimes[ALICE]
    resource = ends.told[0][1]["resource"]
    assert ends.send("create", mine, resource=resource, value=ANSWER.value)
    assert ends.wire == [("accept", ANSWER)]
    assert ends.codes() == [200]


@pytest.mark.parametrize("code", [403, 404, 486])
def test_case_26_who_refuses_is_told_to_the_other_side(code: int) -> None:
    ends = Ends()
    ends.call_in()
    ends.said(code, {"description": "no"})
    assert ends.wire == [("hang_up", code)]
    ends.calls.refused(ends.call_out(), code, "no")
    assert ends.codes() == [code]
    assert len(ends.calls) == 0


def test_case_26_who_withdraws_a_call_is_answered_487() -> None:
    ends = Ends()
    ends.calls.rings(ends.call_out())
    ends.send("delete")
    assert ends.wire[-1] == ("hang_up", CANCELLED)
    assert ends.codes() == [100, 487, 200]
    call = ends.call_in()
    ends.calls.hung_up(call)  # he has withdrawn his
    assert ends.told[-1][0] == "delete"
    ends.said(200, {"value": ANSWER.value})  # too late
    assert ends.wire[-1] == ("hang_up", CANCELLED)


def test_case_26_a_call_that_nobody_answers_ends_in_time() -> None:
    ends = Ends()
    ends.call_out()
    ends.now = 14.0
    ends.calls.tick()
    assert (ends.codes(), ends.wire[-1]) == ([NO_SIGN], ("hang_up", NO_SIGN))
    ends.calls.rings(ends.call_out())
    for ends.now in range(15, 200):
        ends.calls.tick()
    assert ends.codes()[1:] == [100] * 18 + [TIMED_OUT]
    ends.call_in()
    ends.now += 14.0
    ends.calls.tick()
    assert ends.told[-1][0] == "delete"
    assert ends.wire[-1] == ("hang_up", TIMED_OUT)
    assert len(ends.calls) == 0


def test_a_call_whose_runtime_has_gone_is_hung_up() -> None:
    ends = Ends()
    call = ends.call_out()
    ends.calls.accepted(call, ANSWER)
    ends.runtimes.clear()
    ends.now = 10.0
    ends.calls.tick()
    assert ends.wire[-1] == ("hang_up", NORMAL)


def test_only_who_has_a_call_may_change_or_end_it() -> None:
    ends = Ends()
    call = ends.call_out()
    for sender in ("hyperty://a.example/other", "connection://a.example/7"):
        with pytest.raises(NotFound):
            ends.send("delete", sender, resource=f"connection://legacy.example/{call.id}")
    assert call.state is CallState.CALLING


def test_a_new_offer_passes_both_ways_once_a_call_is_live() -> None:
    ends = Ends()
    call = ends.call_out()
    offer = {"type": "offer", "sdp": SDP}
    with pytest.raises(NodeError, match="not answered"):
        ends.send("update", attribute="connectionDescription", value=offer)
    ends.calls.accepted(call, ANSWER)
    ends.send("update", attribute="connectionDescription", value=offer)
    assert ends.wire[-1] == ("describe", OFFER)
    ends.calls.described(call, ANSWER)
    assert ends.told[-1][1]["value"] == {"type": "answer", "sdp": SDP}


def test_what_the_network_cannot_do_ends_the_call_and_is_counted() -> None:
    ends = Ends()
    ends.call_in()
    ends.fault = BadMessage("The description has no media.")
    ends.said(200, {"value": ANSWER.value})
    assert ends.counted[0] == "The description has no media."
    assert ends.told[-1][1]["code"] == 400
    assert len(ends.calls) == 0
    with pytest.raises(BadMessage):
        ends.call_out()
    assert len(ends.calls) == 0


def test_case_58_the_next_worker_ends_the_calls_of_one_that_died() -> None:
    before, ends = Ends(), Ends()
    before.call_in()
    before.calls.accepted(before.call_out(), ANSWER)
    assert len(before.rows) == 2
    ends.rows |= before.rows
    for _, here, there in sorted(before.rows):
        ends.calls.restore(here, there)
    ends.calls.end_lost()
    assert [(type_, body["code"]) for type_, body in ends.told] == [("delete", 503)] * 2
    assert ends.wire == [("hang_up", 503)] * 2
    assert not ends.rows
    before.calls.end_all("It stops.")
    assert not before.rows


def test_calls_candidates_and_descriptions_have_limits() -> None:
    ends = Ends()
    for bad in ("hello", "v=0\0", "v=0" + "\nm=" * 17, "v=0" + " " * 65_536):
        with pytest.raises(BadMessage):
            ends.call_out(Description("offer", bad))
    with pytest.raises(BadMessage):
        ends.call_out(OFFER._replace(candidates=(FIRST,) * 33))
    with pytest.raises(BadMessage):
        ends.call_out(OFFER._replace(candidates=(Candidate("candidate:\r\na=x", "0", 0),)))
    call = ends.call_out()
    for _ in range(33):
        ends.calls.trickled(call, FIRST)
    ends.calls.accepted(call, ANSWER)
    assert len(ends.told[-1][1]["value"]["iceCandidates"]) == 32
    for _ in range(MAX_CALLS - 1):
        ends.call_out()
    with pytest.raises(Unavailable):
        ends.call_in()
    ends.calls.end_all("The gateway stops.")
    assert len(ends.calls) == 0


def test_candidates_beside_a_description_go_into_it_for_a_network_that_takes_none_later() -> None:
    assert OFFER.whole_sdp == SDP
    both = Description("offer", SDP + "m=video 9 RTP/AVP 96\r\na=mid:1\r\n", (FIRST,))
    whole = both.whole_sdp.split("\r\n")
    assert whole.index(f"a={FIRST.candidate}") == whole.index("a=mid:0") + 1
