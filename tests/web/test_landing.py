"""What `/` offers is what the node does."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client


@pytest.mark.parametrize("is_on", [True, False])
def test_a_name_to_invite_is_asked_for_only_where_the_node_sends_invitations(
    settings: Any, is_on: bool
) -> None:
    settings.INVITATIONS = {**settings.INVITATIONS, "ON": is_on}
    page = Client().get("/").content.decode()
    assert ("or a name such as" in page) is is_on
    assert ("<code>INVITATIONS</code> is off" in page) is not is_on
