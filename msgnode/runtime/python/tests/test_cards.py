"""Case R68: cards that prove nothing are refused before any code is loaded; what a good one does.

docs/reference/runtime.md, section 8.3.
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from world import ECHO, FAR, FakeCatalogue, World, descriptor

from msgnode.runtime.python import Card, CardError, Runtime, Settings
from msgnode.runtime.python.cards import Cards
from msgnode.runtime.python.descriptor import digest_of

BOB = "bob@f"


@cache
def key(number: int = 0, bits: int = 2048) -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65537, bits)


def text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def jwk(private: rsa.RSAPrivateKey, kid: str = "k") -> dict[str, Any]:
    numbers = private.public_key().public_numbers()
    e, n = (text(number.to_bytes(bits)) for number, bits in ((numbers.e, 3), (numbers.n, 512)))
    return {"kty": "RSA", "kid": kid, "e": e, "n": n}


class Domain:
    """The domain f, whose identity provider asserts what a test says."""

    def __init__(self, catalogue: FakeCatalogue) -> None:
        self.catalogue = catalogue
        self.base = f"{catalogue.url}/f"
        self.issuer = f"{self.base}/o"
        now = int(time.time())
        self.head: dict[str, Any] = {"alg": "RS256", "kid": "k"}
        self.claims: dict[str, Any] = {
            **{"iss": self.issuer, "sub": "1", "aud": "protofly", "iat": now, "exp": now + 3600},
            **{
                "user_url": "user://f/bob",
                "protostub": f"{self.base}/.well-known/protocolstub/default",
            },
            "protostub_digests": [digest_of(ECHO)],
        }
        self.signer = key()
        self.keys: Any = [jwk(key())]
        self.card = f"{self.base}/.well-known/contact-card"
        self.mangle: Callable[[str], str] = lambda token: token

    def serve(self, resource: str = "acct%3Abob%40f") -> None:
        parts = [text(json.dumps(each).encode()) for each in (self.head, self.claims)]
        signed = ".".join(parts).encode()
        signature = self.signer.sign(signed, padding.PKCS1v15(), hashes.SHA256())
        token = self.mangle(f"{signed.decode()}.{text(signature)}")
        said = self.catalogue.entries
        links = [{"rel": "protocolstub"}, 5, {"rel": "contact-card", "href": self.card}]
        said[f"/f/.well-known/webfinger?resource={resource}"] = {"links": links}
        said["/f/.well-known/contact-card"] = (200, {}, token.encode())
        said["/f/o/.well-known/openid-configuration"] = {
            "issuer": self.issuer,
            "jwks_uri": f"{self.issuer}/jwks",
        }
        said["/f/o/jwks"] = {"keys": self.keys}


def cards(catalogue: FakeCatalogue, seconds: float = 20.0) -> Cards:
    return Cards(Settings("d", catalogues={"f": f"{catalogue.url}/f"}, fetch=seconds))


async def refused(
    catalogue: FakeCatalogue, user: str = BOB, seconds: float = 20.0
) -> tuple[int, str]:
    with pytest.raises(CardError) as caught:
        await cards(catalogue, seconds).card_of(user)
    assert not [each for each in catalogue.asked if "protocolstub" in each]
    return caught.value.code, str(caught.value)


@pytest.mark.parametrize("user", [BOB, "user://f/bob"])
async def test_a_card_says_who_it_is_and_what_leads_to_him(
    catalogue: FakeCatalogue, user: str
) -> None:
    domain = Domain(catalogue)
    domain.serve("acct%3Abob%40f" if user == BOB else "user%3A%2F%2Ff%2Fbob")
    card = await cards(catalogue).card_of(user)
    assert (card.user_url, card.domain) == ("user://f/bob", "f")
    assert card.protostub == domain.claims["protostub"]
    assert card.digests == (digest_of(ECHO),)
    assert card.expires == domain.claims["exp"]


def other_key(domain: Domain) -> None:
    domain.signer = key(1)


def weak_key(domain: Domain) -> None:
    domain.signer = key(2, 1024)
    domain.keys = [jwk(domain.signer)]


def other_issuer(domain: Domain) -> None:
    """A provider that is genuine and speaks for another domain."""
    domain.claims["iss"] = "https://elsewhere.example/o"


def other_word(domain: Domain) -> None:
    domain.mangle = lambda token: token.replace(".", ".e", 1)


def no_signature(domain: Domain) -> None:
    domain.head = {"alg": "none", "kid": "k"}
    domain.mangle = lambda token: token.rpartition(".")[0] + "."


def symmetric(domain: Domain) -> None:
    domain.head["alg"] = "HS256"


def claims(**changes: Any) -> Callable[[Domain], None]:
    return lambda domain: domain.claims.update(changes)


NOW = int(time.time())
LIES: list[tuple[str, Callable[[Domain], None], str]] = [
    ("a bad signature", other_key, "not signed"),
    ("a key that is too short", weak_key, "not signed"),
    ("another letter", other_word, ""),
    ("no signature", no_signature, "not signed"),
    ("a secret for a key", symmetric, "not signed"),
    ("another domain's issuer", other_issuer, "not at f"),
    ("an issuer over http", claims(iss="http://f.example/o"), "not https"),
    ("expired", claims(iat=NOW - 7200, exp=NOW - 3600), "expired"),
    ("for a year", claims(exp=NOW + 365 * 86_400), "too long"),
    ("not yet", claims(iat=NOW + 3000), "not yet"),
    ("without an end", claims(exp=None), "no number"),
    ("an end in words", claims(exp="soon"), "no number"),
    ("an end that no clock has", claims(exp=10**400), "no number"),
    ("an issuer that is no URL", claims(iss="https://["), "no URL"),
    ("a stub that is no URL", claims(protostub="https://["), "no URL"),
    ("a card that is no URL", lambda domain: setattr(domain, "card", "https://["), "no URL"),
    ("an identity token", claims(aud="party"), "audience"),
    ("another's card", claims(user_url="user://f/mallory"), "mallory"),
    ("a card of another domain", claims(user_url="user://d/bob"), "user://d/bob"),
    ("a stub elsewhere", claims(protostub="https://evil.example/x"), "not at f"),
    ("a stub over http", claims(protostub="http://f.example/x"), "not https"),
    ("digests that are none", claims(protostub_digests="sha256-x"), "no list"),
    ("a thousand digests", claims(protostub_digests=["x"] * 1000), "no list"),
    ("keys that are none", lambda domain: setattr(domain, "keys", {"x": 5}), "not signed"),
    ("no token", lambda domain: setattr(domain, "mangle", lambda token: "x.y"), "no signed"),
    ("a card elsewhere", lambda domain: setattr(domain, "card", "https://evil.example/"), "not at"),
    ("a huge card", lambda domain: setattr(domain, "mangle", lambda token: "x" * 20_000), "more"),
]


@pytest.mark.parametrize(("lie", "said"), [(each[1], each[2]) for each in LIES], ids=lambda x: "")
async def test_r68_a_card_that_proves_nothing_is_refused_before_any_code_is_loaded(
    catalogue: FakeCatalogue, lie: Callable[[Domain], None], said: str
) -> None:
    domain = Domain(catalogue)
    lie(domain)
    domain.serve()
    code, words = await refused(catalogue)
    assert code == 502
    assert said in words


async def test_r68_a_key_of_another_kind_signs_no_card(catalogue: FakeCatalogue) -> None:
    domain = Domain(catalogue)
    numbers = ec.generate_private_key(ec.SECP256R1()).public_key().public_numbers()
    x, y = (text(number.to_bytes(32)) for number in (numbers.x, numbers.y))
    domain.keys = [{"kty": "EC", "crv": "P-256", "kid": "k", "x": x, "y": y}, 5, {"kty": "RSA"}]
    domain.serve()
    assert (await refused(catalogue))[0] == 502


async def test_a_domain_without_cards_one_that_fails_and_names_that_are_none(
    catalogue: FakeCatalogue,
) -> None:
    assert await refused(catalogue) == (404, f"f has no card of {BOB}.")
    path = "/f/.well-known/webfinger?resource=acct%3Abob%40f"
    for answer, code in (
        ({"links": "x"}, 404),
        ((503, {}, b"{}"), 504),
        ((302, {"Location": "https://evil.example/"}, b""), 502),
        ((200, {}, b"[" * 100_000), 502),
        ((200, {}, b"5"), 502),
    ):
        catalogue.entries[path] = answer
        assert (await refused(catalogue))[0] == code
    catalogue.asked.clear()
    for name in ("", "bob", "@f", "bob@", "hyperty://f/bob", "user://f", "bob@f\n", "b@f/../x"):
        assert (await refused(catalogue, name))[0] == 400
    assert catalogue.asked == []
    catalogue.hangs = True
    assert (await refused(catalogue, seconds=0.5))[0] == 504


async def test_a_stub_is_loaded_only_if_the_card_names_its_code(catalogue: FakeCatalogue) -> None:
    async with World(catalogue, retry_load=(0.0, 0.0)) as world:
        loader = world.resolver.loader
        world.catalogue.serve(descriptor())
        loader.catalogue.expect("f", ("sha256-" + "A" * 43 + "=",), time.time() + 60)
        assert (await world.ask(FAR))["code"] == 502
        loader.catalogue.expect("f", (digest_of(ECHO),), time.time() + 60)
        assert (await world.ask(FAR))["code"] == 200


async def test_what_a_card_names_ends_with_the_card(catalogue: FakeCatalogue) -> None:
    async with World(catalogue) as world:
        world.catalogue.serve(descriptor())
        digests = ("sha256-" + "A" * 43 + "=",)
        world.resolver.loader.catalogue.expect("f", digests, time.time() - 1)
        assert (await world.ask(FAR))["code"] == 200


async def test_the_runtime_expects_what_a_card_names_and_nothing_of_a_bad_one(
    catalogue: FakeCatalogue,
) -> None:
    domain = Domain(catalogue)
    settings = Settings("d", catalogues={"f": f"{catalogue.url}/f"})
    async with Runtime(settings) as runtime:
        expected = runtime.resolver.loader.catalogue._asserted
        domain.claims["protostub"] = "https://evil.example/x"
        domain.serve()
        with pytest.raises(CardError):
            await runtime.card_of(BOB)
        assert expected == {}
        domain.claims["protostub"] = f"{domain.base}/x"
        domain.serve()
        card = await runtime.card_of(BOB)
        assert isinstance(card, Card)
        assert expected == {"f": (card.digests, card.expires)}
