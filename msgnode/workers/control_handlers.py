"""The handlers of control messages: orders of the operator to the running workers.

The console and the commands write a row (msgnode.storage.control); each worker's ControlReader
passes it to the handler of its kind, on the event loop. An order about a session that is not at
this worker is kept for some time (orders.py), because the session may be moving to it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from django.db import connections

from msgnode.allocation.component import AllocationComponent
from msgnode.allocation.store import AllocationStore
from msgnode.bus.last_owners import LastOwnerCache
from msgnode.bus.writing import Call, Writer
from msgnode.sessions.bans import BanList
from msgnode.sessions.connection_limits import ConnectionLimits
from msgnode.sessions.manager import SessionManager
from msgnode.sessions.rules import CloseCode, State
from msgnode.sessions.session import LiveSession
from msgnode.sessions.store import SessionStore
from msgnode.storage import alarms
from msgnode.storage.control import MESSAGE, Handler
from msgnode.subscriptions.component import SubscriptionComponent

from . import membership_store
from .orders import MISSED, Order, Orders, post_missed
from .worker_process import WorkerId

ControlPayload = dict[str, Any]


class ControlHandlers:
    """Executes orders about sessions, what they hold, bans, pools and owners."""

    def __init__(
        self,
        sessions: SessionManager,
        sockets: ConnectionLimits,
        allocation: AllocationComponent,
        subscriptions: SubscriptionComponent,
        owners: LastOwnerCache,
        writer: Writer,
        orders: Orders | None = None,
    ) -> None:
        self._sessions = sessions
        self._sockets = sockets
        self._allocation = allocation
        self._subscriptions = subscriptions
        self._owners = owners
        self._writer = writer
        self._orders = orders

    def handlers(self) -> dict[str, Handler]:
        """Kind of the control message → what is done."""
        about_holdings = {
            "allocation.delete": self._drop_allocation,
            "subscription.add": self._add_subscription,
            "subscription.delete": self._drop_subscription,
        }
        return {
            "session.end": partial(self._order, self._end_session),
            **{
                kind: partial(self._order, do, is_in_rows=True)
                for kind, do in about_holdings.items()
            },
            MISSED: self._sessions_missed,
            "pools.changed": self._pools_changed,
            "bans.changed": self._bans_changed,
            "owners.changed": self._owners_changed,
            AllocationStore.LEFT: self._owner_left,
        }

    def _order(
        self,
        do: Callable[[LiveSession, ControlPayload], None],
        payload: ControlPayload,
        is_in_rows: bool = False,
    ) -> None:
        """Carry out an order about a session, now or when it comes."""
        session = self._sessions.sessions.get(payload["session"])
        order = Order(payload.get(MESSAGE, 0), lambda one: do(one, payload), is_in_rows)
        if session is not None:
            order.carry_out(session)
        is_here = session is not None and session.state is not State.LEAVING
        if self._orders is not None and not is_here:
            self._orders.keep(payload["session"], order)

    def _end_session(self, session: LiveSession, payload: ControlPayload) -> None:
        may_return = payload.get("may_return", False)
        code = CloseCode.GOING_AWAY if may_return else CloseCode.REFUSED
        self._sessions.end(session, code, payload.get("reason") or "ended by the operator")

    def _sessions_missed(self, payload: ControlPayload) -> None:
        for session_id in payload["sessions"]:
            self._order(self._session_missed, {**payload, "session": session_id})

    def _session_missed(self, session: LiveSession, payload: ControlPayload) -> None:
        self._sessions.missed(session.id)

    def _drop_allocation(self, session: LiveSession, payload: ControlPayload) -> None:
        self._allocation.drop(payload["address"], session)
        session.withdrawn |= {payload["address"]}

    def _add_subscription(self, session: LiveSession, payload: ControlPayload) -> None:
        self._subscriptions.enter_subscription(payload["address"], session)

    def _drop_subscription(self, session: LiveSession, payload: ControlPayload) -> None:
        self._subscriptions.drop_subscription(payload["address"], session)

    def _pools_changed(self, payload: ControlPayload) -> None:
        self._allocation.use_pools(frozenset(payload["schemes"]))

    def _owner_left(self, payload: ControlPayload) -> None:
        self._owners.note(payload["addresses"], (payload["issuer"], payload["subject"]))

    def _owners_changed(self, payload: ControlPayload) -> asyncio.Future[Any]:
        self._owners.forget()
        return self._writer.submit(Call(lambda: AllocationStore.load_owners(self._owners)))

    def _bans_changed(self, payload: ControlPayload) -> asyncio.Future[Any]:
        loaded: list[BanList] = []

        def load() -> None:
            loaded[:] = [SessionStore.load_bans()]

        def apply_bans(done: asyncio.Future[Any]) -> None:
            if done.cancelled() or done.exception() is not None:
                return  # those before stay in force until it is tried again
            self._sessions.apply_bans(loaded[0])
            self._sockets.end_banned(CloseCode.REFUSED)

        loading = self._writer.submit(Call(load))
        loading.add_done_callback(apply_bans)
        return loading


# --- a worker that has lost its lease -------------------------------------------------------------
log = logging.getLogger(__name__)

KIND = "worker-fenced"
_RETRY = 0.5


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
            post_missed(missed)
            return
        except Exception as error:
            log.warning("The worker waits for the database to begin again: %s", error)
            time.sleep(_RETRY)
        finally:
            connections.close_all()
