"""Executes obligations after a decision: writes log lines, has mails sent.

The first mail of a rule to the same people leaves at once; what follows within MAIL_SECONDS is one
mail then, so that a flood of refusals is no flood of mails.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

from .decision_buffer import PendingObligation

log = logging.getLogger(__name__)

SEND_MAIL = "policies.send_mail"
MAIL_SECONDS = 60.0
Send = Callable[[str, tuple[Any, ...]], None]
LINES = 20
"""Most messages listed in one mail; of further ones only the number is given."""


@dataclass(slots=True)
class _Mail:
    """What is to be mailed next, and when it may be."""

    due: float
    lines: list[str] = field(default_factory=list)
    number: int = 0


class Obligations:
    """One instance per worker, used by one thread at a time.

    Args:
        send: sends a task to the Celery worker: its name, and its arguments. Blocks.
        clock: a monotonic clock, in seconds.
    """

    def __init__(self, send: Send, clock: Callable[[], float] = monotonic) -> None:
        self._send = send
        self._clock = clock
        self._mails: dict[tuple[tuple[str, ...], str], _Mail] = {}

    @property
    def is_due(self) -> bool:
        """Whether a mail that has waited may leave."""
        now = self._clock()
        return any(mail.due <= now for mail in self._mails.values())

    def execute(self, pending: Sequence[PendingObligation], is_last: bool = False) -> None:
        """Execute these; one that fails is logged and stops no other. `is_last`: no mail waits."""
        now = self._clock()
        for each in pending:
            source, value = each.obligation.source, each.obligation.value
            if each.obligation.name != "emailto":
                log.info("%s", value, extra={"policy": source, "why": each.summary})
                continue
            people = tuple(value if isinstance(value, list) else [value])
            mail = self._mails.setdefault((people, source), _Mail(now))
            mail.number += 1
            if mail.number <= LINES:
                mail.lines.append(each.summary)
        for (people, source), mail in list(self._mails.items()):
            if mail.due > now and not is_last:
                continue
            if not mail.number:
                del self._mails[people, source]
                continue
            self._mails[people, source] = _Mail(now + MAIL_SECONDS)
            more = [f"and {mail.number - LINES} more"] if mail.number > LINES else []
            try:
                self._send(SEND_MAIL, (list(people), source, "\n".join([*mail.lines, *more])))
            except Exception:
                log.exception("A mail of a policy could not be handed over.")
