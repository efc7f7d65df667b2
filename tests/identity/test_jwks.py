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
from msgnode.identity.jwks import LIFETIME, PAUSE, JwksCache, read_key_set
from tests.issuer import _key

ISSUER = Issuer("https://idp.example")


class Scene:
    """Keys with a clock and an issuer in the test's hand."""

    def __init__(self, keeps: float = 1000.0) -> None:
        self.now = 0.0
        self.fetched = 0
        self.published = ["k1"]
        self.is_up = True
        self.written: dict[str, Any] = {}  # members that replace those of each key
        self.reported: list[tuple[str, str]] = []
        self.keys = JwksCache(self.load, keeps, lambda: self.now, self.report)

    def report(self, issuer: Issuer, fault: str, unusable: str) -> None:
        self.reported.append((fault, unusable))

    async def load(self, issuer: Issuer) -> dict[str, Any]:
        self.fetched += 1
        if not self.is_up:
            raise OSError("down")
        names = enumerate(self.published)
        keys = [_key(n).as_dict(private=False, kid=kid) for n, kid in names]
        return {"keys": [{**key, **self.written} for key in keys]}

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
    assert scene.reported == [("down", "")]


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
    found = read_key_set({"keys": [*listed, *[good] * 64]})
    assert {key.kid for key in found.keys} == {"good"}
    reasons = (
        "key 2 (short) is too short: 1024 bits",
        "key 3 (secret) is a shared secret",
        "key 4 (enc) is not for signatures (use: enc)",
        "key 5 is of a kind that is not known here (kty: ?)",
        "key 6 cannot be read",
        "key 7 is no JSON object",
        "key 8 is no JSON object",
        "only the first 64 of its 72 keys",
    )
    assert len(found.faults) == len(reasons)
    for fault, reason in zip(found.faults, reasons, strict=True):
        assert fault.startswith(reason)
    no_sets: tuple[Any, ...] = ({}, [], None, {"keys": {}}, {"keys": "x"})
    for wrong in no_sets:
        with pytest.raises(ValueError, match="JWK set"):
            read_key_set(wrong)


def test_a_member_without_content_counts_as_absent() -> None:
    names = [
        "alg",
        "use",
        "kid",
        "x5t",
        "x5u",
        "x5c",
        "key_ops",
        "crv",
        "d",
        "dp",
        "dq",
        "k",
        "oth",
        "p",
        "q",
        "qi",
        "x",
        "y",
    ]
    empties: tuple[Any, ...] = (None, "", [])
    for empty in empties:
        key = {**dict.fromkeys(names, empty), **_key(0).as_dict(private=False)}
        found = read_key_set({"keys": [{**key, "kid": empty}]})
        assert (len(found.keys), found.faults, found.has_private) == (1, (), False)
    ec = jwk.ECKey.generate_key("P-256").as_dict(private=False)
    assert read_key_set({"keys": [{**ec, "d": None, "n": None, "e": None, "kid": "d"}]}).keys
    for member in ("n", "e", "kty"):
        none = read_key_set({"keys": [{**_key(0).as_dict(private=False), member: None}]})
        assert (none.keys, len(none.faults)) == ([], 1)


async def test_a_set_without_a_usable_key_is_reported_with_the_reason_for_each() -> None:
    scene = Scene()
    for written, reason in (
        ({"use": "enc"}, "key 1 (k1) is not for signatures (use: enc)"),
        ({"alg": "PS512"}, "key k1 does not fit RS256, ES256"),
        ({"key_ops": ["encrypt"]}, "key 1 (k1) is not for verification"),
    ):
        scene.written = written
        with pytest.raises(Unavailable, match="cannot use any of the keys"):
            await scene.get()
        assert reason in scene.reported[-1][1]
        scene.now += LIFETIME + 1
    scene.written = {"use": None, "alg": None}
    scene.now += PAUSE
    with pytest.raises(Pending):
        scene.find()
    assert (await scene.get()).kid == "k1"
    assert scene.reported[-1] == ("", "")
    assert scene.keys.counts() == {ISSUER.url: (1, 0)}


def test_a_private_part_that_an_issuer_publishes_is_not_read() -> None:
    """To check one takes a second, and one that is made for it minutes."""
    good = _key(0).as_dict(private=True, kid="k")
    wrong = {**good, "d": "A" * 2728, "p": "_" * 1364, "q": "_" * 1364}
    began = process_time()
    keys, _, has_private = read_key_set({"keys": [wrong] * 64})
    assert (len(keys), has_private) == (64, True)
    assert not any(key.is_private for key in keys)
    assert process_time() - began < 2
