"""Executes obligations after a decision: lines of the node's log, mails.

Blocks on the broker: for a thread, never for the event loop. Mails are sent by the Celery worker.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import cache

from celery import Celery

from .decision_buffer import PendingObligation

log = logging.getLogger(__name__)

SEND_MAIL = "policies.send_mail"
LINES = 20
"""Messages a mail tells; of more only the number."""


def execute(pending_obligations: Sequence[PendingObligation]) -> None:
    """Carry all of them out; one that fails is told in the log and stops no other.

    What a rule mails to the same people is one mail: a flood of refusals is not one of mails.
    """
    mails: dict[tuple[tuple[str, ...], str], list[str]] = {}
    for pending in pending_obligations:
        source = pending.obligation.source
        if pending.obligation.name != "emailto":
            log.info(
                "%s", pending.obligation.value, extra={"policy": source, "why": pending.summary}
            )
            continue
        to = (
            pending.obligation.value
            if isinstance(pending.obligation.value, list)
            else [pending.obligation.value]
        )
        mails.setdefault((tuple(to), source), []).append(pending.summary)
    for (people, source), summaries in mails.items():
        lines = summaries[:LINES]
        if len(summaries) > LINES:
            lines.append(f"and {len(summaries) - LINES} more")
        try:
            post().send_task(
                SEND_MAIL, (list(people), source, "\n".join(lines)), ignore_result=True
            )
        except Exception:
            log.exception("A mail of a policy could not be handed over.")


@cache
def post() -> Celery:
    """A sender of tasks to the node's broker."""
    app = Celery("policies", set_as_current=False)
    app.config_from_object("django.conf:settings", namespace="CELERY")
    return app
