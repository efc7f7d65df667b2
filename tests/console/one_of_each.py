"""One row of most kinds, for pages that are tried one after another.

`manage.py shell -c 'from tests.console.one_of_each import fill; fill()'` puts them into a node.
"""

from __future__ import annotations

import uuid
from datetime import timedelta

from axes.models import AccessAttempt
from django.contrib.auth.models import User as Account
from django.utils import timezone
from django_celery_beat.models import CrontabSchedule, PeriodicTask
from django_celery_results.models import TaskResult

from msgnode.console.audit import note
from msgnode.models import (
    AddressOwner,
    AddressPool,
    Alarm,
    AlarmNotice,
    AlarmRule,
    Allocation,
    ApiKey,
    Ban,
    ControlMessage,
    LegacyNetwork,
    MqttTopic,
    Peer,
    PeerMessage,
    PoolAddress,
    PushEndpoint,
    Revocation,
    Session,
    StoredMessage,
    Subscription,
    WebhookHost,
)
from msgnode.qos.models import Customer, Reservation, RoundTrip, TrafficClass, TurnServer
from msgnode.scripts import store
from policies.authoring import pap
from policies.authoring.drafts import replace_draft
from policies.models import DecisionEntry, NamedList, PolicyTest, RuleHits
from registry.models import DataObject, GlobalRecord, Hyperty, Runtime, StatusChange, User
from spark.models import ReportRun


def fill() -> None:
    """Make them."""
    now = timezone.now()
    _traffic()
    _policies()
    _registered()
    _allowed()
    Ban.objects.create(kind="runtime", value="runtime://localhost/b", reason="spam")
    Alarm.objects.create(kind="disk", text="It fills.")
    rule = AlarmRule.objects.create(name="flood", figure="messages", limit=1e9, seconds=60)
    AlarmNotice.objects.create(
        rule=rule, target="op@example.org", is_raised=True, text="too much", sent_at=now
    )
    MqttTopic.objects.create(
        topic="site/+/temperature", object="comm://localhost/site", attribute="temperature"
    )
    Revocation.objects.create(
        issuer="https://idp.example", subject="eve", ends_at=now + timedelta(days=1)
    )
    ControlMessage.objects.create(kind="session.end", payload={"sessions": ["a"]})
    peer = Peer.objects.create(domain="b.example", state="disconnected", last_error="It is away.")
    PeerMessage.objects.create(
        peer=peer, queue="q" * 32, number=1, kind="request", type="read", size=100, since=now,
        sender="hyperty://localhost/a", to="hyperty://b.example/1", text='{"type": "read"}',
        until=now + timedelta(days=1),
    )  # fmt: skip
    LegacyNetwork.objects.create(
        domain="legacy.example", host="127.0.0.1", component="gw.legacy.example", sealed="x"
    )
    script = {"source": "export default () => ({})", "origins": ["https://api.example.org"]}
    store.add("domain-registry", store.checked(script), "operator")
    StoredMessage.objects.create(
        peer=peer, key="k" * 32, type="create", size=100, sealed="x", reason="Tried 3 times.",
        sender="hyperty://localhost/a", to="hyperty://b.example/1", set_aside_at=now, until=now,
    )  # fmt: skip
    note("operator", "ban.add", "runtime://localhost/b", {}, {"id": 1})
    video = TrafficClass.objects.get_or_create(name="video", defaults={"bitrate": 2_500_000})[0]
    server = TurnServer.objects.create(
        name="turn1", urls="turn:turn.example:3478?transport=udp", capacity=2 * video.bitrate
    )
    RoundTrip.objects.create(network="a.example", server=server, milliseconds=12)
    Reservation.objects.create(
        id="f" * 16, state="ended", reason="released", server=server, traffic_class="video",
        customer=Customer.objects.create(name="csp1"), bitrate=video.bitrate,
        session_id=uuid.uuid4(), runtime_url="runtime://localhost/a", created_at=now,
        expires_at=now, ended_at=now, cut_at=now, told_at=now,
    )  # fmt: skip
    ReportRun.objects.create(
        kind="hourly", start=now, end=now, state=ReportRun.State.FAILED, trigger="operator"
    )
    every = CrontabSchedule.objects.create(minute="5")
    PeriodicTask.objects.create(name="mine", task="spark.hourly", crontab=every)
    TaskResult.objects.create(task_id="x", task_name="spark.hourly", status="SUCCESS")
    AccessAttempt.objects.create(
        username="eve", ip_address="192.0.2.1", failures_since_start=3, attempt_time=now
    )


def _traffic() -> None:
    session = Session.objects.create(
        runtime_url="runtime://localhost/a", token_hash=uuid.uuid4().hex, handshake="ws",
        state="detached",
    )  # fmt: skip
    Allocation.objects.create(address="comm://localhost/a", scheme="comm", session=session)
    Subscription.objects.create(address="comm://localhost/a/changes", session=session)
    pool = AddressPool.objects.create(scheme="sip")
    PoolAddress.objects.create(pool=pool, address="sip:guest@legacy.example")


def _policies() -> None:
    condition = {"anyOf": [{"msgTo": {"like": "*/x"}}, {"time": {"between": "22:00 06:00"}}]}
    rules = [{"id": "R", "effect": "deny", "condition": condition}]
    policies = [{"id": "P", "rules": rules}]
    replace_draft([{"id": "S", "mode": "shadow", "policies": policies}], {})
    pap.publish()
    pap.publish()
    NamedList.objects.create(name="staff", members="eve@example.org")
    PolicyTest.objects.create(name="t", case={"expect": "deny"}, is_active=False)
    RuleHits.objects.create(path="S/P/R", hits=7, last_hit=timezone.now())
    DecisionEntry.objects.create(
        at=timezone.now(), direction="in", effect="deny", passes=False, version=1, type="read",
        sender="a", to="b", path="S/P/R",
        message='{"id":1,"type":"read","from":"a","to":"b","body":{}}',
    )  # fmt: skip


def _registered() -> None:
    now = timezone.now()
    user = User.objects.create(user_id="user://localhost/u", idp_identifier="u")
    runtime = Runtime.objects.create(url="runtime://localhost/a")
    lives = {
        "status": "live", "expires": 3600, "started_at": now, "modified_at": now,
        "expires_at": now + timedelta(hours=1), "runtime": runtime,
    }  # fmt: skip
    Hyperty.objects.create(url="hyperty://localhost/h", user=user, descriptor="x", **lives)
    DataObject.objects.create(
        url="comm://localhost/o", name="room", schema="x", reporter="hyperty://localhost/h", **lives
    )
    StatusChange.objects.create(
        kind="hyperty", url="hyperty://localhost/h", after="live", cause="created", at=now
    )
    GlobalRecord.objects.create(
        guid="g" * 43, jwt="x", public_key="x", last_update=now, timeout=now
    )


def _allowed() -> None:
    now = timezone.now()
    AddressOwner.objects.create(address="hyperty://localhost/h", issuer="i", subject="eve")
    PushEndpoint.objects.create(
        id="p", subject="1", user_url="user://localhost/u", runtime_url="runtime://localhost/a",
        address="runtime://localhost/a/invitations", renewed_at=now, expires_at=now,
    )  # fmt: skip
    Account.objects.create_user("u")  # of the domain, without a role
    ApiKey.objects.create(name="sensors", prefix="mnk_sensors", secret_hash="x", expires_at=now)
    WebhookHost.objects.create(host="hooks.example.org")
