"""What runtimes present is read in every form and believed in none: assertions, claims, modes."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from msgnode.core import messages
from msgnode.identity import admission_policy, claims
from msgnode.identity.admission_policy import AdmissionPolicy, Mode, needs_no_identity
from msgnode.identity.credentials import Rejected, header, present, unverified_claims
from msgnode.identity.issuers import Issuer, IssuerBook

ISSUER = Issuer("https://idp.example", ("idp.example",), ("example.org", "example.net"))
NOW = 1_800_000_000.0
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=12,
)
NAMES = st.sampled_from(
    ["assertion", "idp", "domain", "userProfile", "userURL", "guid", "email", "tokenID", "sub"]
)


@given(st.dictionaries(NAMES, JSON | st.dictionaries(NAMES, JSON)))
def test_whatever_is_presented_is_read_or_refused(identity: dict[str, Any]) -> None:
    try:
        credential = present(identity)
    except Rejected:
        return
    if credential is not None:
        assert isinstance(credential.token, str)
        header(credential.token)
        if credential.is_jwt:
            unverified_claims(credential.token)


@pytest.mark.parametrize("name", ["userURL", "username", "email", "preferred_username", "sub"])
def test_a_name_beside_the_profile_is_checked_like_one_in_it(name: str) -> None:
    beside = present({"assertion": "a.b.c", name: "ann"})
    assert beside is not None and beside.profile == {name: "ann"}
    with pytest.raises(Rejected, match=f"another {name}"):
        present({"assertion": "a.b.c", name: "ann", "userProfile": {name: "mallory"}})


@given(st.text(max_size=400))
def test_any_text_is_an_assertion_of_some_form(text: str) -> None:
    credential = present({"assertion": text})
    assert credential is None or credential.token is not None


@given(st.dictionaries(st.sampled_from(["iss", "exp", "iat", "aud", "sub", "email"]), JSON))
def test_whatever_an_issuer_claims_is_taken_or_refused(claimed: dict[str, Any]) -> None:
    with pytest.raises(Rejected):
        claims.read({**claimed, "aud": None}, ISSUER, {"node"}, NOW, 60)
    good = {"iss": ISSUER.url, "exp": NOW + 5, "aud": "node", "sub": "s"}
    try:
        said = claims.read({**good, **claimed}, ISSUER, {"node"}, NOW, 60)
    except Rejected:
        return
    assert said.subject
    assert said.ends > NOW


def test_deep_and_long_assertions_are_refused_in_words() -> None:
    deep = base64.b64encode(b'{"tokenID":' + b"[" * 20_000 + b"]" * 20_000 + b"}").decode()
    for text in (deep, "x" * 17_000):
        with pytest.raises(Rejected, match="token is longer"):
            present({"assertion": text})
    with pytest.raises(Rejected, match="longer than"):
        present({"assertion": "x" * 70_000})
    wrapped = base64.b64encode(json.dumps({"tokenID": "x" * 20_000}).encode()).decode()
    with pytest.raises(Rejected, match="longer than"):
        present({"assertion": wrapped})


def test_an_issuer_is_chosen_by_exact_names_only() -> None:
    book = IssuerBook([ISSUER])
    assert book.named("https://idp.example") is ISSUER
    assert book.named("idp.example") is ISSUER
    for wrong in ("https://idp.example/", "HTTPS://idp.example", "http://idp.example", "", 7, None):
        assert book.named(wrong) is None
    assert book.of_domain("example.net") is ISSUER
    assert Issuer("https://Accounts.google.com").all_domains == ("accounts.google.com",)


ANN = "ann@example.org"


@pytest.mark.parametrize(
    ("name_claim", "claimed", "name"),
    [
        ("", {"email": ANN, "email_verified": True}, ANN),
        ("", {"email": ANN, "email_verified": "true"}, ANN),
        *(
            ("", {"email": ANN, "email_verified": said}, "")
            for said in (False, None, "no", "0", "", 0, 1, "True", "yes", [True])
        ),
        ("", {"email": ANN}, ""),
        ("", {"email": "ann", "email_verified": True}, ""),
        ("", {"email": [ANN], "email_verified": True}, ""),
        ("", {"preferred_username": ANN, "name": ANN, "upn": ANN, "username": ANN}, ""),
        ("", {"preferred_username": "ann", "name": "ann", "upn": "ann", "username": "ann"}, ""),
        ("email", {"email": ANN}, ANN),
        ("email", {"email": ANN, "email_verified": None}, ANN),
        ("email", {"email": ANN, "email_verified": False}, ""),
        ("email", {"email": ANN, "email_verified": "no"}, ""),
        ("upn", {"upn": ANN}, ANN),
        ("upn", {"email": "a@b.c", "email_verified": True, "upn": ANN}, "a@b.c"),
        ("upn", {"email": "a@b.c", "preferred_username": "ann"}, ""),
        ("preferred_username", {"preferred_username": "ann"}, "ann"),
        ("preferred_username", {"preferred_username": ANN}, ""),
        ("preferred_username", {"preferred_username": ANN, "email_verified": False}, ""),
        ("preferred_username", {"preferred_username": ["ann"]}, ""),
    ],
)
def test_a_user_is_named_by_what_the_issuer_vouches_for(
    name_claim: str, claimed: dict[str, Any], name: str
) -> None:
    issuer = replace(ISSUER, name_claim=name_claim)
    who = claims.statement({"sub": "s-1", **claimed}, issuer, NOW).identity()
    assert who.user_url == f"user://example.org/{name or 's-1'}"
    assert who.username == (name or who.user_url)
    assert who.is_known_as("user://example.net/s-1")
    assert who.is_known_as(ANN) is (ANN in (name, claimed.get("upn") if name_claim else None))


@pytest.mark.parametrize(
    ("subject", "name_claim", "url"),
    [
        (ANN, "", "ann%40example.org"),
        (ANN, "sub", ANN),
        (f"x/{ANN}", "", "x%2Fann%40example.org"),
        (f"x/{ANN}", "sub", f"x%2F{ANN}"),
        ("a b?c#d%e", "", "a%20b%3Fc%23d%25e"),
        ("auth0|7", "", "auth0|7"),
    ],
)
def test_a_subject_is_one_segment_and_nobodys_address(
    subject: str, name_claim: str, url: str
) -> None:
    issuer = replace(ISSUER, name_claim=name_claim)
    who = claims.statement({"sub": subject}, issuer, NOW).identity()
    assert who.user_url == f"user://example.org/{url}"
    assert who.is_known_as(ANN) is (subject == ANN and name_claim == "sub")
    assert who.is_known_as(f"user://example.org/{url}")


def test_the_names_of_an_identity_stand_while_its_issuer_names_users_in_this_way() -> None:
    email = {"sub": "s", "email": ANN}
    by_mail = replace(ISSUER, name_claim="email")
    named = claims.statement(email, by_mail, NOW).identity()
    assert by_mail.names_still(named)
    assert not ISSUER.names_still(named)
    of_before = replace(named, name_claim=None)
    assert not by_mail.names_still(of_before)
    assert ISSUER.names_still(replace(of_before, username=of_before.user_url))
    assert replace(ISSUER, is_embedded=True).names_still(of_before)


def test_of_groups_only_texts_count() -> None:
    groups = claims.statement({"sub": "s", "groups": ["a", 7, "b"]}, ISSUER, NOW).identity().groups
    assert groups == ("a", "b")


def test_the_mode_is_that_of_the_domain_of_origin() -> None:
    modes = AdmissionPolicy(Mode.ANONYMOUS, {"b.example": Mode.STRICT})
    assert modes.of("runtime://a.example/1") is Mode.ANONYMOUS
    assert modes.of("hyperty-runtime://B.example/1") is Mode.STRICT
    assert modes.of("runtime://msg-node.b.example/1") is Mode.STRICT


def test_the_star_stands_for_visitors_that_are_not_named() -> None:
    words = {"*": "refused", "b.example": "identified", "c.example": "refused"}
    modes = admission_policy.read("strict", words, "a.example")
    of = {name: modes.of(f"runtime://{name}.example/1") for name in "abcd"}
    assert of == {**dict.fromkeys("acd", Mode.STRICT), "b": Mode.IDENTIFIED}
    refused = [name for name in "bcd" if modes.refuses(f"runtime://{name}.example/1")]
    assert refused == ["c", "d"]
    others = admission_policy.read("anonymous", {"*": "strict"}, "a.example")
    assert others.of("runtime://a.example/1") is others.of("runtime:/1") is Mode.ANONYMOUS
    assert others.of("runtime://x.example/1") is Mode.STRICT
    assert not others.is_open
    assert not others.refuses("runtime://x.example/1")


@pytest.mark.parametrize(
    ("type_", "to", "may"),
    [
        ("handshake", "hyperty://d/1", True),
        ("execute", "domain://idm.d", True),
        ("execute", "domain://idm.d/", True),
        ("update", "runtime://d/9/status", True),
        ("update", "hyperty-runtime://d/9/status", True),
        ("create", "runtime://d/9/status", False),
        ("update", "runtime://d/1/status", False),
        ("update", "runtime://d/9/sm/status", False),
        ("update", "runtime://d/99/status", False),
        ("update", "hyperty://d/status", False),
        ("create", "runtime://d/1/p2phandler/2", False),
        ("create", "runtime://d/p2prequester/2", False),
        ("create", "comm://d/p2phandler/2", False),
        ("execute", "domain://idm.d/status", False),
        ("create", "hyperty://d/1", False),
        ("update", ["runtime://d/9/status", "hyperty://d/1"], False),
        ("update", ["runtime://d/9/status", "domain://idm.d"], True),
        ("create", "hyperty://d/status/1", False),
        ("subscribe", "domain://msg-node.d/sm", False),
    ],
)
def test_what_may_be_said_before_anybody_knows_by_whom(type_: str, to: Any, may: bool) -> None:
    raw = {"id": 1, "type": type_, "from": "runtime://d/9", "to": to, "body": {}}
    message = messages.parse(json.dumps(raw).encode())
    assert needs_no_identity(message, frozenset({"domain://idm.d"}), "runtime://d/9") is may
