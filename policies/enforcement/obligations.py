"""Executes obligations after a decision: writes log lines, sends mails.

Blocks on the broker: call it in a thread, never on the event loop. The Celery worker sends mails.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

from .decision_buffer import PendingObligation

if TYPE_CHECKING:
    from celery import Celery

log = logging.getLogger(__name__)

SEND_MAIL = "policies.send_mail"
LINES = 20
"""Most messages listed in one mail; of further ones only the number is given."""


def execute(pending_obligations: Sequence[PendingObligation]) -> None:
    """Execute all of them; one that fails is logged and stops no other.

    What a rule mails to the same people is one mail, so that a flood of refusals is no flood of
    mails.
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
    """The Celery application that sends tasks to the node's broker."""
    from celery import Celery  # for who sends one

    app = Celery("policies", set_as_current=False)
    app.config_from_object("django.conf:settings", namespace="CELERY")
    return app
