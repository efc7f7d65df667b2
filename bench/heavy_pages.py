"""What costs a console most (long lists, reports, exports), and operators who always ask for it.

`manage.py shell -c 'from bench.heavy_pages import fill; fill(100_000)'` puts the rows into a node.
"""

from __future__ import annotations

import itertools
import os
import threading
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

_ROWS_AT_ONCE = 2_000
_PATIENCE = 60  # seconds for one page, and for the last ones at the end
_NICENESS = 19

PAGES = (
    "/admin/",
    "/admin/msgnode/session/?state__exact=closed",
    "/admin/msgnode/session/?state__exact=closed&p=900",
    "/admin/msgnode/session/?state__exact=closed&q=user0777",
    "/admin/policies/decisionentry/?p=900",
    "/admin/policies/decisionentry/?q=user0777",
    "/admin/msgnode/auditentry/?p=900",
    "/admin/policies/policyset/export/",
    "/api/schema",
    "/metrics",
)
REPORT_PAGES = (
    "/admin/spark/report/last-day/",
    "/admin/spark/report/1/change/",
    "/api/v1/reports/1/",
    "/api/v1/reports/1/talkers.csv/",
    "/api/v1/reports/1/talkers.parquet/",
)


def fill(number: int) -> None:
    """So many rows in each of three lists: sessions that have ended, decisions, audit."""
    from django.utils import timezone

    from msgnode.models import AuditEntry, Session
    from policies.models import DecisionEntry

    now = timezone.now()

    def session(n: int) -> Session:
        return Session(
            runtime_url=f"runtime://localhost/user{n:06d}", token_hash=uuid.uuid4().hex,
            state=Session.State.CLOSED, handshake="ws", remote_address=f"10.0.{n % 250}.1",
            subject=f"subject-{n}",
        )  # fmt: skip

    def decision(n: int) -> DecisionEntry:
        return DecisionEntry(
            at=now, direction="in", effect="deny", passes=False, version=1, type="update",
            sender=f"runtime://localhost/user{n:06d}/sm", to=f"comm://localhost/{n}",
            path="House/P/R", message='{"id":1,"type":"update","body":{"value":"…"}}',
        )  # fmt: skip

    def audit(n: int) -> AuditEntry:
        return AuditEntry(
            at=now, actor="operator", action="ban.add", object=f"runtime://localhost/user{n:06d}",
            after={"reason": "spam"},
        )  # fmt: skip

    kinds: tuple[tuple[Any, Callable[[int], Any]], ...] = (
        (Session, session), (DecisionEntry, decision), (AuditEntry, audit),
    )  # fmt: skip
    for model, make in kinds:
        model.objects.bulk_create(map(make, range(number)), batch_size=_ROWS_AT_ONCE)


class Asked:
    """How many pages were given, and what went wrong."""

    def __init__(self) -> None:
        self.given = 0
        self.fault = ""


@contextmanager
def asking(get: Callable[[str], int], pages: Sequence[str], askers: int) -> Iterator[Asked]:
    """So many operators who ask for the pages one after another, each beginning with another one.

    Args:
        get: asks for a path; the status of the answer.
    """
    asked, over = Asked(), threading.Event()

    def ask(first: int) -> None:
        # Browsers are other machines: what reading a page takes here is no part of the figure.
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)
        for path in itertools.cycle([*pages[first:], *pages[:first]]):
            if over.is_set():
                return
            try:
                status = get(path)
            except (OSError, urllib.error.URLError) as error:
                asked.fault = f"{path}: {error}"
                return
            if status != 200:
                asked.fault = f"{path}: {status}"
                return
            asked.given += 1

    threads = [
        threading.Thread(target=ask, args=(number * len(pages) // askers,), daemon=True)
        for number in range(askers)
    ]
    for thread in threads:
        thread.start()
    try:
        yield asked
    finally:
        over.set()
        for thread in threads:
            thread.join(_PATIENCE)
