"""Executes obligations after a decision: writes log lines, has mails sent."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from .decision_buffer import PendingObligation

log = logging.getLogger(__name__)

SEND_MAIL = "policies.send_mail"
LINES = 20
"""Most messages listed in one mail; of further ones only the number is given."""


def execute(
    pending_obligations: Sequence[PendingObligation], send_mail: Callable[..., None]
) -> None:
    """Execute all of them; one that fails is logged and stops no other.

    What a rule mails to the same people is one mail, so that a flood of refusals is no flood of
    mails.

    Args:
        pending_obligations: what to execute.
        send_mail: hands a mail to the Celery worker: to whom, by which policy, the text. Blocks.
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
            send_mail(list(people), source, "\n".join(lines))
        except Exception:
            log.exception("A mail of a policy could not be handed over.")
