"""The registry in the console."""

from __future__ import annotations

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.test import Client

from registry import api
from registry.api import Kind
from registry.models import Hyperty

from .conftest import Clock, data_object, hyperty
from .test_global import GUID, jwt

ONE, TWO = "hyperty://d/1", "hyperty://d/2"
LIST = "/admin/registry/hyperty/"


@pytest.fixture
def entered(db: None) -> None:
    api.register(Kind.HYPERTY, ONE, hyperty(guid="user-guid://g1"), "user://d/alice@d")
    second = hyperty(guid="user-guid://g2", runtime="runtime://d/r2", expires=1800)
    api.register(Kind.HYPERTY, TWO, second, "user://d/bob@d")
    api.register(Kind.OBJECT, "comm://d/1", data_object())


def listed(operator: Client, query: str) -> set[str]:
    page = operator.get(LIST + query)
    assert page.status_code == 200
    return {url for url in (ONE, TWO) if f">{url}</a>" in page.content.decode()}


@pytest.mark.parametrize(
    ("term", "found"),
    [
        (ONE, {ONE}),
        ("user://d/bob@d", {TWO}),
        ("alice@d", {ONE}),
        ("g2", {TWO}),
        ("user-guid://g2", {TWO}),
        ("runtime://d/r2", {TWO}),
        ("hyperty://d", {ONE, TWO}),
        ("nobody", set()),
        ("alice", {ONE}),  # the beginning of an e-mail address
        ("user://d/", {ONE, TWO}),
        ("/r2", {TWO}),  # anywhere in a key
        ("CATALOGUE", {ONE, TWO}),  # anywhere in a text
        ("100%", set()),
    ],
)
def test_a_hyperty_is_found_by_any_of_its_keys(
    operator: Client, entered: None, term: str, found: set[str]
) -> None:
    assert listed(operator, f"?q={term}") == found


def test_the_status_filter_follows_the_clock(operator: Client, clock: Clock, entered: None) -> None:
    operator.force_login(User.objects.get())
    assert listed(operator, "?status=live") == {ONE, TWO}
    clock.forward(1900)
    assert listed(operator, "?status=live") == {ONE}
    assert listed(operator, "?status=disconnected") == {TWO}
    assert listed(operator, "?status=dead") == set()


def test_what_expires_soon_is_listed(operator: Client, clock: Clock, entered: None) -> None:
    operator.force_login(User.objects.get())
    clock.forward(1500)
    assert listed(operator, "?expires_within=600") == {TWO}
    assert listed(operator, "?expires_within=60") == set()


def test_disconnecting_is_announced_and_noted(
    operator: Client, entered: None, heard: list[tuple[str, str]]
) -> None:
    chosen = Hyperty.objects.get(url=ONE).pk
    operator.post(LIST, {"action": "disconnect", "_selected_action": [chosen]})
    assert heard == [(ONE, "disconnected")]
    assert LogEntry.objects.get().object_repr == ONE
    page = operator.get(f"{LIST}{chosen}/change/").content.decode()
    assert "live → disconnected" in page
    assert "operator" in page


def test_purging_is_announced_noted_and_final(
    operator: Client, entered: None, heard: list[tuple[str, str]]
) -> None:
    chosen = Hyperty.objects.get(url=ONE).pk
    operator.post(LIST, {"action": "purge", "_selected_action": [chosen]})
    assert heard == [(ONE, "disconnected")]
    assert api.get(Kind.HYPERTY, ONE) is None
    assert LogEntry.objects.get().is_deletion()


def test_without_the_permission_nothing_can_be_done(db: None, entered: None) -> None:
    viewer = Client()
    viewer.force_login(User.objects.create_user("viewer", is_staff=True))
    assert viewer.get(LIST).status_code == 403


@pytest.mark.parametrize(
    "name", ["hyperty", "dataobject", "user", "runtime", "statuschange", "globalrecord"]
)
def test_every_list_and_page_opens(operator: Client, entered: None, name: str) -> None:
    api.global_put(GUID, jwt(lastUpdate="2026-01-01T00:00:00Z"))
    page = operator.get(f"/admin/registry/{name}/")
    assert page.status_code == 200
    row = page.context["cl"].result_list[0]
    assert operator.get(f"/admin/registry/{name}/{row.pk}/change/").status_code == 200
    assert operator.get(f"/admin/registry/{name}/?q=nothing").status_code == 200
