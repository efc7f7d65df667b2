"""Invitations that are withdrawn: by DELETE at the endpoint, and by the user who has sent them."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client

from msgnode import models
from msgnode.core.errors import BadMessage, Conflict, NotFound
from msgnode.invitations import endpoints, guests
from msgnode.invitations.service import _beside
from tests.invitations.conftest import invitation
from tests.invitations.test_push import post

pytestmark = pytest.mark.django_db
HYPERTY, WHERE = "hyperty://localhost/alice", "https://b.example/push/e/n"


def test_what_location_names_can_be_deleted_again_and_again(endpoint: models.PushEndpoint) -> None:
    strange = "a/b ?#%é"
    location = post(endpoint.pk, invitation(strange))["Location"]
    path = location[location.index("/push/") :]
    for _ in range(2):
        assert Client().delete(path).status_code == 204
    row = models.Invitation.objects.get()
    assert (row.name, row.message, row.withdrawn) == (strange, "", True)
    assert endpoints.waiting_runtimes() == set()


def test_what_is_not_there_is_404(endpoint: models.PushEndpoint) -> None:
    post(endpoint.pk, invitation())
    for path in (f"{endpoint.pk}/i2", f"{endpoint.pk}/", "nobodys/i1"):
        assert Client().delete(f"/push/{path}").status_code == 404
    assert Client().get(f"/push/{endpoint.pk}/i1").status_code == 405
    models.Invitation.objects.update(expires_at="2020-01-01T00:00:00Z")
    assert Client().delete(f"/push/{endpoint.pk}/i1").status_code == 404
    assert not models.Invitation.objects.get().withdrawn


def test_withdrawals_are_limited_as_invitations_are(
    endpoint: models.PushEndpoint, settings: Any
) -> None:
    settings.INVITATIONS = {"ON": True, "PER_MINUTE": 1}
    codes = [Client().delete(f"/push/{endpoint.pk}/i{n}").status_code for n in range(12)]
    assert codes == [404] * 10 + [429] * 2
    settings.INVITATIONS = {"ON": False, "PER_MINUTE": 1}
    assert Client().delete(f"/push/{endpoint.pk}/i1").status_code == 404


def keep(name: str = "n", subject: str = "1") -> None:
    guests.note_sent(name, subject, HYPERTY, "", int(time.time()) + 60, 3600)
    guests.note_location(name, WHERE)


def test_nobody_can_accept_what_was_withdrawn() -> None:
    keep()
    for _ in range(2):
        guests.withdraw("n", "1", WHERE)
    assert not guests.accept("n", HYPERTY, "runtime://b.example/bob", "s")


def test_what_was_accepted_stays_so() -> None:
    keep()
    assert guests.accept("n", HYPERTY, "runtime://b.example/bob", "s")
    with pytest.raises(Conflict):
        guests.withdraw("n", "1", WHERE)
    assert len(list(guests.rights_of(["s"]))) == 1


def test_of_one_that_is_withdrawn_while_it_is_accepted_exactly_one_succeeds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    keep()

    def withdrawn_meanwhile(*seconds: Any, **named: Any) -> timedelta:
        guests.withdraw("n", "1", WHERE)
        return timedelta(*seconds, **named)

    monkeypatch.setattr(guests, "timedelta", withdrawn_meanwhile)
    assert not guests.accept("n", HYPERTY, "runtime://b.example/bob", "s")
    assert not list(guests.rights_of(["s"]))


def test_who_has_accepted_is_sent_away_by_who_invited_him_and_nobody_else() -> None:
    keep()
    assert guests.accept("n", HYPERTY, "runtime://b.example/bob", "s")
    for name, subject in (("n", "2"), ("m", "1")):
        with pytest.raises(NotFound):
            guests.end(name, subject)
    assert len(list(guests.rights_of(["s"]))) == 1
    for _ in range(2):
        guests.end("n", "1")
    assert not list(guests.rights_of(["s"]))
    assert [each.session for each in guests.ended_rights(5)] == ["s"]
    assert not guests.accept("n", HYPERTY, "runtime://b.example/bob", "s")


def test_nobody_can_accept_what_was_ended() -> None:
    keep()
    guests.end("n", "1")
    assert not guests.accept("n", HYPERTY, "runtime://b.example/bob", "s")


def test_only_who_sent_it_withdraws_it_and_where_it_was_left() -> None:
    keep()
    for name, subject in (("n", "2"), ("m", "1")):
        with pytest.raises(NotFound):
            guests.withdraw(name, subject, "")
    with pytest.raises(BadMessage):
        guests.withdraw("n", "1", "https://elsewhere.example/")
    assert guests.accept("n", HYPERTY, "runtime://b.example/bob", "s")


def test_a_location_is_of_the_endpoints_own_server() -> None:
    endpoint = "https://b.example/push/e"
    assert _beside(endpoint, "/push/e/n") == "https://b.example/push/e/n"
    assert _beside(endpoint, "https://b.example/x") == "https://b.example/x"
    for stranger in ("", "//c.example/x", "http://b.example/x", "https://b.example:1/x"):
        assert _beside(endpoint, stranger) == ""
    assert _beside(endpoint, "//[") == ""
    assert _beside(endpoint, "x" * 3_000) == ""
