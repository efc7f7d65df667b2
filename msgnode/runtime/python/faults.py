"""What nobody else would hear of: told to the error hook of a bus."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from .messages import Message

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that went wrong.

    reason   the name of its counter, such as "listener.failed" or "answers.unexpected"
    text     what happened, for a log
    message  the message it is about, if there is one
    error    what was raised, if anything was
    """

    reason: str
    text: str
    message: Message | None = None
    error: BaseException | None = None


OnError = Callable[[Fault], None]


def log_error(fault: Fault) -> None:
    """The error hook of a bus that was given none: a warning in the log."""
    log.warning("%s: %s", fault.reason, fault.text, exc_info=fault.error)
