"""`manage.py identity_check` finds what was registered under a name nobody vouches for."""

from __future__ import annotations

import json
from io import StringIO
from typing import Any

import msgspec
import pytest
from django.conf import settings
from django.contrib.auth import get_user_model
from django.core.management import call_command
from django.core.management.base import CommandError

from msgnode.core.identity import Identity
from msgnode.models import Issuer, Session
from registry import api
from registry.models import Hyperty
from tests.registry.conftest import hyperty

pytestmark = pytest.mark.django_db

IDP = "https://idp.example"
ANN = "user://idp.example/ann@example.org"


def login(subject: str, user_url: str, name_claim: str | None) -> Identity:
    """A session that is bound to a subject, as a version of the node has stored it."""
    username = user_url.rpartition("/")[2]
    identity = Identity(IDP, subject, username, user_url=user_url, name_claim=name_claim)
    Session.objects.create(
        runtime_url=f"runtime://localhost/{subject}",
        issuer=IDP,
        subject=subject,
        identity=msgspec.to_builtins(identity),
    )
    return identity


def register(url: str, user: str, issuer: str, subject: str) -> None:
    mark = api.subject_mark(issuer, subject)
    api.register(api.Kind.HYPERTY, url, hyperty(), user, by=api.Claimant("s", mark))


def check(*options: str) -> tuple[int, dict[str, Any]]:
    told = StringIO()
    try:
        call_command("identity_check", "--json", *options, stdout=told)
    except CommandError as fault:
        return fault.returncode, json.loads(told.getvalue())
    return 0, json.loads(told.getvalue())


@pytest.fixture(autouse=True)
def issuer() -> Issuer:
    return Issuer.objects.create(name="Example", url=IDP, audiences="a", name_claim="")


def test_entries_under_names_of_before_are_listed_and_removed() -> None:
    login("ann", ANN, "")
    login("mallory", ANN, None)
    bob = get_user_model().objects.create_user("bob", "bob@example.org")
    register("hyperty://localhost/ann", ANN, IDP, "ann")
    register("hyperty://localhost/mallory", ANN, IDP, "mallory")
    register("hyperty://localhost/gone", "user://idp.example/gone@example.org", IDP, "gone")
    own = settings.PROVIDER["ISSUER"]
    register("hyperty://localhost/bob", "user://localhost/bob@example.org", own, str(bob.pk))
    status, told = check()
    assert status == 1
    assert told["issuers"] == [{"issuer": IDP, "named_by": "verified e-mail address"}]
    assert [(each["url"], each["subject"]) for each in told["entries"]] == [
        ("hyperty://localhost/mallory", f"mallory of {IDP}"),
        ("hyperty://localhost/gone", "unknown"),
    ]
    assert told["several_subjects"] == [
        {"user": ANN, "subjects": [f"ann of {IDP}", f"mallory of {IDP}"]}
    ]
    assert check("--remove")[1]["removed"] == 2
    assert set(Hyperty.objects.values_list("url", flat=True)) == {
        "hyperty://localhost/ann", "hyperty://localhost/bob",
    }  # fmt: skip
    assert check() == (0, {**told, "entries": [], "several_subjects": []})


def test_what_an_issuer_vouches_for_is_asked_of_its_settings_of_today(issuer: Issuer) -> None:
    login("ann", ANN, "email")
    register("hyperty://localhost/ann", ANN, IDP, "ann")
    assert [each["user"] for each in check()[1]["entries"]] == [ANN]
    Issuer.objects.update(name_claim="email")
    assert check()[0] == 0


def test_accounts_without_a_name_of_their_own_are_listed() -> None:
    make = get_user_model().objects.create_user
    make("one", "same@example.org")
    make("two", "Same@example.org")
    make("three@example.org")
    make("four@example.org", "four@example.org")
    status, told = check()
    assert status == 1
    assert [each["username"] for each in told["accounts"]] == ["one", "two", "three@example.org"]
