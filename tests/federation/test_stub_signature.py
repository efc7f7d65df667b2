"""Stubs that are signed, as they are found: by a key that was given for the peer, or by nobody."""

from __future__ import annotations

import asyncio
import base64
import io
import json
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from joserfc import jws
from joserfc.jwk import ECKey, OctKey, OKPKey, RSAKey

from msgnode.console.peer_actions import decision_word
from msgnode.console.roles import OPERATOR
from msgnode.core.errors import BadGateway
from msgnode.federation import discovery, store, stub_signature
from msgnode.federation.descriptor import FoundStub
from msgnode.federation.stub_signature import keys_fault
from msgnode.models import Alarm, Peer, PeerStub
from msgnode.net.http import Answer
from tests.console.test_peers_api import as_role, post

from .test_discovery import PATH, Catalogues

B = "b.example"
SOURCE = b"export default class {} // \xff"
KEYS = {
    "Ed25519": OKPKey.generate_key("Ed25519", {"kid": "first"}),
    "EdDSA": OKPKey.generate_key("Ed25519", {"kid": "second"}),
    "ES256": ECKey.generate_key("P-256", {"kid": "third"}),
    "RS256": RSAKey.generate_key(2048, {"kid": "fourth"}),
}
PUBLIC = json.dumps({"keys": [key.as_dict(private=False) for key in KEYS.values()]})
PEER = f"/api/v1/peers/{B}/"


def signed(algorithm: str = "Ed25519", content: bytes = SOURCE, key: Any = None) -> str:
    """A signature, its payload left out."""
    head = {"alg": algorithm, "kid": "whatever it says"}
    whole = jws.serialize_compact(head, content, key or KEYS[algorithm], [algorithm])
    first, _, last = whole.split(".")
    return f"{first}..{last}"


def whole(content: bytes = SOURCE) -> str:
    """A signature with its payload."""
    return jws.serialize_compact({"alg": "Ed25519"}, content, KEYS["Ed25519"], ["Ed25519"])


def find(
    signature: str, keys: str = PUBLIC, content: bytes = SOURCE, must_be_signed: bool = False,
    at: str = "sourcePackage",
) -> FoundStub:  # fmt: skip
    """Look for a stub that comes with this signature."""
    package = {"encoding": "base64", "sourceCode": base64.b64encode(content).decode()}
    told: dict[str, Any] = {"configuration": {"url": f"wss://{B}/ws"}, "sourcePackage": package}
    (told if at == "descriptor" else package)["signature"] = signature
    places: Any = Catalogues()
    places.answers[f"https://{B}{PATH}"] = Answer(200, json.dumps(told).encode())
    return asyncio.run(discovery.find(places, B, keys=keys, must_be_signed=must_be_signed))


@pytest.mark.parametrize("algorithm", KEYS)
def test_case_16_a_good_signature_names_the_key(algorithm: str) -> None:
    for at in ("sourcePackage", "descriptor"):
        assert find(signed(algorithm), at=at).signed_by == KEYS[algorithm].kid
    assert find(whole()).signed_by == "first"


def test_case_16_an_altered_byte_is_rejected() -> None:
    for content in (SOURCE + b" ", SOURCE[1:], SOURCE.replace(b"\xff", b"\xfe")):
        with pytest.raises(BadGateway, match="altered"):
            find(signed(), content=content)
    with pytest.raises(BadGateway, match="another source"):
        find(whole(), content=SOURCE + b" ")


def test_case_16_what_is_not_signed_is_rejected_where_keys_were_given_or_all_must_be() -> None:
    with pytest.raises(BadGateway, match="not signed"):
        find("")
    with pytest.raises(BadGateway, match="no key was given"):
        find(signed(), keys="", must_be_signed=True)
    assert find("", keys="").signed_by == ""
    assert find("no signature at all", keys="").signed_by == "", "nobody looks at it"


@pytest.mark.parametrize(
    "signature", ["x", "x.y", "..", "a..b", "a.b.c.d", "." * 5_000, "e30..e30", "\ud800..x", "é..é"]
)
def test_what_is_no_signature_is_rejected(signature: str) -> None:
    with pytest.raises(BadGateway):
        find(signature)


def test_case_16_a_signature_by_another_key_or_by_the_public_one_as_a_secret_is_rejected() -> None:
    secret = OctKey.import_key(PUBLIC)
    for forged in (
        signed(key=OKPKey.generate_key("Ed25519")),
        jws.serialize_compact({"alg": "HS256"}, SOURCE, secret, ["HS256"]),
        jws.serialize_compact({"alg": "none"}, SOURCE, secret, ["none"]),
    ):
        with pytest.raises(BadGateway):
            find(forged)


