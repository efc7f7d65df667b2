"""Cards of users: whose there are, what they assert, and that nobody is let in with one.

docs/reference/runtime.md, section 8.3.
"""

from __future__ import annotations

import time
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.conf import settings
from django.contrib.auth.models import Group
from django.test import Client
from oauth2_provider.models import get_application_model
from pytest_django import Settings

from msgnode.identity.provider import card_views, clients, keys
from msgnode.identity.provider.backend import EmbeddedProvider
from msgnode.identity.provider.cards import card_of
from msgnode.identity.provider.token_claims import (
    CARD_AUDIENCE,
    claims_of,
    name_fault,
    user_url_of,
    verified_claims,
)
from msgnode.invitations.endpoints import open_for
from msgnode.models import Allocation, ProviderKey, Session
from msgnode.stubs import catalogue

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _everybody(settings: Settings, alice: Any, made_key: dict[str, Any]) -> None:
    settings.CONTACT_CARDS = "*"
    ProviderKey.objects.create(**made_key, signs_from="2020-01-01T00:00:00Z")


def test_an_account_is_named_by_its_own_address_and_by_no_name_that_looks_like_one(
    alice: Any, django_user_model: Any
) -> None:
    def names(user: Any) -> tuple[str, Any, Any]:
        claims = claims_of(user)
        return user_url_of(user), claims.get("email"), claims.get("preferred_username")

    make = django_user_model.objects.create_user
    mallory = make("alice@example.org")
    assert names(mallory) == (f"user://localhost/{mallory.pk}", None, None)
    assert "looks like" in name_fault(mallory)
    odd = make("a+b")
    assert names(odd) == ("user://localhost/a+b", None, "a+b")
    same = make("bob@example.org", "bob@example.org")
    assert names(same) == ("user://localhost/bob@example.org",) + ("bob@example.org",) * 2
    assert names(alice) == ("user://localhost/alice@example.org", "alice@example.org", "alice")
    twin = make("twin", "ALICE@example.org")
    assert names(twin) == ("user://localhost/twin", None, "twin")
    assert names(alice) == ("user://localhost/alice", None, "alice")
    assert "another account" in name_fault(alice)
    assert card_of("alice@example.org") is None


def test_who_has_access_to_the_console_has_a_card_only_as_a_member_of_a_named_group(
    alice: Any, settings: Any
) -> None:
    group = Group.objects.create(name="sales")
    group.user_set.add(alice)
    for kind in ("is_staff", "is_superuser"):
        setattr(alice, kind, True)
        alice.save()
        for name in ("alice@example.org", "alice@localhost", "user://localhost/alice"):
            assert card_of(name) is None
        settings.CONTACT_CARDS = "sales"
        assert card_of("alice@localhost") is not None
        settings.CONTACT_CARDS = "*"
        setattr(alice, kind, False)
        alice.save()
        assert card_of("alice@localhost") is not None


def finger(resource: str) -> Any:
    return Client().get("/.well-known/webfinger", {"resource": resource})


@pytest.mark.parametrize(
    "name",
    [
        "alice@example.org",
        "acct:alice@example.org",
        "ALICE@example.org",
        "alice@localhost",
        "acct:alice@localhost",
        "user://localhost/alice",
        "user://localhost/alice@example.org",
    ],
)
def test_a_card_is_found_by_every_name_of_its_user(name: str, alice: Any) -> None:
    links = {each["rel"]: each["href"] for each in finger(name).json()["links"]}
    assert links["protocolstub"] == f"{settings.PUBLIC_URL}/.well-known/protocolstub/default"
    answer = Client().get(links["contact-card"].removeprefix(settings.PUBLIC_URL))
    assert answer["Access-Control-Allow-Origin"] == "*"
    claims = keys.verify(answer.content.decode())
    assert claims is not None
    assert (claims["iss"], claims["aud"]) == (settings.PROVIDER["ISSUER"], CARD_AUDIENCE)
    assert claims["sub"] == str(alice.pk)
    assert claims["user_url"] == "user://localhost/alice@example.org"
    assert claims["protostub"] == links["protocolstub"]
    assert 0 < claims["exp"] - time.time() <= 3_600
    served = [
        each.descriptor("d", {})["sourcePackage"] for each in catalogue.served("protocolstub")
    ]
    assert claims["protostub_digests"] == [each["integrity"] for each in served]


