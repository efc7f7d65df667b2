"""Invitations: whose are heard, once; which are refused; that what is sent is accepted once.

docs/reference/runtime.md, section 8.5.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding
from test_cards import Domain, key, text
from world import ECHO, FakeCatalogue, descriptor

from msgnode.runtime.python import Card, CardError, Invitation, InvitationError, Runtime, Settings
from msgnode.runtime.python.faults import Fault

A = "hyperty://f/alice"
BOB = "user://d/bob"


class Home:
    """A runtime whose home node's identity manager answers as a test says."""

    def __init__(self, runtime: Runtime, catalogue: FakeCatalogue, faults: list[Fault]) -> None:
        self.runtime = runtime
        self.domain = Domain(catalogue)
        self.faults = faults
        self.asked: list[dict[str, Any]] = []
        self.heard: list[Invitation] = []
        self.answers: dict[str, Any] = {
            "subscribePush": {"endpoint": "https://d/push/1", "userURL": BOB, "expires": 1},
            "unsubscribePush": {},
        }
        runtime.bus.add_listener("domain://idm.d", self._answer)
        self.domain.serve()

    def _answer(self, message: dict[str, Any]) -> None:
        self.asked.append(message["body"])
        value = self.answers.get(message["body"]["method"])
        body = {"code": 404, "description": "off"} if value is None else {"code": 200}
        head = {"id": message["id"], "type": "response", "from": message["to"]}
        body |= {"value": value} if value else {}
        self.runtime.bus.post_message({**head, "to": message["from"], "body": body})

    async def receive(self) -> None:
        await self.runtime.invitations.receive(self.heard.append)

    def leave(self, name: str = "i1", **changes: Any) -> None:
        """What the home node says after somebody has left this at the endpoint."""
        value = {"invitation": name, "expires": int(time.time()) + 60, **changes.pop("value", {})}
        said = {"invitation": value["invitation"], "from": A, "to": BOB, "exp": value["expires"]}
        said |= {"resource": value["resource"]} if "resource" in value else {}
        claims = {**self.domain.claims, **said, **changes.pop("claims", {})}
        parts = [text(json.dumps(each).encode()) for each in (self.domain.head, claims)]
        signed = ".".join(parts).encode()
        signer = changes.pop("signer", key())
        signature = text(signer.sign(signed, padding.PKCS1v15(), hashes.SHA256()))
        assertion = f"{signed.decode()}.{signature}"
        sender = changes.pop("sender", "domain://idm.d")
        body = {"from": A, "to": BOB, "value": value, "protostub": claims["protostub"]}
        body |= {"identity": {"assertion": assertion}, **changes}
        to = f"{self.runtime.url}/invitations"
        head = {"type": "update", "from": sender, "to": to}
        self.runtime.bus.post_message({**head, "body": body})

    async def until(self, number: int, what: list[Any]) -> None:
        async with asyncio.timeout(20):
            while len(what) < number:  # noqa: ASYNC110
                await asyncio.sleep(0.005)


@pytest.fixture
async def home() -> AsyncIterator[Home]:
    async with FakeCatalogue() as catalogue:
        catalogue.entries["/d/.well-known/protocolstub/default"] = descriptor(ECHO)
        urls = {"f": f"{catalogue.url}/f", "d": f"{catalogue.url}/d"}
        faults: list[Fault] = []
        async with Runtime(Settings("d", catalogues=urls), on_error=faults.append) as runtime:
            yield Home(runtime, catalogue, faults)


async def test_who_invites_where_to_and_what_to_is_heard_once(home: Home) -> None:
    await home.receive()
    home.leave(value={"resource": "comm://f/1"})
    await home.until(1, home.heard)
    [found] = home.heard
    assert (found.user, found.domain, found.hyperty) == ("user://f/bob", "f", A)
    assert (found.invitation, found.resource) == ("i1", "comm://f/1")
    home.leave()
    home.leave("i2")
    await home.until(2, home.heard)
    assert [each.invitation for each in home.heard] == ["i1", "i2"]
    assert home.faults == []
    assert home.runtime.resolver.stubs.get("f") is None
    await home.runtime.invitations.stop()
    assert [each["method"] for each in home.asked] == ["subscribePush", "unsubscribePush"]


async def test_what_the_callers_domain_has_not_signed_is_refused(home: Home) -> None:
    await home.receive()
    now = int(time.time())
    lies: list[dict[str, Any]] = [
        {"signer": key(1)},
        {"claims": {"invitation": "another"}},
        {"claims": {"from": "hyperty://f/mallory"}},
        {"claims": {"to": "user://d/carol"}},
        {"claims": {"resource": "comm://f/2"}},
        {"claims": {"exp": now + 3000}},
        {"claims": {"aud": "idm"}},
        {"claims": {"iss": "https://["}},
        {"claims": {"exp": 10**400}},
        {"claims": {"user_url": "user://g/bob"}},
        {"claims": {"user_url": "hyperty://f/bob"}},
        {"protostub": "https://g/x"},
        {"to": "user://d/carol"},
        {"from": "hyperty://localhost/alice"},
        {"from": "hyperty://10.1.2.3/alice"},
        {"from": "hyperty://a.local/alice"},
        {"from": "hyperty://a.example:8443/alice"},
        {"from": 5},
        {"identity": None},
        {"identity": {}},
        {"value": {"expires": now - 1}},
        {"value": {"expires": "soon"}},
    ]
    for number, lie in enumerate(lies):
        home.leave(**lie)
        await home.until(number + 1, home.faults)
    assert {fault.reason for fault in home.faults} == {"invitations.refused"}
    assert home.heard == []
    assert not [each for each in home.domain.catalogue.asked if "protocolstub" in each]