@pytest.mark.parametrize(
    "keys",
    [
        "x", "[]", "{}", '{"keys":[]}', '{"keys":[{"kty":"oct","k":"c2VjcmV0"}]}',
        '{"keys":[' + " " * 20_000 + "]}", "[" * 10_000,
    ],
)  # fmt: skip
def test_what_cannot_be_the_keys_of_a_peer_is_refused(keys: str) -> None:
    assert keys_fault(keys)


def test_public_keys_may_be_those_of_a_peer_and_private_ones_not() -> None:
    assert keys_fault(PUBLIC) == keys_fault("") == ""
    for key in KEYS.values():
        assert "private" in keys_fault(json.dumps({"keys": [key.as_dict(private=True)]}))


def test_keys_of_a_peer_may_have_members_without_content() -> None:
    keys = json.loads(PUBLIC)["keys"]
    assert keys_fault(json.dumps({"keys": [{**key, "d": None, "alg": None} for key in keys]})) == ""
    assert "not for signatures" in keys_fault(json.dumps({"keys": [{**keys[0], "use": "enc"}]}))


def note(found: FoundStub) -> None:
    store.note_found(B, found, store.read()[0].place, is_open=False)


@pytest.mark.django_db
def test_case_16_a_stub_that_was_found_unsigned_is_not_approved_once_there_are_keys(
    tmp_path: Path,
) -> None:
    """Nor does a signature count that the last look has not found."""
    operator = as_role(OPERATOR)
    assert post(operator, "/api/v1/peers/", domain=B, keys="no key").status_code == 400
    assert post(operator, "/api/v1/peers/", domain=B).status_code == 201
    note(find("", keys=""))
    refused = operator.patch(PEER, {"keys": "{}"}, content_type="application/json")
    assert "keys" in refused.json()["errors"]
    operator.patch(PEER, {"keys": PUBLIC}, content_type="application/json")
    assert "not signed" in post(operator, f"{PEER}approve/").json()["detail"]
    note(find(signed()))
    assert operator.get(PEER).json()["signed_by"] == "first"
    store.note_not_found(B, "It is not signed.", store.read()[0].place)
    assert "It is not signed." in post(operator, f"{PEER}approve/").json()["detail"]
    note(find(signed("ES256")))
    assert post(operator, f"{PEER}approve/").json()["decision"] == "approved"
    assert PeerStub.objects.get().signed_by == "third"
    assert store.read()[0].keys == PUBLIC


@pytest.mark.django_db
def test_a_signature_with_a_key_that_was_taken_back_is_good_for_no_approval() -> None:
    """Though nobody has looked for the stub since."""
    operator = as_role(OPERATOR)
    post(operator, "/api/v1/peers/", domain=B, keys=PUBLIC)
    note(find(signed()))
    other = json.dumps({"keys": [OKPKey.generate_key("Ed25519").as_dict(private=False)]})
    operator.patch(PEER, {"keys": other}, content_type="application/json")
    assert "looking" in post(operator, f"{PEER}approve/").json()["detail"]
    assert Peer.objects.get().approved_digest == ""


@pytest.mark.django_db
def test_case_16_all_stubs_must_be_signed_where_that_is_set(settings: Any) -> None:
    Peer.objects.create(domain=B)
    note(find("", keys=""))
    settings.FEDERATION_SIGNED = True
    assert "not signed" in store.approve(Peer.objects.get(), "Eve")


@pytest.mark.django_db
def test_keys_come_from_a_file(tmp_path: Path) -> None:
    good, bad = tmp_path / "keys.json", tmp_path / "bad"
    good.write_text(PUBLIC)
    bad.write_text("{}")

    def add(path: Path) -> None:
        call_command("peers", "add", B, "--keys", str(path), stdout=io.StringIO())

    for path in (bad, tmp_path / "none"):
        with pytest.raises(CommandError, match="--keys"):
            add(path)
    add(good)
    assert Peer.objects.get().keys == PUBLIC
    call_command("peers", "add", B, "--url", f"https://node.{B}", stdout=io.StringIO())
    peer = Peer.objects.get()
    assert (peer.url, peer.keys) == (f"https://node.{B}", PUBLIC), "who names none changes none"
    call_command("peers", "add", B, "--keys", "", stdout=io.StringIO())
    assert Peer.objects.get().keys == ""