@pytest.mark.parametrize(
    "name",
    [
        *(
            "bob@localhost",
            "alice@elsewhere.org",
            "user://elsewhere.org/alice",
            "hyperty://localhost/alice",
        ),
        *("@localhost", "%", "alice@localhost\x00", "x" * 320),
    ],
)
def test_a_name_that_nobody_has_is_404(name: str) -> None:
    assert finger(name).status_code == 404


def test_what_names_nobody_is_400() -> None:
    assert finger("").status_code == finger("x" * 321).status_code == 400
    assert Client().get("/.well-known/contact-card").status_code == 400


def test_whose_cards_there_are_the_operator_says(settings: Settings, alice: Any) -> None:
    settings.CONTACT_CARDS = ""
    assert finger("alice@localhost").status_code == 404
    settings.CONTACT_CARDS = "sales"
    assert finger("alice@localhost").status_code == 404
    alice.groups.add(Group.objects.create(name="sales"))
    assert finger("alice@localhost").status_code == 200
    alice.is_active = False
    alice.save()
    assert finger("alice@localhost").status_code == 404


def test_a_name_of_two_users_is_nobodys(django_user_model: Any) -> None:
    django_user_model.objects.create_user("alice2", "alice@example.org", "x")
    assert finger("alice@example.org").status_code == 404
    assert finger("alice@localhost").status_code == 200


def test_a_card_names_a_hyperty_as_long_as_a_session_of_its_user_holds_it(
    alice: Any, settings: Settings
) -> None:
    settings.INVITATIONS = {"ON": True, "PER_MINUTE": 60}
    runtime, hyperty = "runtime://localhost/alice", "hyperty://localhost/1"
    issuer, subject = settings.PROVIDER["ISSUER"], str(alice.pk)

    def named(address: str) -> Any:
        open_for(subject, "user://localhost/alice@example.org", runtime, f"{runtime}/x", address)
        card = card_of("alice@localhost")
        claims = keys.verify(card["assertion"]) if card else None
        assert claims and "push" in claims
        return claims.get("hyperty")

    assert [named(each) for each in ("", hyperty, f"{runtime}/call")] == [None] * 3
    hers = Session.objects.create(runtime_url=runtime, issuer=issuer, subject=subject)
    assert named(f"{runtime}/call") == f"{runtime}/call"
    assert named(hyperty) is None
    held = Allocation.objects.create(address=hyperty, scheme="hyperty", session=hers)
    assert named(hyperty) == hyperty

    # Somebody else has taken the address, and her runtime URL, since her session ended.
    Session.objects.filter(pk=hers.pk).update(state=Session.State.CLOSED)
    assert [named(each) for each in (hyperty, f"{runtime}/call")] == [None] * 2
    held.delete()
    mallory = Session.objects.create(runtime_url=runtime, issuer=issuer, subject="99")
    Allocation.objects.create(address=hyperty, scheme="hyperty", session=mallory)
    assert [named(each) for each in (hyperty, f"{runtime}/call")] == [None] * 2


def test_a_card_lets_nobody_in() -> None:
    card = card_of("alice@localhost")
    assert card is not None
    assert verified_claims(card["assertion"]) is None


def test_a_client_of_the_cards_name_makes_no_token_of_a_card() -> None:
    clients.ensure_own_clients()
    get_application_model().objects.create(
        client_id=CARD_AUDIENCE, client_type="public", authorization_grant_type="authorization-code"
    )
    assert CARD_AUDIENCE not in clients.audiences()
    assert clients.OWN_PAGE in clients.audiences()


def test_an_address_cannot_count_the_users(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.CONTACT_CARDS = "*"
    monkeypatch.setattr(card_views, "CARDS_PER_MINUTE", 3)
    codes = [finger(f"user{number}@localhost").status_code for number in range(4)]
    assert codes == [404, 404, 404, 429]
    answer = Client().get("/.well-known/contact-card", {"resource": "alice@localhost"})
    assert (answer.status_code, int(answer["Retry-After"]) > 0) == (429, True)


def test_the_identity_manager_gives_the_same_card() -> None:
    card = async_to_sync(EmbeddedProvider().card)("alice@localhost")
    assert card is not None
    assert card["userURL"] == "user://localhost/alice@example.org"
    assert keys.verify(card["assertion"]) is not None
    assert async_to_sync(EmbeddedProvider().card)("bob@localhost") is None
