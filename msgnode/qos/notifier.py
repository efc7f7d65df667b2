"""Tells owners that their reservations have ended: an `update` to the runtime that reserved.

Sessions of a runtime URL at another worker must be queried first; then a later round tells them.
"""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from msgnode.bus.holders import NO_OTHERS, Holders
from msgnode.bus.notices import Notices
from msgnode.bus.ports import Listener
from msgnode.bus.table import RoutingTable
from msgnode.core.faults import FAULTS
from msgnode.core.pending import Pending

from .sweep import Ended


class Notifier:
    """Finds the sessions of owners, at whichever worker, and hands them the status."""

    def __init__(self, notices: Notices, table: RoutingTable, holders: Holders = NO_OTHERS) -> None:
        self._holders = holders
        self._notices = notices
        self._table = table

    def tell(self, ended: Iterable[Ended]) -> list[str]:
        """Notify the owners; return the ids that are done, including those of absent owners."""
        done = []
        for each in ended:
            with FAULTS.kept_to("notification"):
                if not self._knows(each.runtime_url):
                    continue
                wanted = UUID(each.session_id)
                there = self._table.runtimes.get(each.runtime_url, ())
                mine = tuple(listener for listener in there if _id_of(listener) == wanted)
                if mine:
                    self._notices.send(each.runtime_url, _body(each), mine)
            done.append(each.id)
        return done

    def _knows(self, runtime_url: str) -> bool:
        """Whether all sessions of a runtime are known here; they are asked for if not."""
        if not self._holders.hears(runtime_url):
            try:
                self._holders.find(("reservation", runtime_url), (runtime_url,))
            except Pending as fact:
                fact.when_known(_nothing)
        return self._holders.hears(runtime_url)


def _nothing() -> None:
    """The next round looks again."""


def _id_of(listener: Listener) -> UUID | None:
    try:
        return UUID(listener.id)
    except ValueError:  # the worker's own probe
        return None


def _body(ended: Ended) -> dict[str, str]:
    return {
        "resource": f"/reservations/{ended.id}",
        "attribute": "status",
        "value": ended.status,
        "reason": ended.reason,
    }
