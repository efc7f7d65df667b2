"""Case R71, and what else strangers post to a push endpoint."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from django.test import Client
from hypothesis import given
from hypothesis import strategies as st
from pytest_django import Settings

from msgnode import models
from msgnode.core.errors import BadMessage
from msgnode.invitations import endpoints, wire
from tests.invitations.conftest import BOB, RUNTIME, invitation

pytestmark = pytest.mark.django_db


def post(to: str, message: Any, ttl: str = "60", **headers: str) -> Any:
    body = message if isinstance(message, bytes) else json.dumps(message).encode()
    said = {"TTL": ttl, **headers} if ttl else headers
    return Client().post(f"/push/{to}", body, "application/json", headers=said)


def test_an_invitation_is_kept_and_the_workers_are_told(endpoint: models.PushEndpoint) -> None:
    answer = post(endpoint.pk, invitation(resource="comm://a.example/1", junk="x"))
    assert (answer.status_code, answer["TTL"]) == (201, "60")
    assert answer["Location"] == f"{endpoints.url_of(endpoint.pk)}/i1"
    told = models.ControlMessage.objects.get(kind=wire.INVITATION_LEFT)
    assert told.payload == {"runtime_url": RUNTIME}
    [taken], is_elsewhere = endpoints.take(RUNTIME, {endpoint.subject})
    assert not is_elsewhere
    assert taken.address == f"{RUNTIME}/invitations"
    assert taken.message["from"] == "hyperty://a.example/alice"
    assert sorted(taken.message["value"]) == ["expires", "invitation", "resource"]
    assert taken.message["identity"] == {"assertion": "x.y.z", "idp": {"domain": "a.example"}}
    assert endpoints.take(RUNTIME, {endpoint.subject}) == ([], True)  # while it is handed over
    endpoints.handed_over([taken])
    assert endpoints.take(RUNTIME, {endpoint.subject}) == ([], False)  # it comes once


def test_the_answer_says_nothing_of_the_person(endpoint: models.PushEndpoint) -> None:
    """Nobody has a session here; there is no difference."""
    assert post(endpoint.pk, invitation()).status_code == 201


def test_r71_an_unknown_endpoint_is_404(endpoint: models.PushEndpoint, bob: Any) -> None:
    assert post("nobodys", invitation()).status_code == 404
    bob.is_active = False
    bob.save()
    assert post(endpoint.pk, invitation()).status_code == 404
    models.PushEndpoint.objects.update(expires_at="2020-01-01T00:00:00Z")
    assert post(endpoint.pk, invitation()).status_code == 404


def test_switched_off_there_is_none(endpoint: models.PushEndpoint, settings: Settings) -> None:
    settings.INVITATIONS = {"ON": False, "PER_MINUTE": 100}
    assert post(endpoint.pk, invitation()).status_code == 404


def test_r71_5000_bytes_are_413_and_other_types_415(endpoint: models.PushEndpoint) -> None:
    assert post(endpoint.pk, b" " * 5_000).status_code == 413
    path = f"/push/{endpoint.pk}"
    answer = Client().post(path, b"x", "application/octet-stream", headers={"TTL": "1"})
    assert answer.status_code == 415
    encrypted = {"Content-Encoding": "aes128gcm"}
    assert post(endpoint.pk, invitation(), **encrypted).status_code == 415
    assert Client().get(path).status_code == 405


def test_r71_100_in_a_second_are_429_with_the_time_to_wait(
    endpoint: models.PushEndpoint, settings: Settings
) -> None:
    settings.INVITATIONS = {"ON": True, "PER_MINUTE": 30}
    answers = [post(endpoint.pk, invitation(f"i{number}")) for number in range(100)]
    codes = [answer.status_code for answer in answers]
    assert codes == [201] * 30 + [429] * 70
    assert int(answers[-1]["Retry-After"]) > 0
    assert models.Invitation.objects.count() == 30


def test_an_address_tries_no_more_endpoints_than_that(settings: Settings) -> None:
    settings.INVITATIONS = {"ON": True, "PER_MINUTE": 1}
    codes = [post(f"guess{number}", invitation()).status_code for number in range(11)]
    assert codes == [404] * 10 + [429]


def test_what_has_not_expired_is_bounded(endpoint: models.PushEndpoint) -> None:
    for number in range(endpoints.MAX_WAITING):
        assert post(endpoint.pk, invitation(f"i{number}")).status_code == 201
    assert post(endpoint.pk, invitation("more")).status_code == 429
    models.Invitation.objects.update(expires_at="2020-01-01T00:00:00Z")
    assert post(endpoint.pk, invitation("more")).status_code == 201
    assert models.Invitation.objects.count() == 1


@pytest.mark.django_db(transaction=True)
def test_at_an_endpoint_that_goes_meanwhile_nothing_is_said_to_be_left(
    endpoint: models.PushEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    def closes(subject: str) -> bool:
        return endpoints.close(subject, RUNTIME) == 1

    monkeypatch.setattr(endpoints, "_is_active", closes)
    assert post(endpoint.pk, invitation()).status_code == 404
    assert not models.Invitation.objects.exists()


def test_a_replayed_invitation_comes_once(endpoint: models.PushEndpoint) -> None:
    again = [invitation(), invitation(), invitation(resource="comm://a.example/other")]
    assert [post(endpoint.pk, each).status_code for each in again] == [201] * 3
    [taken], _ = endpoints.take(RUNTIME, {endpoint.subject})
    endpoints.handed_over([taken])
    assert "resource" not in taken.message["value"]
    assert post(endpoint.pk, invitation()).status_code == 201
    assert endpoints.take(RUNTIME, {endpoint.subject}) == ([], False)


def test_it_is_kept_for_its_time_and_no_longer(endpoint: models.PushEndpoint) -> None:
    assert post(endpoint.pk, invitation(), ttl="0")["TTL"] == "2"
    assert endpoints.waiting_runtimes() == {RUNTIME}
    models.Invitation.objects.update(keep_until="2020-01-01T00:00:00Z")
    assert endpoints.waiting_runtimes() == set()
    assert endpoints.take(RUNTIME, {endpoint.subject}) == ([], False)
    kept = post(endpoint.pk, invitation("i2"), ttl="99999")
    assert kept["TTL"] == "600"
    row = models.Invitation.objects.get(name="i2")
    assert row.keep_until == row.expires_at  # an invitation outlives its own date nowhere


def test_nobody_else_is_given_it(endpoint: models.PushEndpoint) -> None:
    post(endpoint.pk, invitation())
    assert endpoints.take(RUNTIME, {"999"}) == ([], False)
    assert endpoints.take("runtime://localhost/other", {endpoint.subject}) == ([], False)
    here, _ = endpoints.take(RUNTIME, {"999", endpoint.subject})
    assert len(here) == 1


@pytest.mark.parametrize("ttl", ["", "x", "-1", "1.5", "9" * 11])
def test_a_time_that_is_none_is_400(endpoint: models.PushEndpoint, ttl: str) -> None:
    assert post(endpoint.pk, invitation(), ttl=ttl).status_code == 400


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"type": "read"}, "type create"),
        ({"to": "user://localhost/mallory"}, "whose endpoint"),
        ({"to": "hyperty://localhost/bob"}, "user URL"),
        ({"from": ""}, "`from`"),
        ({"from": "alice"}, "with a domain"),
        ({"from": "hyperty://a/" + "x" * 600}, "600"),
        ({"body": 5}, "body.value"),
        ({"body": {"value": {"invitation": 5}}}, "`invitation`"),
        ({"body": {"value": {"invitation": "\x00"}}}, "`invitation`"),
        ({"body": {"value": {"invitation": "x" * 129}}}, "`invitation`"),
        ({"body": {"value": {"invitation": "x", "expires": True}}}, "`expires`"),
        ({"body": {"value": {"invitation": "x", "expires": 1}}}, "within 600"),
        ({"body": {"value": {"invitation": "x", "expires": 1e300}}}, "within 600"),
    ],
)
def test_what_is_none_is_400_and_says_why(
    endpoint: models.PushEndpoint, change: dict[str, Any], said: str
) -> None:
    answer = post(endpoint.pk, {**invitation(), **change})
    assert answer.status_code == 400
    assert said in answer.json()["desc"]
    assert not models.Invitation.objects.exists()


def test_without_identity_or_stub_it_is_400(endpoint: models.PushEndpoint) -> None:
    for missing in ("identity", "protostub"):
        message = invitation()
        del message["body"][missing]
        assert post(endpoint.pk, message).status_code == 400
    for body in (b"\xff", b"[" * 4_000, b'{"type":"create"}', b"NaN"):
        assert post(endpoint.pk, body).status_code == 400


json_values = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=30),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=12), inner),
    max_leaves=8,
)
places = st.sampled_from(["type", "from", "to", "body", "value", "identity", "protostub"])


@given(places, json_values)
def test_whatever_stands_somewhere_it_is_read_or_refused(place: str, what: Any) -> None:
    message = invitation()
    (message if place in message else message["body"])[place] = what
    try:
        found = wire.read(json.dumps(message).encode(), time.time())
    except BadMessage:
        return
    assert len(found.name) <= wire.MAX_NAME
    assert found.user_url == message["to"]


def test_a_user_has_so_many_endpoints_and_a_runtime_one(bob: Any) -> None:
    first = endpoints.open_for(str(bob.pk), BOB, RUNTIME, "a", "")
    assert endpoints.open_for(str(bob.pk), BOB, RUNTIME, "b", "h").pk == first.pk
    for number in range(endpoints.MAX_PER_USER):
        endpoints.open_for(str(bob.pk), BOB, f"{RUNTIME}/{number}", "a", "")
    assert models.PushEndpoint.objects.count() == endpoints.MAX_PER_USER
    assert not models.PushEndpoint.objects.filter(pk=first.pk).exists()
    assert endpoints.close(str(bob.pk), f"{RUNTIME}/0") == 1
    assert endpoints.close("999", f"{RUNTIME}/1") == 0
