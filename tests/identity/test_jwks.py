"""The keys of issuers: fetched once, again for a new one, hardly ever for unknown ones."""

from __future__ import annotations

import asyncio
from time import process_time
from typing import Any

import pytest
from joserfc import jwk

from msgnode.core.errors import Unavailable
from msgnode.core.pending import Pending
from msgnode.identity.credentials import Rejected
from msgnode.identity.issuers import Issuer
from msgnode.identity.jwks import LIFETIME, PAUSE, JwksCache, public_keys
from tests.issuer import _key

ISSUER = Issuer("https://idp.example")


class Scene:
    """Keys with a clock and an issuer in the test's hand."""

    def __init__(self, keeps: float = 1000.0) -> None:
        self.now = 0.0
        self.fetched = 0
        self.published = ["k1"]
        self.is_up = True
        self.keys = JwksCache(self.load, keeps, lambda: self.now)

    async def load(self, issuer: Issuer) -> dict[str, Any]:
        self.fetched += 1
        if not self.is_up:
            raise OSError("down")
        names = enumerate(self.published)
        return {"keys": [_key(n).as_dict(private=False, kid=kid) for n, kid in names]}

    def find(self, kid: str | None = "k1", alg: str = "RS256") -> Any:
        return self.keys.find(ISSUER, kid, alg)

    async def get(self, kid: str | None = "k1", alg: str = "RS256") -> Any:
        """As a message does: waits once where there is something to wait for."""
        try:
            return self.find(kid, alg)
        except Pending as fact:
            known = asyncio.Event()
            fact.when_known(known.set)
            await asyncio.wait_for(known.wait(), 5)
            return self.find(kid, alg)


async def test_a_set_is_fetched_once_for_all_who_wait() -> None:
    scene = Scene()
    found = await asyncio.gather(*(scene.get() for _ in range(50)))
    assert {key.kid for key in found} == {"k1"}
    assert scene.fetched == 1


async def test_case_78_a_new_key_is_fetched_when_a_token_names_it() -> None:
    scene = Scene()
    await scene.get()
    scene.published.append("k2")
    scene.now += PAUSE
    assert (await scene.get("k2")).kid == "k2"
    assert scene.fetched == 2


async def test_case_78_unknown_keys_cost_one_fetch_in_a_while() -> None:
    scene = Scene()
    await scene.get()
    for number in range(100):
        scene.now += 0.05
        with pytest.raises(Rejected):
            await scene.get(f"x{number}")
    assert scene.fetched == 1
    scene.now += PAUSE
    for number in range(100):
        with pytest.raises(Rejected):
            await scene.get(f"y{number}")
    assert scene.fetched == 2


async def test_case_79_known_keys_outlive_an_outage_for_a_while() -> None:
    scene = Scene(keeps=1000.0)
    await scene.get()
    scene.is_up = False
    scene.now = LIFETIME + 1
    assert scene.find().kid == "k1"  # the newer set is asked for in the background
    await asyncio.sleep(0)
    with pytest.raises(Unavailable):
        await scene.get("unknown")
    scene.now = 1001
    with pytest.raises(Unavailable):
        await scene.get()
    scene.is_up = True
    scene.now += PAUSE
    assert (await scene.get()).kid == "k1"


async def test_an_issuer_that_is_down_is_not_asked_for_every_message() -> None:
    scene = Scene()
    scene.is_up = False
    for _ in range(50):
        with pytest.raises(Unavailable):
            await scene.get()
    assert scene.fetched == 1
    assert scene.keys.state(ISSUER) == "out of reach"


async def test_a_key_taken_out_is_good_no_longer() -> None:
    scene = Scene()
    await scene.get()
    scene.published = ["k2"]
    scene.now = LIFETIME + 1
    scene.find()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    with pytest.raises(Rejected):
        scene.find()


async def test_a_change_of_other_issuers_costs_no_keys() -> None:
    scene = Scene()
    await scene.get()
    scene.is_up = False
    scene.keys.keep([Issuer("https://other.example"), ISSUER])
    assert scene.find().kid == "k1"
    scene.keys.keep([Issuer(ISSUER.url, jwks_url="https://elsewhere.example/keys")])
    with pytest.raises(Unavailable):
        await scene.get()


async def test_without_a_kid_there_must_be_no_choice() -> None:
    scene = Scene()
    assert (await scene.get(None)).kid == "k1"
    scene.published.append("k2")
    scene.now += PAUSE
    with pytest.raises(Rejected):
        await scene.get("unknown")
    with pytest.raises(Rejected):
        scene.find(None)


async def test_a_key_is_used_for_its_own_kind_of_signature_only() -> None:
    scene = Scene()
    await scene.get()
    with pytest.raises(Rejected):
        await scene.get("k1", "ES256")


@pytest.mark.filterwarnings("ignore:Key size")
def test_only_keys_that_can_verify_are_taken() -> None:
    good = _key(0).as_dict(private=False, kid="good")
    short = jwk.RSAKey.generate_key(1024).as_dict(private=False, kid="short")
    secret = {"kty": "oct", "k": "c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0", "kid": "secret"}
    encrypts = {**good, "use": "enc", "kid": "enc"}
    listed = [good, short, secret, encrypts, {"kty": "?"}, {"kty": "RSA"}, 17, None]
    assert [key.kid for key in public_keys({"keys": listed})] == ["good"]
    for wrong in ({}, [], None, {"keys": {}}, {"keys": "x"}):
        with pytest.raises(ValueError, match="JWK set"):
            public_keys(wrong)


def test_a_private_part_that_an_issuer_publishes_is_not_read() -> None:
    """To check one takes a second, and one that is made for it minutes."""
    good = _key(0).as_dict(private=True, kid="k")
    wrong = {**good, "d": "A" * 2728, "p": "_" * 1364, "q": "_" * 1364}
    began = process_time()
    keys = public_keys({"keys": [wrong] * 64})
    assert len(keys) == 64
    assert not any(key.is_private for key in keys)
    assert process_time() - began < 2
