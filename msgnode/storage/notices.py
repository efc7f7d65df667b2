"""Alarms of alarm rules, and the outbox of notices about them, written in the same transaction.

Rules
- A notice has one target and is sent by Celery, with up to MOST_ATTEMPTS attempts over about an
  hour. The sender claims it first, so that it is sent once even if two try.
- A run ends after RUN_SECONDS, and does not retry a target that has failed in it, so that one that
  does not answer delays neither the others nor other tasks.
- A notice that cannot be sent raises an alarm itself.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from datetime import timedelta
from http import HTTPStatus
from ipaddress import ip_network
from threading import Lock
from time import monotonic
from urllib.parse import urlsplit

from django.conf import settings
from django.core.mail import send_mail
from django.db import transaction
from django.utils import timezone

from msgnode.models import Alarm, AlarmNotice, AlarmRule, WebhookHost
from msgnode.net import http
from msgnode.net.http import ANYWHERE, HttpClient
from msgnode.storage import alarms

log = logging.getLogger(__name__)

KIND = "threshold"
FAILED = "notice-failed"
MOST_ATTEMPTS = 8
FIRST_WAIT = 30.0  # seconds after the first failure, doubled with each
CLAIMED = timedelta(seconds=120)
AT_ONCE = 50
TIMEOUT = 5.0
RUN_SECONDS = 30.0
MOST_UNSENT = 1_000
"""Most waiting notices of one rule."""
_RUN = Lock()


def raise_for(rule_id: int, text: str) -> None:
    """Raise the alarm of a rule whose limit is exceeded. Blocks."""
    with transaction.atomic():
        rule = AlarmRule.objects.filter(pk=rule_id, is_enabled=True).first()
        if rule is None:
            return
        standing = Alarm.objects.filter(kind=KIND, subject=rule.name, cleared_at=None).exists()
        alarms.raise_alarm("threshold", rule.name, text)
        if not standing:
            tell(rule, text, is_raised=True)


def clear_for(rule_id: int, text: str) -> None:
    """Clear the alarm of a rule whose limit is no longer exceeded. Blocks."""
    with transaction.atomic():
        rule = AlarmRule.objects.filter(pk=rule_id).first()
        if rule is not None and _clear(rule.name):
            tell(rule, text, is_raised=False)


def clear_others(names: set[str]) -> None:
    """Clear alarms of rules that were deleted or disabled. Blocks."""
    for name in standing() - names:
        _clear(name)


def standing() -> set[str]:
    """The names of the rules whose alarm stands. Blocks."""
    rows = Alarm.objects.filter(kind=KIND, cleared_at=None)
    return set(rows.values_list("subject", flat=True))


def tell(rule: AlarmRule, text: str, *, is_raised: bool) -> int:
    """Queue notices to all targets of a rule, unless it is silenced; return their number."""
    now = timezone.now()
    if rule.silent_until is not None and rule.silent_until > now:
        return 0
    unsent = AlarmNotice.objects.filter(rule=rule, sent_at=None, attempts__lt=MOST_ATTEMPTS)
    targets = [line.strip() for line in rule.mail_to.splitlines() if line.strip()]
    if rule.webhook:
        targets.append(rule.webhook)
    if unsent.count() + len(targets) > MOST_UNSENT:
        alarms.raise_alarm("notice-failed", rule.name, "Too many of its notices wait to be sent.")
        return 0
    AlarmNotice.objects.bulk_create(
        AlarmNotice(rule=rule, target=target, is_raised=is_raised, text=text[:500])
        for target in targets
    )
    return len(targets)


def send_due() -> dict[str, int]:
    """Send the due notices, for a Celery task; return how many were sent, and how many failed."""
    done = {"sent": 0, "failed": 0}
    if not _RUN.acquire(blocking=False):
        return done
    try:
        began, failing = monotonic(), set()
        now = timezone.now()
        due = AlarmNotice.objects.filter(sent_at=None, due_at__lte=now, attempts__lt=MOST_ATTEMPTS)
        for notice in due.select_related("rule").order_by("due_at")[:AT_ONCE]:
            if monotonic() - began > RUN_SECONDS:
                break
            if notice.target in failing or not _claim(notice):
                continue
            if _send(notice):
                done["sent"] += 1
            else:
                done["failed"] += 1
                failing.add(notice.target)
        return done
    finally:
        _RUN.release()


def _claim(notice: AlarmNotice) -> bool:
    """Claim a notice; return whether this process may send it."""
    rows = AlarmNotice.objects.filter(pk=notice.pk, due_at=notice.due_at, sent_at=None)
    return bool(rows.update(due_at=timezone.now() + CLAIMED))


def webhook_fault(url: str) -> str:
    """Why a webhook URL is not allowed, "" if it is."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return "This is no URL."
    if parts.scheme not in ("http", "https") or not host or parts.username or parts.fragment:
        return "This is no URL of http: or https: without a user and a fragment."
    if host in settings.ALARM_WEBHOOK_HOSTS:
        return ""
    if not WebhookHost.objects.filter(host=host).exists():
        return f"The host {host} is not one of the Webhook hosts of this node."
    return f"It {fault}." if (fault := http.url_fault(url, _networks())) else ""


