"""The light in the side bar: on the one page that leads to where the operator is."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import RequestFactory

from msgnode.settings import console


class CountedLink(str):
    """An address that is made each time it is asked for, as reverse_lazy's are."""

    asked = 0

    def __str__(self) -> str:
        CountedLink.asked += 1
        return str.__str__(self)


def pages_of_the_menu() -> list[dict[str, Any]]:
    groups = console.unfold("localhost")["SIDEBAR"]["navigation"]
    return [page for group in groups for page in group["items"]]


@pytest.mark.parametrize(
    ("path", "lit"),
    [
        ("/admin/", ["Overview"]),
        ("/admin/msgnode/session/5/change/", ["Sessions"]),
        ("/admin/policies/policyset/replay/", ["Replay of the record"]),
        ("/admin/msgnode/", []),
    ],
)
def test_the_page_with_the_longest_address_that_leads_here_is_lit(
    path: str, lit: list[str]
) -> None:
    request = RequestFactory().get(path)
    assert [page["title"] for page in pages_of_the_menu() if page["active"](request)] == lit


def test_addresses_are_made_once_for_a_request_and_not_for_each_page_of_the_menu() -> None:
    pages = [{"link": CountedLink(f"/admin/{number}/")} for number in range(50)]
    console._lit_where_it_leads(pages)
    request = RequestFactory().get("/admin/49/")
    assert [page["active"](request) for page in pages] == [False] * 49 + [True]
    assert CountedLink.asked == len(pages)
