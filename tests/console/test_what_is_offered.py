"""What a page offers can be done by who sees it: no link leads its user to a refusal."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator

import pytest
from django.contrib.auth.models import Group, User
from django.test import Client
from django.utils import timezone
from django_celery_beat.models import CrontabSchedule, PeriodicTask

from msgnode.console import roles
from msgnode.console.audit import note
from msgnode.models import AddressPool, Alarm, Allocation, Ban, Session, Subscription
from policies.authoring import pap
from policies.authoring.drafts import replace_draft
from policies.models import DecisionEntry
from tests.console.test_roles import NAMED, url

pytestmark = [pytest.mark.django_db, pytest.mark.long]

ROLES = (roles.VIEWER, roles.OPERATOR, roles.AUTHOR, roles.ADMINISTRATOR)
LISTS = sorted(
    url(path) for name, path in NAMED if name.endswith("_changelist") and "(?P" not in path
)
LEADS_AWAY = re.compile(r"/admin/(logout|login|jsi18n|password_change|live)")


@pytest.fixture
def rows() -> None:
    """One row of most kinds."""
    session = Session.objects.create(
        runtime_url="runtime://localhost/a", token_hash=uuid.uuid4().hex, handshake="ws"
    )
    Allocation.objects.create(address="comm://localhost/a", scheme="comm", session=session)
    Subscription.objects.create(address="comm://localhost/a/changes", session=session)
    Ban.objects.create(kind="runtime", value="runtime://localhost/b", reason="spam")
    Alarm.objects.create(kind="disk", text="It fills.")
    AddressPool.objects.create(scheme="sip")
    note("operator", "ban.add", "runtime://localhost/b", {}, {"id": 1})
    policies = [{"id": "P", "rules": [{"id": "R", "effect": "deny"}]}]
    replace_draft([{"id": "S", "mode": "enforce", "policies": policies}], {})
    pap.publish()
    pap.publish()
    DecisionEntry.objects.create(
        at=timezone.now(), direction="in", effect="deny", passes=False, version=1, type="read",
        sender="a", to="b", path="S/P/R", message="{}",
    )  # fmt: skip
    every = CrontabSchedule.objects.create(minute="5")
    PeriodicTask.objects.create(name="mine", task="spark.hourly", crontab=every)


def links_of(page: str) -> Iterator[str]:
    """Pages of the console that a page leads to, by links, buttons and forms."""
    for found in re.findall(r'(?:href|action|formaction)="(/admin/[^"#]*)"', page):
        if not LEADS_AWAY.match(found):
            yield found.replace("&amp;", "&")


@pytest.mark.parametrize("role", ROLES)
def test_no_link_leads_to_a_refusal(client: Client, rows: None, role: str) -> None:
    user = User.objects.create_user("somebody", is_staff=True)
    user.groups.add(Group.objects.get(name=role))
    client.force_login(user)
    seen: dict[str, str] = {}
    details: set[str] = set()
    for place in ["/admin/", *LISTS]:
        answer = client.get(place)
        if answer.status_code != 200:
            continue  # not this role's, and no link leads there: see below
        for link in links_of(answer.content.decode()):
            seen.setdefault(link, place)
            if link.endswith("/change/"):
                details.add(link)
    assert len(seen) > 40
    for place in sorted(details):
        answer = client.get(place)
        if answer.status_code == 200:
            for link in links_of(answer.content.decode()):
                seen.setdefault(link, place)
    refused = [
        f"{place} offers {link}"
        for link, place in seen.items()
        if "?" not in link and client.get(link).status_code == 403
    ]
    assert refused == []
