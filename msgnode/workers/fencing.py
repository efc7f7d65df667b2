"""Stores what a worker that has lost its lease must leave in the database before it restarts."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable

from django.db import connections

from msgnode.storage import alarms, control

from . import membership_store
from .control_handlers import MISSED
from .worker_process import WorkerId

log = logging.getLogger(__name__)

KIND = "worker-fenced"
_RETRY = 0.5
_AT_ONCE = 500


def note_fencing(me: WorkerId, why: str, missed: Iterable[str]) -> None:
    """Retire the epoch and raise an alarm. Blocks until the database accepts it.

    Args:
        me: the worker, with the epoch that has ended.
        why: why its lease is lost.
        missed: the sessions of other workers that have missed something, which will be told.
    """
    while True:
        try:
            membership_store.retire(me.epoch)
            text = f"The worker {me.name} lost its lease ({why}) and began again."
            alarms.raise_alarm(KIND, me.name, text)
            sessions = sorted(missed)
            for start in range(0, len(sessions), _AT_ONCE):
                control.post(MISSED, sessions=sessions[start : start + _AT_ONCE])
            return
        except Exception as error:
            log.warning("The worker waits for the database to begin again: %s", error)
            time.sleep(_RETRY)
        finally:
            connections.close_all()