def test_a_signature_is_looked_at_with_bounds() -> None:
    assert len(signed("RS256")) < stub_signature._MAX_SIGNATURE


def approved(signature: str = "", keys: str = "") -> Any:
    """Somebody who may change the peer, whose stub was approved as it was found."""
    operator = as_role(OPERATOR)
    assert post(operator, "/api/v1/peers/", domain=B, keys=keys).status_code == 201
    note(find(signature, keys=keys))
    assert post(operator, f"{PEER}approve/").json()["decision"] == "approved"
    assert store.read()[0].is_served
    return operator


def give(operator: Any, keys: str) -> None:
    assert operator.patch(PEER, {"keys": keys}, content_type="application/json").status_code == 200


def standing() -> list[str]:
    """The alarms that stand once a worker has read the rows."""
    rows = store.read()
    store.tell_of_unsigned(row.domain for row in rows if row.is_approved and row.is_unsigned)
    found = Alarm.objects.filter(kind="stub-unsigned", cleared_at=None)
    return list(found.values_list("subject", flat=True))


@pytest.mark.django_db
def test_a_stub_that_was_approved_unsigned_does_not_run_once_there_are_keys() -> None:
    operator = approved()
    give(operator, PUBLIC)
    row = store.read()[0]
    assert not row.is_served
    refusal = store.refusal_of(row)
    assert (refusal.code, "not signed" in refusal.description) == (502, True)
    assert standing() == standing() == [B], "told once, while it stands"
    assert Alarm.objects.get().count == 1
    assert "not signed" in decision_word(Peer.objects.get())
    post(operator, f"{PEER}pause/")
    assert standing() == []
    assert "not signed" in post(operator, f"{PEER}resume/").json()["detail"]
    note(find(signed()))
    assert post(operator, f"{PEER}resume/").json()["decision"] == "approved"
    assert store.read()[0].is_served, "it is the same source, and signed now"
    assert standing() == []


@pytest.mark.django_db
def test_keys_that_are_taken_back_let_an_unsigned_stub_run_again() -> None:
    operator = approved()
    give(operator, PUBLIC)
    assert standing() == [B]
    give(operator, "")
    assert store.read()[0].is_served
    assert standing() == []


@pytest.mark.django_db
def test_a_signed_stub_goes_on_whatever_its_catalogue_offers_later_or_if_it_is_away() -> None:
    operator = approved(signed(), PUBLIC)
    store.note_not_found(B, "It is not signed.", store.read()[0].place)
    assert store.read()[0].is_served
    more = json.dumps(
        {"keys": [KEYS[name].as_dict(private=False) for name in ("EdDSA", "Ed25519")]}
    )
    give(operator, more)
    assert store.read()[0].is_served, "the key that has signed it is still one of them"
    assert standing() == []


@pytest.mark.django_db
def test_a_key_that_has_only_the_id_of_the_one_before_is_another_one() -> None:
    operator = approved(signed(), PUBLIC)
    other = OKPKey.generate_key("Ed25519", {"kid": "first"})
    give(operator, json.dumps({"keys": [other.as_dict(private=False)]}))
    assert not store.read()[0].is_served
    assert standing() == [B]


@pytest.mark.django_db
def test_where_all_stubs_must_be_signed_one_that_is_not_does_not_run(settings: Any) -> None:
    approved()
    settings.FEDERATION_SIGNED = True
    assert not store.read()[0].is_served
    assert standing() == [B]


@pytest.mark.django_db
def test_the_command_forgets_signatures_with_keys_that_are_gone(tmp_path: Path) -> None:
    approved(signed(), PUBLIC)
    other = tmp_path / "keys.json"
    other.write_text(
        json.dumps(
            {"keys": [OKPKey.generate_key("Ed25519", {"kid": "first"}).as_dict(private=False)]}
        )
    )
    call_command("peers", "add", B, "--keys", str(other), stdout=io.StringIO())
    assert PeerStub.objects.get().signed_by == ""
    assert not store.read()[0].is_served


@pytest.mark.django_db
def test_keys_that_cannot_be_read_stop_their_peer_and_no_other() -> None:
    approved()
    Peer.objects.update(keys="x")
    other = Peer.objects.create(domain="c.example", approved_digest="1" * 64, decision="approved")
    assert {row.domain: row.is_served for row in store.read()} == {B: False, other.domain: True}
