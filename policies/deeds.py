"""Doing what obligations ask for after a decision: lines of the node's log, mails.

Blocks on the broker: for a thread, never for the event loop. Mails are sent by the Celery worker.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import cache

from celery import Celery

from .journal import Deed

log = logging.getLogger(__name__)

SEND_MAIL = "policies.send_mail"


def do_deeds(deeds: Sequence[Deed]) -> None:
    """All of them; one that fails is told in the log and stops no other."""
    for deed in deeds:
        source = deed.duty.source
        if deed.duty.name != "emailto":
            log.info("%s", deed.duty.value, extra={"policy": source, "why": deed.summary})
            continue
        to = deed.duty.value if isinstance(deed.duty.value, list) else [deed.duty.value]
        try:
            post().send_task(SEND_MAIL, (to, source, deed.summary), ignore_result=True)
        except Exception:
            log.exception("A mail of a policy could not be handed over.")


@cache
def post() -> Celery:
    """A sender of tasks to the node's broker."""
    app = Celery("policies", set_as_current=False)
    app.config_from_object("django.conf:settings", namespace="CELERY")
    return app
