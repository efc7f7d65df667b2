"""Invitations: the cases that both languages share, and what is Python's alone.

js/tests/invitations-cases.jsonl has the cases, js/tests/invitations.test.mjs plays them, too. The
rules are those of docs/reference/runtime.md, section 8.5.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from dataclasses import asdict
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding
from fake_clock import settled
from peers import soon
from shared_cases import cases, like
from test_cards import Domain, key, text
from world import ECHO, FakeCatalogue, descriptor

from msgnode.runtime.python import Card, CardError, Invitation, InvitationError, Runtime, Settings
from msgnode.runtime.python.faults import Fault
from msgnode.runtime.python.invitations import Sent

A = "hyperty://f/alice"
BOB = "user://d/bob"
RECEIVES = {
    "subscribePush": {"endpoint": "https://d/push/1", "userURL": BOB, "expires": 1},
    "unsubscribePush": {},
}


def named(value: Any) -> Any:
    """{"$in": n} is the time in n seconds."""
    if not isinstance(value, dict):
        return value
    if "$in" in value:
        return int(time.time()) + value["$in"]
    return {name: named(each) for name, each in value.items()}


class Play:
    """The steps of a case: a runtime whose home node's identity manager answers as they say."""

    def __init__(self, runtime: Runtime, catalogue: FakeCatalogue, faults: list[Fault]) -> None:
        self.runtime = runtime
        self.domain = Domain(catalogue)
        self._faults = faults
        self._asked: list[dict[str, Any]] = []
        self._heard: list[Invitation] = []
        self._over: list[str] = []
        self._answers: dict[str, Any] = {}
        self._sent: dict[str, Sent] = {}
        self._withdrawing: asyncio.Future[bool]
        runtime.bus.add_listener("domain://idm.d", self._answer)
        self.domain.serve()

    def _answer(self, message: dict[str, Any]) -> None:
        self._asked.append(message["body"])
        off = {"code": 404, "description": "off"}
        body = self._answers.get(message["body"]["method"], off)
        head = {"id": message["id"], "type": "response", "from": message["to"]}
        self.runtime.bus.post_message({**head, "to": message["from"], "body": body})

    async def steps(self, steps: list[list[Any]]) -> None:
        for act, *words in steps:
            done = getattr(self, f"do_{act}")(*map(named, words))
            if done is not None:
                await done

    # --- what happens -----------------------------------------------------------------------------

    do_settle = staticmethod(settled)

    def do_home(self, answers: dict[str, Any]) -> None:
        self._answers = answers

    async def do_receive(self, code: int = 200) -> None:
        if code == 200:
            self._answers = {name: {"code": 200, "value": v} for name, v in RECEIVES.items()}
        receiving = self.runtime.invitations.receive(
            self._heard.append, withdrawn=lambda each: self._over.append(each.invitation)
        )
        await self._is_told(code, receiving)

    async def do_stop(self) -> None:
        await self.runtime.invitations.stop()

    def do_leave(self, changes: dict[str, Any]) -> None:
        """What the home node says after somebody has left this at the endpoint."""
        more = dict(changes)
        value = {"invitation": "i1", "expires": int(time.time()) + 60, **more.pop("value", {})}
        said = {"invitation": value["invitation"], "from": A, "to": BOB, "exp": value["expires"]}
        said |= {"resource": value["resource"]} if "resource" in value else {}
        claims = {**self.domain.claims, **said, **more.pop("claims", {})}
        parts = [text(json.dumps(each).encode()) for each in (self.domain.head, claims)]
        signed = ".".join(parts).encode()
        signer = key(1) if more.pop("signer", "") else key()
        signature = text(signer.sign(signed, padding.PKCS1v15(), hashes.SHA256()))
        sender = more.pop("sender", "domain://idm.d")
        body = {"from": A, "to": BOB, "value": value, "protostub": claims["protostub"]}
        body |= {"identity": {"assertion": f"{signed.decode()}.{signature}"}, **more}
        self._says("update", sender, body)

    def _says(self, kind: str, sender: str, body: dict[str, Any]) -> None:
        head = {"type": kind, "from": sender, "to": f"{self.runtime.url}/invitations"}
        self.runtime.bus.post_message({**head, "body": body})

    async def do_flood(self, times: int, counter: str, count: int) -> None:
        for number in range(times):
            self.do_leave({"value": {"invitation": f"i{number}"}})
        await soon(lambda: self.runtime.bus.counters[counter] == count)

    def do_withdraws(self, invitation: Any, sender: str = "domain://idm.d") -> None:
        self._says("delete", sender, {"to": BOB, "value": {"invitation": invitation}})

    async def do_send(self, name: str, more: dict[str, Any] | None = None, code: int = 200) -> None:
        options = dict(more or {})
        endpoint = options.pop("endpoint", "https://f/push/1")
        card = Card("user://f/bob", "f", endpoint, "", "", (), 0.0, {})
        sent = await self._is_told(
            code, self.runtime.invitations.send(card, "hyperty://d/a", **options)
        )
        if code == 200:
            self._sent[name] = sent

    async def do_does(self, method: str, name: str, code: int = 200) -> None:
        act = getattr(self.runtime.invitations, method)
        assert await self._is_told(code, act(self._sent[name])) in (True, None)

    async def do_withdrawing(self, name: str) -> None:
        withdrawing = self.runtime.invitations.withdraw(self._sent[name])
        self._withdrawing = asyncio.ensure_future(withdrawing)
        await asyncio.sleep(0)

    async def do_withdrawn(self, code: int) -> None:
        await self._is_told(code, self._withdrawing)

    async def _is_told(self, code: int, asking: Any) -> Any:
        if code == 200:
            return await asking
        with pytest.raises((CardError, InvitationError)) as refused:
            await asking
        assert getattr(refused.value, "code", 0) == code
        return None

    # --- what is so -------------------------------------------------------------------------------

    async def do_heard(self, *expected: dict[str, Any]) -> None:
        await soon(lambda: len(self._heard) >= len(expected))
        pairs = zip(expected, map(asdict, self._heard), strict=True)
        assert [like(*pair) for pair in pairs] == [*expected]

    async def do_over(self, *names: str) -> None:
        await soon(lambda: len(self._over) >= len(names))
        assert self._over == [*names]

    async def do_refused(self, count: int) -> None:
        await soon(lambda: len(self._faults) >= count)
        assert [fault.reason for fault in self._faults] == ["invitations.refused"] * count

    def do_asked(self, expected: dict[str, Any]) -> None:
        assert like(expected, self._asked[-1]) == expected

    def do_unloaded(self) -> None:
        assert self.runtime.resolver.stubs.get("f") is None
        assert not [each for each in self.domain.catalogue.asked if "protocolstub" in each]

    def do_unasked(self) -> None:
        assert self.domain.catalogue.asked == []

    def do_accepts(
        self, name: str, is_it: bool, invitation: str | None = "secret", kind: str = "create"
    ) -> None:
        body = {} if invitation is None else {"value": {"invitation": invitation}}
        assert self._sent[name].is_accepted_by({"type": kind, "body": body}) is is_it


