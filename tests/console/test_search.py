"""One box finds sessions, addresses, rules and pages, and nothing that one may not see."""

from __future__ import annotations

import uuid

import pytest
from django.contrib.auth.models import Group, User
from django.test import Client
from django.test.utils import CaptureQueriesContext

from msgnode.console import roles, search
from msgnode.models import Allocation, Ban, Session
from policies.authoring.drafts import replace_draft
from tests.console import rows

pytestmark = pytest.mark.django_db


def found(client: Client, term: str) -> str:
    answer = client.get("/admin/search/", {"s": term, "extended": "1"})
    assert answer.status_code == 200
    return answer.content.decode()


@pytest.fixture
def session() -> Session:
    made = Session.objects.create(
        runtime_url="runtime://localhost/Alice-7", token_hash=uuid.uuid4().hex, handshake="ws",
        subject="42", remote_address="192.0.2.7",
    )  # fmt: skip
    Allocation.objects.create(
        address="comm://localhost/Object-9", scheme="comm", session=made, allocation_key="k"
    )
    return made


@pytest.mark.parametrize("term", ["runtime://localhost/Alice", "192.0.2.7", "42"])
def test_a_session_is_found_by_its_url_source_and_subject(
    operator: Client, session: Session, term: str
) -> None:
    assert f"/admin/msgnode/session/{session.pk}/change/" in found(operator, term)


def test_a_session_is_found_by_its_id_as_it_was_typed(operator: Client, session: Session) -> None:
    for term in (str(session.pk), session.pk.hex):
        assert f"/admin/msgnode/session/{session.pk}/change/" in found(operator, term)


def test_addresses_rules_bans_and_pages_are_found(operator: Client, session: Session) -> None:
    assert "Object-9" in found(operator, "comm://localhost/Object")
    policies = [{"id": "P", "rules": [{"id": "no-floods", "effect": "deny"}]}]
    replace_draft([{"id": "S", "policies": policies}], {})
    assert "no-floods" in found(operator, "no-floods")
    Ban.objects.create(kind="runtime", value="runtime://localhost/mallory", reason="spam")
    assert "mallory" in found(operator, "runtime://localhost/mallory")
    assert "/admin/msgnode/alarm/" in found(operator, "Alarms")


def test_what_has_gone_is_not_found_any_more(operator: Client, session: Session) -> None:
    link = f"/admin/msgnode/session/{session.pk}/change/"
    assert link in found(operator, "runtime://localhost/Alice")
    Session.objects.all().delete()
    assert link not in found(operator, "runtime://localhost/Alice")


def test_more_than_a_few_lead_to_the_list(operator: Client) -> None:
    rows.fill(12)
    page = found(operator, "runtime://localhost/user")
    assert page.count("/admin/msgnode/session/") == search.SHOWN + 1
    assert "?q=runtime%3A%2F%2Flocalhost%2Fuser" in page


@pytest.mark.parametrize("role", ["", roles.VIEWER, roles.OPERATOR, roles.AUTHOR])
def test_nobody_finds_what_he_may_not_see(client: Client, session: Session, role: str) -> None:
    User.objects.create_user("root-of-all", is_staff=True)
    visitor = User.objects.create_user("visitor", is_staff=True)
    if role:
        visitor.groups.add(Group.objects.get(name=role))
    client.force_login(visitor)
    assert "root-of-all" not in found(client, "root-of-all")
    assert ("/admin/msgnode/session/" in found(client, "runtime://localhost/Alice")) == bool(role)
    assert ("API keys" in found(client, "API keys")) is False


@pytest.mark.parametrize("term", ["", "x", "y" * 700, "a\x00b", "%", "'\"<script>", "\ud83d"[:0]])
def test_terms_of_any_kind_are_answered(operator: Client, term: str) -> None:
    assert "<script>" not in found(operator, term)


def test_a_stranger_is_sent_to_log_in(client: Client) -> None:
    assert client.get("/admin/search/", {"s": "alarm"}).status_code == 302


@pytest.mark.long
def test_a_search_among_many_rows_reads_few(
    operator: Client, django_assert_max_num_queries
) -> None:
    rows.fill(20_000)
    with django_assert_max_num_queries(50) as queries:
        found(operator, "runtime://localhost/user0001")
    assert isinstance(queries, CaptureQueriesContext)
    assert sum(float(each["time"]) for each in queries) < 2.0
