"""Issuers and revocations in the console: what is refused, what is kept safe, what workers hear."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone
from joserfc import jwk

from msgnode.identity.issuer_store import issuer_of
from msgnode.models import AddressOwner, AuditEntry, ControlMessage, Issuer, Revocation

ADD = "/admin/msgnode/issuer/add/"
GOOD = {
    "name": "Example",
    "url": "https://idp.example",
    "is_enabled": "on",
    "aliases": "idp.example",
    "domains": "Example.org\nexample.net",
    "audiences": "client-1\nclient-2",
    "algorithms": "RS256",
    "jwks_url": "",
    "jwks": "",
    "introspection_url": "https://idp.example/introspect",
    "client_id": "node",
    "secret": "s3cret of the issuer",
    "roles-TOTAL_FORMS": "0",
    "roles-INITIAL_FORMS": "0",
}


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("https://idp.example/.well-known/openid-configuration", "https://idp.example"),
        ("https://login.microsoftonline.com/common/v2.0", "one issuer for each"),
        ("https://login.microsoftonline.com/organizations/v2.0/", "one issuer for each"),
        ("https://login.microsoftonline.us/Common", "one issuer for each"),
        ("https://login.microsoftonline.com/{tenantid}/v2.0", "braces"),
    ],
)
def test_an_issuer_that_no_token_can_have_is_refused_with_what_to_enter(
    operator: Client, url: str, said: str
) -> None:
    page = operator.post(ADD, {**GOOD, "url": url}).content.decode()
    assert said in page
    assert not Issuer.objects.exists()


def test_an_issuer_whose_path_only_looks_like_that_is_taken(operator: Client) -> None:
    for number, url in enumerate(
        (
            "https://login.microsoftonline.com/11111111-2222-3333-4444-555555555555/v2.0",
            "https://idp.example/common/v2.0",
        )
    ):
        given = {**GOOD, "url": url, "name": str(number)}
        assert operator.post(ADD, given).status_code == 302


def kinds() -> list[str]:
    return list(ControlMessage.objects.values_list("kind", flat=True))


def test_an_issuer_is_added_and_the_workers_hear_of_it(operator: Client) -> None:
    assert operator.post(ADD, GOOD).status_code == 302
    row = Issuer.objects.get()
    issuer = issuer_of(row)
    assert issuer.audiences == {"client-1", "client-2"}
    assert issuer.domains == ("example.org", "example.net")
    assert issuer.client_secret == GOOD["secret"]
    assert kinds() == ["issuers.changed"]
    page = f"/admin/msgnode/issuer/{row.pk}/change/"
    kept = [row.client_secret, operator.get(page).content.decode()]
    kept += [json.dumps(entry.after) for entry in AuditEntry.objects.all()]
    assert not any(GOOD["secret"] in text for text in kept)
    assert operator.post(page, {**GOOD, "secret": "", "name": "Renamed"}).status_code == 302
    assert issuer_of(Issuer.objects.get(name="Renamed")).client_secret == GOOD["secret"]


def test_what_cannot_work_or_is_not_safe_is_refused(operator: Client) -> None:
    private = json.dumps({"keys": [jwk.RSAKey.generate_key(2048).as_dict(private=True)]})
    secret = json.dumps({"keys": [{"kty": "oct", "k": "c2VjcmV0LXNlY3JldC1zZWNyZXQ"}]})
    wrong: tuple[dict[str, Any], ...] = (
        {"algorithms": "HS256"},
        {"algorithms": "none"},
        {"algorithms": ""},
        {"url": "ftp://idp.example"},
        {"url": "http://idp.example"},
        {"jwks_url": "http://10.0.0.1/keys"},
        {"introspection_url": "http://idp.example/x"},
        {"jwks_url": "https://user:secret@idp.example/keys"},
        {"audiences": " "},
        {"jwks": "{}"},
        {"jwks": "[" * 100_000},
        {"jwks": private},
        {"jwks": secret},
    )
    for change in wrong:
        answer = operator.post(ADD, {**GOOD, **change})
        assert answer.status_code == 200, change
        assert not Issuer.objects.exists(), change


def test_of_pasted_keys_the_reasons_are_said_and_only_a_private_key_is_called_one(
    operator: Client,
) -> None:
    key = jwk.RSAKey.generate_key(2048).as_dict(private=True)
    public = {**{name: key[name] for name in ("kty", "n", "e")}, "kid": "d"}

    def post(**members: Any) -> str:
        pasted = json.dumps({"keys": [{**public, **members}]})
        answer = operator.post(ADD, {**GOOD, "name": str(members), "jwks": pasted})
        return "" if answer.status_code == 302 else answer.content.decode()

    assert "key 1 (d) is not for signatures (use: enc)" in post(use="enc")
    assert "contains a private key" in post(d=key["d"])
    assert post(d=None, use=None, x5t=None) == ""


def test_the_claim_that_names_users_is_chosen_and_its_danger_is_said(operator: Client) -> None:
    assert "Danger: whoever can make this issuer put" in operator.get(ADD).content.decode()
    assert operator.post(ADD, {**GOOD, "name_claim": "name"}).status_code == 200
    assert operator.post(ADD, {**GOOD, "name_claim": "email"}).status_code == 302
    assert issuer_of(Issuer.objects.get()).name_claim == "email"


def test_the_nodes_own_provider_can_be_switched_off_and_not_deleted(operator: Client) -> None:
    own = Issuer.objects.create(name="This node", kind="embedded", url="http://localhost:1/o")
    assert operator.post(f"/admin/msgnode/issuer/{own.pk}/delete/").status_code == 403
    page = f"/admin/msgnode/issuer/{own.pk}/change/"
    changed = {"domains": "localhost", "audiences": "", "algorithms": "RS256", "url": "http://x"}
    assert operator.post(page, changed).status_code == 302
    own.refresh_from_db()
    assert not own.is_enabled
    assert own.url == "http://localhost:1/o"


def test_a_subject_is_revoked_and_the_revocation_lifted(operator: Client) -> None:
    sent = {"issuer": "https://idp.example", "subject": "alice", "ends_sessions": "on"}
    assert operator.post("/admin/msgnode/revocation/add/", sent).status_code == 302
    row = Revocation.objects.get()
    told = ControlMessage.objects.get()
    assert (told.kind, told.payload["subject"], told.payload["close"]) == (
        "identity.revoked", "alice", True,
    )  # fmt: skip
    assert AuditEntry.objects.filter(action="identity.revoke", actor="operator").count() == 1
    assert operator.post("/admin/msgnode/revocation/add/", {"issuer": "x"}).status_code == 200
    page = f"/admin/msgnode/revocation/{row.pk}/delete/"
    assert operator.post(page, {"post": "yes"}).status_code == 302
    assert not Revocation.objects.exists()
    assert kinds()[-1] == "issuers.changed"


def test_the_page_of_a_revocation_tells_what_is_revoked(operator: Client) -> None:
    ends = timezone.now() + timedelta(days=1)
    row = Revocation.objects.create(issuer="https://idp.example", subject="eve", ends_at=ends)
    answer = operator.get(f"/admin/msgnode/revocation/{row.pk}/change/")
    assert answer.status_code == 200
    page = answer.content.decode()
    assert "eve" in page and "https://idp.example" in page


def test_an_address_is_given_free(operator: Client) -> None:
    row = AddressOwner.objects.create(address="hyperty://d/1", issuer="i", subject="s")
    page = f"/admin/msgnode/addressowner/{row.pk}/delete/"
    assert operator.post(page, {"post": "yes"}).status_code == 302
    assert kinds() == ["owners.changed"]


def test_the_first_page_says_who_may_speak(operator: Client, settings: Any) -> None:
    assert "Anybody may connect" in operator.get("/admin/").content.decode()
    settings.ADMISSION = "strict"
    page = operator.get("/admin/").content.decode()
    assert "Every session must be logged in" in page
    assert "Anybody may connect" not in page