def _networks() -> list[http.Network]:
    """Where hosts that were entered in the console may be, beside public addresses."""
    return [ip_network(each) for each in settings.WEBHOOK_NETWORKS]


def shown(target: str) -> str:
    """A target as shown in lists: only the host of a webhook, whose path may be a secret."""
    return f"{urlsplit(target).hostname} (webhook)" if "://" in target else target


def _clear(name: str) -> bool:
    rows = Alarm.objects.filter(kind=KIND, subject=name, cleared_at=None)
    return bool(rows.update(cleared_at=timezone.now()))


def _send(notice: AlarmNotice) -> bool:
    deliver: Callable[[AlarmNotice], None] = _post if "://" in notice.target else _mail
    fault = ""
    try:
        deliver(notice)
    except Exception as error:  # a mail server may answer anything
        fault = f"{type(error).__name__}: {error}"[:255]
        log.warning("A notice of the alarm rule %s was not sent: %s", notice.rule, fault)
    now, attempts = timezone.now(), notice.attempts + 1
    subject = f"{notice.rule.name}: {shown(notice.target)}"
    with transaction.atomic():
        AlarmNotice.objects.filter(pk=notice.pk).update(
            attempts=attempts,
            error=fault,
            sent_at=None if fault else now,
            due_at=now + timedelta(seconds=FIRST_WAIT * 2 ** (attempts - 1)),
        )
        if not fault:
            alarms.clear_alarm("notice-failed", subject)
        elif attempts >= MOST_ATTEMPTS:
            alarms.raise_alarm("notice-failed", subject, f"{notice.text[:200]} – {fault}")
    return not fault


def _mail(notice: AlarmNotice) -> None:
    state = "ALARM" if notice.is_raised else "over"
    text = f"{notice.text}\n\n{_page()}\n{notice.at:%Y-%m-%d %H:%M:%S} UTC"
    subject = f"[{settings.DOMAIN}] {state}: {notice.rule.name}"
    send_mail(subject.replace("\n", " "), text, None, [notice.target])


def _post(notice: AlarmNotice) -> None:
    if fault := webhook_fault(notice.target):
        raise ValueError(fault)
    said = {
        "id": notice.pk,
        "node": settings.DOMAIN,
        "alarm": notice.rule.name,
        "state": "raised" if notice.is_raised else "over",
        "text": notice.text,
        "at": notice.at.isoformat(),
        "page": _page(),
    }
    status = asyncio.run(_call(notice.target, json.dumps(said).encode()))
    if not HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES:
        raise ValueError(f"answered {status}")


async def _call(url: str, body: bytes) -> int:
    """Call a webhook; return its status. Its body is not read, a redirect not followed.

    A host of the setting may be anywhere; one that was entered in the console, where devices'
    webhooks may be.
    """
    is_anywhere = urlsplit(url).hostname in settings.ALARM_WEBHOOK_HOSTS
    client = HttpClient(ANYWHERE if is_anywhere else _networks(), TIMEOUT, 0)
    try:
        return (await client.request("POST", url, body, reads_body=False)).status
    finally:
        await client.close()


def _page() -> str:
    return f"{settings.PUBLIC_URL.rstrip('/')}/admin/msgnode/alarm/?standing=yes"