async def test_a_flood_is_dropped_and_counted_while_some_are_checked(home: Home) -> None:
    await home.receive()
    for number in range(20):
        home.leave(f"i{number}")
    await home.until(4, home.heard)
    assert home.runtime.bus.counters["invitations.flood"] == 16


async def test_only_the_home_node_tells_of_invitations(home: Home) -> None:
    await home.receive()
    home.leave(sender="domain://idm.f")
    home.leave("i2")
    await home.until(1, home.heard)
    assert [each.invitation for each in home.heard] == ["i2"]


async def test_it_is_sent_to_the_endpoint_of_the_card_and_accepted_once(home: Home) -> None:
    home.domain.claims |= {"push": {"endpoint": f"{home.domain.base}/push/1"}}
    home.domain.claims |= {"hyperty": "hyperty://f/1"}
    home.domain.serve()
    card = await home.runtime.card_of("bob@f")
    assert (card.endpoint, card.hyperty) == (f"{home.domain.base}/push/1", "hyperty://f/1")
    home.answers["sendInvitation"] = {"invitation": "secret", "expires": time.time() + 60}
    sent = await home.runtime.invitations.send(card, "hyperty://d/a", resource="comm://d/1")
    params = {"endpoint": card.endpoint, "user": "user://f/bob", "hyperty": "hyperty://d/a"}
    assert home.asked[0]["params"] == {**params, "seconds": 60, "resource": "comm://d/1"}

    def accepts(name: str, type_: str = "create") -> bool:
        return sent.is_accepted_by({"type": type_, "body": {"value": {"invitation": name}}})

    assert [accepts("guess"), accepts("secret", "response")] == [False, False]
    assert [accepts("secret"), accepts("secret")] == [True, False]


async def test_that_it_was_withdrawn_is_heard_once_after_it(home: Home) -> None:
    over: list[str] = []
    await home.runtime.invitations.receive(
        home.heard.append, withdrawn=lambda each: over.append(each.invitation)
    )

    def withdraw(name: Any, sender: str = "domain://idm.d") -> None:
        head = {"type": "delete", "from": sender, "to": f"{home.runtime.url}/invitations"}
        home.runtime.bus.post_message({**head, "body": {"value": {"invitation": name}}})

    home.leave()
    await home.until(1, home.heard)
    withdraw("i1", "domain://idm.f")
    nonsense: list[Any] = [None, 5, {}, "i9"]
    for each in nonsense:
        withdraw(each)
    for _ in range(2):
        withdraw("i1")
    await home.until(1, over)
    home.leave("i2")
    withdraw("i2")  # while it is checked
    home.leave("i9")
    home.leave("i3")
    await home.until(2, home.heard)
    assert [each.invitation for each in home.heard] == ["i1", "i3"]
    assert (over, home.faults) == (["i1"], [])


async def test_what_was_sent_can_be_withdrawn_until_it_is_accepted(home: Home) -> None:
    value = {"invitation": "secret", "expires": time.time() + 60, "location": "https://f/push/1/s"}
    home.answers |= {"sendInvitation": value, "withdrawInvitation": {"told": True}}
    invitations = home.runtime.invitations
    card = Card("user://f/bob", "f", "https://f/push/1", "", "", (), 0.0, {})
    accepts = {"type": "create", "body": {"value": {"invitation": "secret"}}}
    sent = await invitations.send(card, A)
    assert await invitations.withdraw(sent)
    assert await invitations.withdraw(sent)
    params = {"invitation": "secret", "location": "https://f/push/1/s"}
    assert home.asked[-1] == {"method": "withdrawInvitation", "params": params}
    assert not sent.is_accepted_by(accepts)
    taken = await invitations.send(card, A)
    assert taken.is_accepted_by(accepts)
    with pytest.raises(InvitationError, match="accepted"):
        await invitations.withdraw(taken)
    meanwhile = await invitations.send(card, A)
    withdrawing = asyncio.ensure_future(invitations.withdraw(meanwhile))
    await asyncio.sleep(0)
    assert meanwhile.is_accepted_by(accepts)
    with pytest.raises(InvitationError, match="accepted"):
        await withdrawing


async def test_what_somebody_accepts_who_then_does_nothing_can_be_accepted_again(
    home: Home,
) -> None:
    value = {"invitation": "secret", "expires": time.time() + 60}
    home.answers |= {"sendInvitation": value, "reopenInvitation": {}}
    invitations = home.runtime.invitations
    card = Card("user://f/bob", "f", "https://f/push/1", "", "", (), 0.0, {})
    accepts = {"type": "create", "body": {"value": {"invitation": "secret"}}}
    sent = await invitations.send(card, A)
    assert sent.is_accepted_by(accepts)
    await invitations.reopen(sent)
    assert home.asked[-1] == {"method": "reopenInvitation", "params": {"invitation": "secret"}}
    assert sent.is_accepted_by(accepts)
    assert not sent.is_accepted_by(accepts)
    del home.answers["reopenInvitation"]
    with pytest.raises(InvitationError):
        await invitations.reopen(sent)
    assert not sent.is_accepted_by(accepts)


async def test_who_cannot_be_invited(home: Home) -> None:
    with pytest.raises(CardError) as caught:
        await home.runtime.invitations.send("bob@f", "hyperty://d/a")
    assert caught.value.code == 410
    home.answers.clear()
    with pytest.raises(InvitationError) as refused:
        await home.receive()
    assert refused.value.code == 404


async def test_an_endpoint_elsewhere_is_no_good_card(home: Home) -> None:
    home.domain.claims |= {"push": {"endpoint": "https://evil.example/push/1"}}
    home.domain.serve()
    with pytest.raises(CardError, match="not at f"):
        await home.runtime.card_of("bob@f")
