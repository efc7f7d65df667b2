"""What a second node is started with, and beside which node it is refused."""

from __future__ import annotations

import pytest

from msgnode.launch import second
from msgnode.launch.error_messages import StartFailed

FIRST = {"DOMAIN": "example.org", "PORT": 8000, "DATA_DIR": "/data"}


def test_it_shares_nothing_with_the_first() -> None:
    made = second.environment(FIRST, True, False, {})
    assert (made["DOMAIN"], made["PORT"]) == ("second.example.org", "8001")
    assert made["DATA_DIR"] == "/data/second"
    assert made["PUBLIC_URL"] == "http://localhost:8001"
    assert made["INVITATIONS"] == "true"


def test_what_is_set_stays() -> None:
    made = second.environment(FIRST, True, False, {"CONTACT_CARDS": "sales", "DOMAIN": "x"})
    assert (made["CONTACT_CARDS"], made["DOMAIN"]) == ("sales", "second.example.org")


@pytest.mark.parametrize(("is_embedded", "has_services"), [(False, False), (True, True)])
def test_beside_a_node_that_is_not_tried_out_it_is_refused(
    is_embedded: bool, has_services: bool
) -> None:
    with pytest.raises(StartFailed, match="DATABASE_URL"):
        second.environment(FIRST, is_embedded, has_services, {})
