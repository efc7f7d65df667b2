"""Doing what obligations ask for after a decision: lines of the node's log, mails.

Blocks on the broker: for a thread, never for the event loop.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from .journal import Deed
from .tasks import send_mail_of_policy

log = logging.getLogger(__name__)


def do_deeds(deeds: Sequence[Deed]) -> None:
    """All of them; one that fails is told in the log and stops no other."""
    for deed in deeds:
        source = deed.duty.source
        if deed.duty.name != "emailto":
            log.info("%s", deed.duty.value, extra={"policy": source, "why": deed.summary})
            continue
        to = deed.duty.value if isinstance(deed.duty.value, list) else [deed.duty.value]
        try:
            send_mail_of_policy.delay(to, source, deed.summary)
        except Exception:
            log.exception("A mail of a policy could not be handed over.")
