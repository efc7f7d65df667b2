"""The brake of an address that tries to log in too often."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from django.test import Client

pytestmark = pytest.mark.django_db

LIMIT = 3


@pytest.fixture(autouse=True)
def limited(settings: Any) -> None:
    settings.LOGINS_PER_MINUTE = LIMIT


def tries(path: str, name: str, address: str = "192.0.2.1") -> Any:
    form = {"username": name, "password": "wrong"}
    return Client().post(path, form, REMOTE_ADDR=address, headers={"Accept": "text/html"})


@pytest.mark.parametrize("path", ["/login/", "/admin/login/"])
def test_an_address_that_tries_many_names_has_to_wait_and_its_neighbour_has_not(path: str) -> None:
    codes = [tries(path, f"user-{number}").status_code for number in range(LIMIT + 2)]
    assert codes == [200] * LIMIT + [429] * 2
    refused = tries(path, "one more")
    assert refused["Retry-After"] == "60"
    assert "Wait a while" in refused.content.decode()
    assert tries(path, "somebody", "192.0.2.2").status_code == 200


def test_both_doors_count_together() -> None:
    codes = [tries(path, "a").status_code for path in ("/login/", "/admin/login/") * 2]
    assert codes == [200] * LIMIT + [429]


def over_http(name: str, password: str = "wrong", address: str = "192.0.2.1") -> Any:
    pair = base64.b64encode(f"{name}:{password}".encode()).decode()
    headers = {"Authorization": f"Basic {pair}"}
    return Client().get("/api/v1/hyperties", REMOTE_ADDR=address, headers=headers)


def test_passwords_over_http_are_guessed_no_more_often(django_user_model: Any) -> None:
    django_user_model.objects.create_user("alice", password="wonderland 7")
    for _ in range(LIMIT + 1):  # who knows the password has nothing counted
        assert over_http("alice", "wonderland 7").status_code in (200, 403)
    codes = [over_http(f"user-{number}").status_code for number in range(LIMIT)]
    assert codes == [401] * LIMIT
    refused = over_http("alice", "wonderland 7")
    assert (refused.status_code, refused["Retry-After"]) == (429, "60")
    assert tries("/login/", "somebody").status_code == 429
    assert over_http("somebody", address="192.0.2.2").status_code == 401
