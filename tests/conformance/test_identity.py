"""Cases 71-79 and 86: identities in messages, their keys and their issuers, over real sockets."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
import time
import urllib.request
from collections.abc import Callable
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.hashes import SHA256
from joserfc import jwk

from tests.client import Client, Frame, code, runtime
from tests.conftest import Come
from tests.issuer import AUDIENCE, Issuer, enter
from tests.node import Node, eventually

IDM = "domain://idm.localhost"


@pytest.fixture
async def pair(come: Come, idnode: Node) -> tuple[Client, Client]:
    """A sender and a receiver on the node that believes the issuer."""
    return await come(to=idnode), await come(to=idnode)


async def said(pair: tuple[Client, Client], identity: Any, **body: Any) -> Frame:
    """What becomes of a message with an identity: the receiver's copy, or the sender's answer."""
    sender, receiver = pair
    body = {"value": "hello", **({"identity": identity} if identity is not None else {}), **body}
    id_ = await sender.send("create", f"{receiver.runtime_url}/sm", body)
    arrived = await receiver.received_from(sender)
    if arrived:
        return arrived[0]
    return await sender.answer(id_)


def unsigned(head: dict[str, Any], claims: dict[str, Any]) -> str:
    parts = [json.dumps(each).encode() for each in (head, claims)]
    return ".".join(base64.urlsafe_b64encode(each).decode().rstrip("=") for each in parts) + "."


async def test_case_71_a_valid_identity_is_delivered_as_asserted(
    pair: tuple[Client, Client], issuer: Issuer
) -> None:
    identity = issuer.identity()
    delivered = await said(pair, identity)
    assert delivered["body"]["assertedIdentity"] is True
    assert delivered["body"]["identity"] == identity
    assert delivered["body"]["auth"] is False  # no policy permitted it


@pytest.mark.parametrize("form", ["jwt", "wrapped", "idToken", "no padding", "no idp"])
async def test_case_71_in_every_form_of_an_assertion(
    pair: tuple[Client, Client], issuer: Issuer, form: str
) -> None:
    identity = issuer.identity()
    if form == "jwt":
        identity["assertion"] = issuer.token()
    elif form == "no padding":
        identity["assertion"] = identity["assertion"].rstrip("=")
    elif form == "no idp":
        del identity["idp"]
    if form == "idToken":
        delivered = await said(pair, None, idToken=issuer.token())
    else:
        delivered = await said(pair, identity)
    assert delivered["body"].get("assertedIdentity") is True


def attacks(issuer: Issuer) -> dict[str, str]:
    good = issuer.token()
    head, payload, signature = good.split(".")
    other = base64.urlsafe_b64encode(json.dumps(issuer.claims("mallory")).encode()).decode()
    public = issuer.keys["k1"].as_pem(private=False)
    stranger = jwk.RSAKey.generate_key(2048)
    own_key = {"alg": "RS256", "kid": "k1", "jwk": stranger.as_dict(private=False)}
    return {
        "tampered payload": f"{head}.{other.rstrip('=')}.{signature}",
        "tampered signature": f"{head}.{payload}.{signature[:-8]}AAAAAAAA",
        "alg none": unsigned({"alg": "none"}, issuer.claims()),
        "alg None with kid": unsigned({"alg": "None", "kid": "k1"}, issuer.claims()),
        "HS256 with the public key": _with_secret(issuer.claims(), public),
        "another key under our kid": issuer.token(key=stranger),
        "a key of its own": _signed(own_key, issuer.claims(), stranger),
        "wrong kid": issuer.token(kid="k1", key=None).replace(head, _head("nobody's"), 1),
        "kid of a wrong kind": issuer.token().replace(head, _head(["k1"]), 1),
        "critical extension": _signed(
            {"alg": "RS256", "kid": "k1", "crit": ["b64"], "b64": True},
            issuer.claims(),
            issuer.keys["k1"],
        ),
        "RS512 is not in the list": issuer.token(alg="RS512"),
        "huge": issuer.token(padding="x" * 20_000),
    }


def _with_secret(claims: dict[str, Any], secret: bytes) -> str:
    text = unsigned({"alg": "HS256", "kid": "k1"}, claims)[:-1]
    mark = hmac.new(secret, text.encode(), "sha256").digest()
    return f"{text}.{base64.urlsafe_b64encode(mark).decode().rstrip('=')}"


def _head(kid: Any) -> str:
    raw = json.dumps({"alg": "RS256", "kid": kid}).encode()
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def _signed(head: dict[str, Any], claims: dict[str, Any], key: jwk.RSAKey) -> str:
    """A JWT as an attacker makes it: any header, really signed."""
    text = unsigned(head, claims)[:-1]
    signature = key.private_key.sign(text.encode(), PKCS1v15(), SHA256())
    return f"{text}.{base64.urlsafe_b64encode(signature).decode().rstrip('=')}"


@pytest.mark.parametrize("bare", [False, True])
async def test_case_72_forged_tokens_are_refused_and_not_delivered(
    pair: tuple[Client, Client], issuer: Issuer, bare: bool
) -> None:
    for attack, token in attacks(issuer).items():
        identity = issuer.identity(token=token)
        if bare:
            identity["assertion"] = token
        answer = await said(pair, identity)
        assert answer["type"] == "response", attack
        assert code(answer) in (401, 403), attack


async def test_case_73_the_times_of_a_token(pair: tuple[Client, Client], issuer: Issuer) -> None:
    now = int(time.time())
    for claims, expected in (
        ({"exp": now - 3600}, 401),
        ({"exp": now - 20}, "delivered"),
        ({"exp": now + 60.5}, "delivered"),
        ({"nbf": now + 20}, "delivered"),
        ({"nbf": now + 600}, 401),
        ({"iat": now + 600}, 401),
        ({"exp": None}, 401),
        ({"exp": str(now + 3600)}, 401),
        ({"exp": True}, 401),
        ({"exp": [now + 3600]}, 401),
        ({"nbf": "soon"}, 401),
    ):
        answer = await said(pair, issuer.identity(token=_any(issuer, claims)))
        if expected == "delivered":
            assert answer["type"] == "create", (claims, answer)
        else:
            assert code(answer) == expected, claims


def _any(issuer: Issuer, claims: dict[str, Any], user: str = "alice") -> str:
    """A token with any claims, whatever a library thinks of them."""
    head = {"alg": "RS256", "kid": "k1"}
    return _signed(head, issuer.claims(user, **claims), issuer.keys["k1"])


async def test_case_74_other_audiences_and_issuers_are_refused_and_nobody_is_asked(
    pair: tuple[Client, Client], issuer: Issuer, make_issuer: Callable[..., Issuer]
) -> None:
    unknown = make_issuer()
    for identity in (
        issuer.identity(token=issuer.token(aud="somebody-else")),
        issuer.identity(token=issuer.token(aud=None)),
        issuer.identity(token=issuer.token(aud=["a", "b"])),
        issuer.identity(token=issuer.token(aud=[AUDIENCE, "b"], azp="b")),
        issuer.identity(token=issuer.token(iss=issuer.url + "/")),
        unknown.identity(),
        unknown.identity(idp={"domain": issuer.domain}),
        issuer.identity(idp={"domain": unknown.domain}),
        issuer.identity(token=issuer.token(sub="")),
        issuer.identity(token=_any(issuer, {"sub": 17})),
    ):
        assert code(await said(pair, identity)) == 401, identity
    token = issuer.token(aud=["b", AUDIENCE], azp=AUDIENCE)
    assert (await said(pair, issuer.identity(token=token)))["type"] == "create"
    assert not unknown.asked


KEY = ",".join(str(number % 251) for number in range(294))
OTHER_KEY = ",".join(str(number % 241) for number in range(294))


def guid_of(key: str) -> str:
    return "user-guid://" + hashlib.sha256(bytes(map(int, key.split(",")))).hexdigest()


async def test_case_75_the_profile_must_agree_with_the_token(
    pair: tuple[Client, Client], issuer: Issuer
) -> None:
    for profile in (
        {"userURL": f"user://{issuer.domain}/bob@{issuer.domain}"},
        {"UserURL": "user://google.com/alice@idp.test"},
        {"email": f"bob@{issuer.domain}"},
        {"username": "bob"},
        {"sub": "sub-bob"},
    ):
        answer = await said(pair, issuer.identity(userProfile=profile))
        assert code(answer) == 401, profile
    unverified = issuer.token(email_verified=False)
    assert code(await said(pair, issuer.identity(token=unverified))) == 401
    by_name = issuer.token(email_verified=False, preferred_username="alice")
    profile = {"userURL": f"user://{issuer.domain}/alice"}
    assert code(await said(pair, issuer.identity(token=by_name, userProfile=profile))) == 401
    profile = {"userURL": f"user://{issuer.domain}/sub-alice"}
    delivered = await said(pair, issuer.identity(token=by_name, userProfile=profile))
    assert delivered["body"]["assertedIdentity"] is True


async def test_case_75_the_guid_is_of_the_key_and_a_runtime_keeps_its_key(
    pair: tuple[Client, Client], issuer: Issuer
) -> None:
    profile = {"guid": guid_of(KEY)}
    good = issuer.identity(token=issuer.token(nonce=KEY), userProfile=profile)
    delivered = await said(pair, good)
    assert delivered["body"]["assertedIdentity"] is True
    of_another = issuer.identity(token=issuer.token(nonce=OTHER_KEY), userProfile=profile)
    assert code(await said(pair, of_another)) == 401
    another_key = issuer.identity(token=issuer.token(nonce=OTHER_KEY))
    assert code(await said(pair, another_key)) == 401


async def test_case_76_what_a_client_asserts_by_itself_arrives_as_not_asserted(
    pair: tuple[Client, Client],
) -> None:
    delivered = await said(pair, None, assertedIdentity=True, auth=True)
    assert delivered["body"]["auth"] is False
    assert delivered["body"].get("assertedIdentity", False) is False
    sender, receiver = pair
    raw = (
        '{"id":"esc","type":"create","from":"%s","to":"%s/sm",'
        '"body":{"\\u0061uth":true,"asserted\\u0049dentity":true}}'
    )
    await sender.send_raw(raw % (sender.runtime_url, receiver.runtime_url))
    delivered = await receiver.expect(id="esc")
    assert delivered["body"] == {"auth": False}


async def test_case_76_a_key_written_with_escapes_is_verified_as_well(
    pair: tuple[Client, Client], issuer: Issuer
) -> None:
    sender, receiver = pair
    identity = json.dumps(issuer.identity(token=issuer.token(aud="somebody-else")))
    raw = '{"id":"esc","type":"create","from":"%s","to":"%s/sm","body":{"\\u0069dentity":%s}}'
    await sender.send_raw(raw % (sender.runtime_url, receiver.runtime_url, identity))
    assert code(await sender.answer("esc")) == 401


def verifications(node: Node) -> float:
    """Signatures the node has checked so far."""
    with urllib.request.urlopen(f"http://localhost:{node.port}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    found = re.search(r"^msgnode_identity_verifications_total (\S+)$", text, re.MULTILINE)
    assert found, text
    return float(found[1])


async def test_case_79_an_issuer_that_hangs_holds_up_only_who_needs_its_keys(
    idnode: Node, issuer: Issuer, make_issuer: Callable[..., Issuer], come: Come
) -> None:
    silent = make_issuer()
    silent.gate.clear()
    enter(idnode.data_dir / "node.sqlite3", silent.row(introspection_url=""), changed=True)
    pair = await come(to=idnode), await come(to=idnode)
    needy = await come(to=idnode)
    limit = time.monotonic() + 20
    while not silent.asked:
        await needy.send("create", f"{pair[1].runtime_url}/sm", {"identity": silent.identity()})
        assert time.monotonic() < limit
        await eventually()
    began = time.monotonic()
    for _ in range(50):  # while it hangs, the others speak and are verified
        assert (await said(pair, issuer.identity()))["body"]["assertedIdentity"] is True
        assert (await said(pair, None))["type"] == "create"
    assert not silent.gate.is_set()
    answers = [await needy.expect(type="response") for _ in range(1)]
    assert code(answers[-1]) in (401, 503)
    assert time.monotonic() - began < 10
    silent.gate.set()


async def test_case_86_an_opaque_token_is_asked_about(
    pair: tuple[Client, Client], issuer: Issuer
) -> None:
    def of(token: str) -> dict[str, Any]:
        identity = issuer.identity(token=token)
        identity["idp"]["protocol"] = "OAuth 2.0"
        return identity

    now = int(time.time())
    issuer.opaque["0paque-good"] = {
        "sub": "sub-alice", "email": f"alice@{issuer.domain}", "email_verified": True,
        "exp": now + 600, "iat": now, "client_id": AUDIENCE,
    }  # fmt: skip
    issuer.opaque["0paque-others"] = {**issuer.opaque["0paque-good"], "client_id": "other"}
    good = await said(pair, of("0paque-good"))
    assert good["body"]["assertedIdentity"] is True
    asked = issuer.asked["/introspect"]
    assert (await said(pair, of("0paque-good")))["type"] == "create"
    assert issuer.asked["/introspect"] == asked
    assert code(await said(pair, of("0paque-denied"))) == 401
    assert code(await said(pair, of("0paque-others"))) == 401
    issuer.is_up = False
    try:
        delivered = await said(pair, of("0paque-unheard"))
        assert delivered["type"] == "create"  # the policy decides
        assert delivered["body"].get("assertedIdentity", False) is False
        strict = await come_as(pair[0], "identified.test")
        await strict.send("create", pair[1].runtime_url, {"identity": of("0paque-unheard2")})
        assert code(await strict.expect(type="response")) == 503
        await strict.hang_up()
    finally:
        issuer.is_up = True


async def come_as(like: Client, domain: str) -> Client:
    """A client of the same node whose runtime is of another domain."""
    client = await Client(like.url).connect()
    return await client.open(runtime().replace("localhost", domain))