@pytest.fixture
async def play() -> AsyncIterator[Play]:
    async with FakeCatalogue() as catalogue:
        catalogue.entries["/d/.well-known/protocolstub/default"] = descriptor(ECHO)
        urls = {"f": f"{catalogue.url}/f", "d": f"{catalogue.url}/d"}
        faults: list[Fault] = []
        async with Runtime(Settings("d", catalogues=urls), on_error=faults.append) as runtime:
            yield Play(runtime, catalogue, faults)


@pytest.mark.parametrize("case", cases("invitations", f="f", g="g"))
async def test_invitations(play: Play, case: dict[str, Any]) -> None:
    await play.steps(case["steps"])


# --- what is Python's alone -----------------------------------------------------------------------


async def test_an_integer_that_no_time_has_is_refused(play: Play) -> None:
    await play.do_receive()
    play.do_leave({"claims": {"exp": 10**400}})
    await play.do_refused(1)


async def test_a_card_says_the_endpoint_which_is_at_its_own_domain(play: Play) -> None:
    with pytest.raises(CardError) as caught:
        await play.runtime.invitations.send("bob@f", "hyperty://d/a")
    assert caught.value.code == 410
    domain = play.domain
    domain.claims |= {"push": {"endpoint": f"{domain.base}/push/1"}, "hyperty": "hyperty://f/1"}
    domain.serve()
    card = await play.runtime.card_of("bob@f")
    assert (card.endpoint, card.hyperty) == (f"{domain.base}/push/1", "hyperty://f/1")
    domain.claims |= {"push": {"endpoint": "https://evil.example/push/1"}}
    domain.serve()
    with pytest.raises(CardError, match="not at f"):
        await play.runtime.card_of("bob@f")
