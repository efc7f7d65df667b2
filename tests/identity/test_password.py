"""A user gives himself another password at the provider's own pages."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from msgnode.models import AuditEntry, ControlMessage

from .relying_party import RelyingParty

NEW = "looking glass 8"
FORM = {"old_password": "wonderland 7", "new_password1": NEW, "new_password2": NEW}
PATH = "/login/password/"


def change(client: Client, **more: str) -> Any:
    return client.post(PATH, {**FORM, **more})


@pytest.mark.django_db
def test_who_is_not_logged_in_is_asked_to(alice: User, client: Client) -> None:
    assert client.get(PATH)["Location"] == f"/login/?next={PATH}"
    assert change(client)["Location"] == f"/login/?next={PATH}"
    alice.refresh_from_db()
    assert alice.check_password("wonderland 7")


@pytest.mark.django_db
def test_the_pages_are_plain_and_found(alice: User, client: Client) -> None:
    assert b"/login/password/" not in client.get("/").content
    client.force_login(alice)
    assert b"/login/password/" in client.get("/").content
    page = client.get(PATH)
    text = page.content.decode()
    assert "<script" not in text
    assert "style=" not in text
    assert "unsafe" not in page["Content-Security-Policy"]
    assert "no-store" in page["Cache-Control"]


@pytest.mark.django_db
def test_this_browser_stays_logged_in_and_all_else_ends(party: RelyingParty, alice: User) -> None:
    tokens = party.tokens()
    elsewhere = Client()
    elsewhere.force_login(alice)
    assert change(party.browser)["Location"] == f"{PATH}changed/"
    assert party.browser.get(f"{PATH}changed/").status_code == 200
    assert elsewhere.get(PATH).status_code == 302
    form = {"grant_type": "refresh_token", "refresh_token": tokens["refresh_token"]}
    assert party.browser.post("/o/token/", {**form, "client_id": "party"}).status_code == 400
    told = ControlMessage.objects.get(kind="identity.revoked").payload
    assert (told["subject"], told["close"]) == (str(alice.pk), True)
    alice.refresh_from_db()
    assert alice.check_password(NEW)
    entry = AuditEntry.objects.get(actor="alice", object__contains="alice", action="user.change")
    assert NEW not in str(entry.after)
    assert not alice.check_password("wonderland 7")


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"old_password": "a guess"}, "entered incorrectly"),
        ({"new_password2": "another"}, "match"),
        ({"new_password1": "alice", "new_password2": "alice"}, "too similar"),
        ({"new_password1": "", "new_password2": ""}, "required"),
    ],
)
def test_what_is_wrong_is_said_and_changes_nothing(
    alice: User, client: Client, wrong: dict[str, str], text: str
) -> None:
    client.force_login(alice)
    answer = change(client, **wrong)
    assert answer.status_code == 200
    assert text in answer.content.decode()
    assert 'aria-invalid="true"' in answer.content.decode()
    alice.refresh_from_db()
    assert alice.check_password("wonderland 7")


@pytest.mark.django_db
def test_the_old_password_is_not_guessed(alice: User, client: Client, settings: Any) -> None:
    settings.AXES_FAILURE_LIMIT = 3
    client.force_login(alice)
    codes = [change(client, old_password=f"guess {n}").status_code for n in range(3)]
    refused = change(client)
    assert codes[:2] == [200, 200]
    assert refused.status_code == 429
    assert int(refused["Retry-After"]) > 0
    alice.refresh_from_db()
    assert alice.check_password("wonderland 7")


@pytest.mark.django_db
def test_an_address_has_its_tries(alice: User, client: Client, settings: Any) -> None:
    settings.LOGINS_PER_MINUTE = 2
    client.force_login(alice)
    codes = [change(client, new_password2="x").status_code for _ in range(3)]
    assert codes == [200, 200, 429]


@pytest.mark.django_db
def test_the_consoles_own_page_leads_here(operator: Client) -> None:
    assert operator.get("/admin/password_change/")["Location"] == PATH
