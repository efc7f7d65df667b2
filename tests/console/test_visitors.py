"""Visitors in the console and over REST: which are marked, how they are found, ended and banned."""

from __future__ import annotations

import uuid
from typing import Any

import msgspec
import pytest
from django.test import Client

from msgnode.console import definitions
from msgnode.console.operator_actions import fill_pool
from msgnode.console.roles import OPERATOR, VIEWER
from msgnode.models import AddressPool, Allocation, Ban, ControlMessage, PoolAddress, Session

from .accounts import as_role

pytestmark = pytest.mark.django_db

SESSIONS, VISITORS = "/admin/msgnode/session/", "/api/v1/visitors/"


@pytest.fixture
def operator() -> Client:
    return as_role(OPERATOR)


@pytest.fixture(autouse=True)
def sessions() -> dict[str, Session]:
    """Two visitors of b, one of c, one that has ended, and a runtime of this domain."""
    made = {
        name: session(name, domain, state)
        for name, domain, state in (
            ("one", "b.example", "open"), ("two", "b.example", "detached"),
            ("three", "c.example", "open"), ("gone", "d.example", "closed"),
            ("home", "", "open"),
        )
    }  # fmt: skip
    for number in range(3):
        address = f"hyperty://localhost/{number}"
        Allocation.objects.create(address=address, scheme="hyperty", session=made["one"])
    return made


def session(name: str, domain: str, state: str) -> Session:
    url = f"runtime://{domain or 'localhost'}/{name}-{uuid.uuid4().hex}"
    return Session.objects.create(runtime_url=url, visits_from=domain, state=state)


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("", {"one", "two", "three", "home"}),
        ("?visitor=any", {"one", "two", "three"}),
        ("?visitor=none", {"home"}),
        ("?visitor=b.example", {"one", "two"}),
        ("?visitor=B.example&state__exact=open", {"one"}),
        ("?visitor=nobody.example", set()),
    ],
)
def test_the_list_of_sessions_finds_those_of_a_domain(
    operator: Client, asked: str, found: set[str]
) -> None:
    page = operator.get(SESSIONS + asked).content.decode()
    assert {
        name for name in ("one", "two", "three", "gone", "home") if f"/{name}-" in page
    } == found


def test_the_page_of_a_visitor_leads_to_a_ban_of_its_domain(
    operator: Client, sessions: dict[str, Session]
) -> None:
    to_ban = operator.get(f"{SESSIONS}{sessions['one'].pk}/ban-domain/")
    assert to_ban.status_code == 302
    assert to_ban["Location"].endswith("kind=domain&value=b.example")
    assert "ban-domain" in operator.get(f"{SESSIONS}{sessions['one'].pk}/change/").content.decode()
    home = f"{SESSIONS}{sessions['home'].pk}"
    assert "ban-domain" not in operator.get(f"{home}/change/").content.decode()
    assert operator.get(f"{home}/ban-domain/").status_code == 403


def ban(operator: Client, value: str) -> str:
    fields = {"kind": "domain", "value": value, "reason": "test"}
    return str(operator.post("/admin/msgnode/ban/add/", fields).content.decode())


def test_a_domain_is_banned_and_the_nodes_own_is_not(operator: Client) -> None:
    ban(operator, "B.example")
    assert list(Ban.objects.values_list("kind", "value")) == [("domain", "b.example")]
    assert ControlMessage.objects.filter(kind="bans.changed").exists()
    from msgnode.console.bans import sessions_met

    assert sessions_met("domain", "b.example") == 2
    assert "own domain" in ban(operator, "localhost")
    assert "is no domain" in ban(operator, "runtime://b.example/x")
    assert Ban.objects.count() == 1


def test_visitors_are_told_by_domain_over_rest(operator: Client) -> None:
    listed = operator.get(VISITORS).json()
    assert listed["results"] == [
        {"domain": "b.example", "sessions": 2, "connected": 1, "addresses": 3},
        {"domain": "c.example", "sessions": 1, "connected": 1, "addresses": 0},
    ]
    assert operator.get(f"{VISITORS}b.example/").json() == listed["results"][0]
    assert operator.get(f"{VISITORS}d.example/").status_code == 404


def test_the_visitors_of_a_domain_are_ended_by_who_may(sessions: dict[str, Session]) -> None:
    viewer, operator = as_role(VIEWER), as_role(OPERATOR)
    assert viewer.get(VISITORS).status_code == 200
    assert viewer.delete(f"{VISITORS}b.example/").status_code == 403
    assert Client().get(VISITORS).status_code in (401, 403)
    answer: Any = operator.delete(f"{VISITORS}b.example/")
    assert (answer.status_code, answer.json()) == (200, {"ended": 2})
    states = {name: Session.objects.get(pk=each.pk).state for name, each in sessions.items()}
    assert states["one"] == states["two"] == "closed"
    assert states["three"] == states["home"] == "open"
    told = ControlMessage.objects.filter(kind="session.end")
    assert {each.payload["session"] for each in told} == {
        sessions[name].pk.hex for name in ("one", "two")
    }
    assert not Allocation.objects.exists()
    assert operator.delete(f"{VISITORS}b.example/").status_code == 404


def test_addresses_of_a_pool_are_for_visitors_or_for_this_domains_runtimes(
    operator: Client, django_capture_on_commit_callbacks: Any
) -> None:
    pool = AddressPool.objects.create(scheme="sip")
    assert fill_pool(pool, ["sip:user@localhost"]) == 1
    assert fill_pool(pool, ["sip:guest@localhost", "sip:user@localhost"], True) == 1
    kept = dict(PoolAddress.objects.values_list("address", "for_visitors"))
    assert kept == {"sip:user@localhost": False, "sip:guest@localhost": True}
    page = operator.get("/admin/msgnode/addresspool/").content.decode()
    assert "1 of 1" in page
    url = f"/admin/msgnode/addresspool/{pool.pk}/change/"
    form = {"note": "", "add": "sip:more{1-2}@localhost", "for_visitors": "on"}
    with django_capture_on_commit_callbacks(execute=True):
        assert operator.post(url, form).status_code == 302
    assert PoolAddress.objects.filter(for_visitors=True).count() == 3
    listed = operator.get("/admin/msgnode/pooladdress/?for_visitors__exact=1").content.decode()
    assert "sip:guest@localhost" in listed
    assert "sip:user@localhost" not in listed


def test_what_is_defined_of_visitors_is_taken_to_another_node() -> None:
    pool = AddressPool.objects.create(scheme="sip")
    fill_pool(pool, ["sip:user@localhost"])
    fill_pool(pool, ["sip:guest@localhost"], True)
    AddressPool.objects.create(scheme="tel")
    Ban.objects.create(kind="domain", value="b.example", reason="test")
    document = msgspec.json.encode(definitions.collect())
    assert document.count(b"for_visitors") == 1, "an older version reads pools without such"
    AddressPool.objects.all().delete()
    Ban.objects.all().delete()
    found = definitions.read(document)
    assert definitions.faults(found) == []
    definitions.take_in(found, "test")
    kept = dict(PoolAddress.objects.values_list("address", "for_visitors"))
    assert kept == {"sip:user@localhost": False, "sip:guest@localhost": True}
    assert Ban.objects.get().value == "b.example"
    found.bans[0].value = "localhost"
    assert "own domain" in definitions.faults(found)[0]
