"""Invitations as they are written: when one ends, and what is refused by name."""

from __future__ import annotations

import json
from typing import Any

import pytest

from msgnode.core.errors import BadMessage
from msgnode.invitations.wire import MAX_SECONDS, expiry, read

NOW = 1_000.25


def written(**value: Any) -> bytes:
    said = {"invitation": "call", "expires": expiry(NOW, 60)} | value
    return json.dumps({
        "type": "create", "id": 1, "from": "hyperty://b.example/1", "to": "user://a.example/alice",
        "body": {
            "value": said,
            "identity": {"assertion": "e30.e30.e30", "idp": {"domain": "b.example"}},
            "protostub": "https://b.example/.well-known/protocolstub/default",
        },
    }).encode()  # fmt: skip


def test_an_invitation_is_good_for_no_less_than_what_was_asked() -> None:
    assert expiry(NOW, 1) == 1_002
    assert expiry(1_000.0, 1) == 1_001


@pytest.mark.parametrize("expires", [1_001, expiry(NOW, MAX_SECONDS)])
def test_the_first_and_the_last_second_are_taken(expires: int) -> None:
    assert read(written(expires=expires), NOW).expires == expires


@pytest.mark.parametrize("expires", [1_000, expiry(NOW, MAX_SECONDS) + 1, 0, -1])
def test_an_end_that_is_over_or_too_far_away_is_refused(expires: int) -> None:
    with pytest.raises(BadMessage, match="expires.*within"):
        read(written(expires=expires), NOW)


@pytest.mark.parametrize("expires", [None, True, "1001", [1_001]])
def test_an_end_that_is_no_time_is_refused(expires: Any) -> None:
    with pytest.raises(BadMessage, match="expires.*seconds since the epoch"):
        read(written(expires=expires), NOW)
