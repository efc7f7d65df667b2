"""Who guesses at the provider's endpoints is slowed down, and nobody else."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from django.test import Client
from oauth2_provider.models import get_application_model

from msgnode.identity.provider import throttle

from .relying_party import RelyingParty

pytestmark = pytest.mark.django_db
SECRET = "a secret that nobody guesses"


@pytest.fixture(autouse=True)
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(throttle, "FAILURES_PER_MINUTE", 3)


@pytest.fixture
def server(db: None) -> str:
    """A client that has a secret."""
    get_application_model().objects.create(
        client_id="server",
        client_secret=SECRET,
        client_type="confidential",
        authorization_grant_type="authorization-code",
        redirect_uris="https://server.example.org/back",
        algorithm="RS256",
    )
    return "server"


def basic(client_id: str, secret: str) -> dict[str, str]:
    pair = base64.b64encode(f"{client_id}:{secret}".encode()).decode()
    return {"Authorization": f"Basic {pair}"}


def introspect(client_id: str, secret: str, source: str = "192.0.2.1") -> Any:
    return Client(REMOTE_ADDR=source).post(
        "/o/introspect/", {"token": "x"}, headers=basic(client_id, secret)
    )


def redeem(client_id: str, secret: str, source: str = "192.0.2.1", **more: Any) -> Any:
    form = {
        "grant_type": "refresh_token", "refresh_token": "x",
        "client_id": client_id, "client_secret": secret,
    }  # fmt: skip
    return Client(REMOTE_ADDR=source, **more).post("/o/token/", form)


def test_a_client_that_guesses_is_answered_429(server: str) -> None:
    assert [introspect(server, f"guess {n}").status_code for n in range(2)] == [403, 403]
    assert redeem(server, "guess").status_code == 401
    for refused in (redeem(server, SECRET), introspect(server, SECRET)):
        assert refused.status_code == 429
        assert int(refused["Retry-After"]) > 0
        assert refused.json()["error"] == "slow_down"
    assert introspect(server, SECRET, "192.0.2.2").status_code == 200  # elsewhere it is served
    answer = Client(REMOTE_ADDR="192.0.2.1").post(
        "/o/revoke/", {"token": "x", "client_id": server, "client_secret": SECRET}
    )
    assert answer.status_code == 429


def test_codes_and_refresh_tokens_are_not_guessed_either(party: RelyingParty) -> None:
    for _ in range(3):
        assert party.redeem("guess").status_code == 400
    assert party.redeem(party.code()).status_code == 429


def test_what_is_right_or_merely_odd_counts_for_nothing(server: str) -> None:
    for _ in range(5):
        assert introspect(server, SECRET).status_code == 200
        odd = Client(REMOTE_ADDR="192.0.2.1").post("/o/token/", {"grant_type": "password"})
        assert odd.status_code == 400
    assert redeem(server, SECRET).status_code == 400  # a wrong refresh token: the first failure
    assert introspect(server, SECRET).status_code == 200


def test_an_address_has_four_times_as_many_for_all_clients(server: str) -> None:
    for number in range(12):
        assert introspect(f"client {number}", "guess").status_code == 403
    assert introspect(server, SECRET).status_code == 429
    assert introspect(server, SECRET, "192.0.2.9").status_code == 200


def test_pages_of_clients_can_read_the_refusal(server: str) -> None:
    for _ in range(4):
        refused = redeem(server, "guess", HTTP_ORIGIN="https://server.example.org")
    assert refused.status_code == 429
    assert refused["Access-Control-Allow-Origin"] == "https://server.example.org"
