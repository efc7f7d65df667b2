"""Deliberate bugs: what the simulation has to find. Each replaces something of the product."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from .world import wall_clock


def _answers_do_not_wait() -> None:
    """An answer never waits for other workers."""
    from msgnode.workers.own_names import OwnNames
    from msgnode.workers.transport import LinkTransport

    LinkTransport.heard = LinkTransport.barrier = lambda self: None  # type: ignore
    OwnNames.findable = lambda self, *_: None  # type: ignore[method-assign,assignment]


def _slow_readers_hold_nobody() -> None:
    """A reader that lags holds nobody back."""
    from msgnode.sessions.connection import Connection

    Connection.wait_for = lambda self, reader: None  # type: ignore[method-assign]


def _acknowledged_beside_the_link() -> None:
    """The giver of a session does not wait for what is under way to it."""
    from msgnode.workers.handover import Handover

    send = Handover._send

    async def hasty(self: Any, session_id: str, other: Any) -> None:
        heard, self._transport.heard = self._transport.heard, lambda: None
        try:
            await send(self, session_id, other)
        finally:
            self._transport.heard = heard

    Handover._send = hasty  # type: ignore[method-assign]


def _lease_by_the_wall_clock() -> None:
    """A lease is compared with a clock that may be set."""
    from msgnode.workers import lease

    lease.now = wall_clock


def _renewed_when_answered() -> None:
    """A lease counts from when its renewal was answered, not from when it was sent."""
    from msgnode.workers.lease import Lease

    answered = Lease._answered

    def late(self: Any, sent: float, asked: Any) -> None:
        from msgnode.workers import lease

        answered(self, lease.now(), asked)

    Lease._answered = late  # type: ignore[method-assign]


def _lease_does_not_run_out() -> None:
    """A worker that cannot reach the database goes on when its lease has ended."""
    from msgnode.workers.lease import Lease, now

    async def goes_on(self: Any) -> None:
        self._hold_until(now() + self.seconds)
        self._go_on()

    Lease._decide = goes_on  # type: ignore[method-assign]


def _not_fenced() -> None:
    """Writes of a retired epoch are taken."""
    from msgnode.storage.fence import Fence

    Fence.check = lambda self: None  # type: ignore[method-assign]


def _gap_is_lost() -> None:
    """A session that misses something is not told."""
    from msgnode.sessions.manager import SessionManager

    SessionManager.missed = lambda self, *_: None  # type: ignore[method-assign,assignment]


def _sent_again_out_of_order() -> None:
    """A batch that comes behind a lost one is taken at once, and the lost one when it comes."""
    from msgnode.workers.window import ReceiveWindow

    takes = ReceiveWindow.takes

    def any_order(self: Any, stream: int, number: int) -> bool:
        return takes(self, stream, number) or stream == self.stream

    ReceiveWindow.takes = any_order  # type: ignore[method-assign]


def _told_before_the_commit() -> None:
    """What a runtime has asked for is done and told before it is committed."""
    from msgnode.storage.writer import GroupWriter

    submit = GroupWriter.submit

    def at_once(self: Any, *changes: Any, result: Any = None) -> Any:
        submit(self, *changes, result=result)
        done = asyncio.get_running_loop().create_future()
        done.set_result(result)
        return done

    GroupWriter.submit = at_once  # type: ignore[method-assign]


def _orders_are_not_kept() -> None:
    """An order about a session that is on its way, or whose worker is dead, is forgotten."""
    from msgnode.workers.orders import Orders

    Orders.keep = lambda self, *_: None  # type: ignore[method-assign,assignment]


def _bans_are_not_looked_at() -> None:
    """A session that has come is not compared with the bans."""
    from msgnode.workers.orders import ArrivalChecks

    ArrivalChecks._look_at_bans = lambda self, _: None  # type: ignore[method-assign,assignment]


def _queue_is_left() -> None:
    """A session that moves leaves behind what waits for it."""
    from msgnode.workers.moving_sessions import MovingSessions

    MovingSessions.next_frame = lambda self, _: None  # type: ignore[method-assign,assignment]


def _counts_are_added() -> None:
    """What another worker has counted is added whenever it says so."""
    from msgnode.core.rates import Counter

    def added(self: Any, worker: str, number: int, count: int, before: int) -> None:
        self.present += count

    Counter.hear = added  # type: ignore[method-assign]


def _ban_is_not_told_to_one() -> None:
    """One worker does not hear that somebody was banned."""
    from msgnode.workers.control_handlers import ControlHandlers

    from .world import Machine

    changed = ControlHandlers._bans_changed

    def heard(self: Any, payload: Any) -> Any:
        assert Machine.current is not None
        if Machine.current.pid % 2:
            return changed(self, payload)
        done = Machine.current.create_future()
        done.set_result(None)
        return done

    ControlHandlers._bans_changed = heard  # type: ignore[method-assign]


# --- between domains ------------------------------------------------------------------------------
def _claim_of_peers_is_not_looked_at() -> None:
    """Each worker serves every peer."""
    from msgnode.federation import store

    store.take_claims = lambda epoch, rows, at_most: {row.pk for row in rows}


def _batch_of_peer_is_taken_twice() -> None:
    """What was not acknowledged is sent and carried again, though the other node has it."""
    from msgnode.federation.link_protocol import Inbox, Outbox

    take = Inbox.take

    def again(self: Any, text: bytes, batch: Any) -> Any:
        return take(self, text, batch) or batch.items

    Inbox.take = again  # type: ignore[method-assign]
    Outbox.again = lambda self, received: [  # type: ignore[method-assign]
        each.text for each in self._sent
    ]


def _lost_batch_of_peer_is_not_sent_again() -> None:
    """What was under way on a socket that is lost counts as received."""
    from msgnode.federation.link_protocol import Inbox, Outbox

    def nothing(self: Any, received: int) -> list[bytes]:
        self._sent.clear()
        self._in_flight = 0
        return []

    take = Inbox.take

    def any_number(self: Any, text: bytes, batch: Any) -> Any:
        self.received = max(self.received, batch.seq - 1)
        return take(self, text, batch)

    Outbox.again = nothing  # type: ignore[method-assign]
    Inbox.take = any_number  # type: ignore[method-assign]


def _new_life_of_peer_is_not_noticed() -> None:
    """What was under way to a worker of a peer that is no more is waited for."""
    from msgnode.federation.linked_peer import LinkedPeer

    opened = LinkedPeer.opened
    LinkedPeer.opened = lambda self, is_new: opened(self, False)  # type: ignore[method-assign]


def _observers_of_peer_are_not_told() -> None:
    """Who observes something of another domain is not told that it may have missed something."""
    from msgnode.federation.observers import Observers

    Observers.missed = lambda self, *_: None  # type: ignore[method-assign]


def _stored_messages_are_forgotten() -> None:
    """Who takes over a peer does not look for what is stored for it."""
    from msgnode.federation import stored_messages

    stored_messages._stored_rows = lambda *_: []


def _paused_peer_goes_on() -> None:
    """A peer that an operator pauses while it is served goes on."""
    from msgnode.federation.store import PeerRow

    PeerRow.is_served = property(lambda self: self.is_approved or self.decision == "paused")  # type: ignore[assignment, method-assign]


def _requests_of_dead_stub_are_waited_for() -> None:
    """What a stub had taken is not answered when its sandbox ends."""
    from msgnode.federation.exchange import PeerExchange

    PeerExchange.fail_asked = PeerExchange.send_again  # type: ignore[method-assign]


def _new_session_at_peer_is_not_noticed() -> None:
    """What was subscribed at a peer is not again in a new session there."""
    from msgnode.federation.peer import PeerLink

    PeerLink._begin_at_peer = lambda self: None  # type: ignore[method-assign]


def _silence_of_peer_is_not_noticed() -> None:
    """A socket to a peer on which nothing is heard any more is kept."""
    from msgnode.federation import link_socket

    link_socket.SILENCE_SECONDS = 1e6


def _claims_of_the_dead_are_left() -> None:
    """Nobody takes what only one worker serves, and that has died."""
    from msgnode import models
    from msgnode.storage import claims

    take = claims.take

    def if_free(name: str, epoch: str) -> bool:
        row = models.WorkerClaim.objects.filter(name=name).exclude(epoch="").first()
        return take(name, epoch) if row is None else row.epoch == epoch

    claims.take = if_free


# --- towards devices ------------------------------------------------------------------------------
def _webhook_is_not_set_again() -> None:
    """Who takes over a session does not look for its webhook."""
    from msgnode.devices.outlet_store import OutletRecovery

    OutletRecovery.arrived = lambda self, _: None  # type: ignore[method-assign,assignment]


def _posted_again_under_another_id() -> None:
    """What is posted again has another id, so that the receiver cannot know it."""
    import uuid

    from msgnode.devices import webhook

    post = webhook.post
    webhook.post = lambda http, target, _, body: post(http, target, uuid.uuid4().hex, body)


def _fetched_is_not_noticed() -> None:
    """A phone that was woken counts as woken for ever."""
    from msgnode.devices.push import PushWakeups

    PushWakeups._reads = lambda self, _: ("", 0)  # type: ignore[method-assign,assignment]


def _unacknowledged_frames_are_forgotten() -> None:
    """What the broker has not acknowledged when it is lost is not published again."""
    from msgnode.devices.mqtt.link import BrokerLink

    give_back = BrokerLink.give_back

    def forgotten(self: Any) -> list[bytes]:
        self._unacknowledged.clear()
        return give_back(self)

    BrokerLink.give_back = forgotten  # type: ignore[method-assign]


ABROAD, BY_LINKS = "several domains", "domains with links"
SERVER, PHONE, LAMP = "a network server", "a phone", "a lamp"

MUTANTS: dict[str, tuple[Callable[[], None], set[str]]] = {
    each.__name__.strip("_").replace("_", " "): (each, needs)
    for each, needs in (
        (_answers_do_not_wait, set()),
        (_slow_readers_hold_nobody, {"runtime does not read"}),
        (_acknowledged_beside_the_link, {"worker is far off", "runtime comes twice"}),
        (_lease_by_the_wall_clock, {"clock jumps"}),
        (_renewed_when_answered, {"database is slow", "freeze"}),
        (_lease_does_not_run_out, {"database cut"}),
        (_not_fenced, {"database is slow", "freeze"}),
        (_gap_is_lost, set()),
        (_sent_again_out_of_order, set()),
        (_told_before_the_commit, set()),
        (_queue_is_left, {"stop"}),
        (_orders_are_not_kept, {"session is ended"}),
        (_bans_are_not_looked_at, {"runtime is banned"}),
        (_counts_are_added, set()),
        (_ban_is_not_told_to_one, {"runtime is banned"}),
        (_claim_of_peers_is_not_looked_at, {ABROAD}),
        (_batch_of_peer_is_taken_twice, {BY_LINKS, "sockets of domains are lost"}),
        (_lost_batch_of_peer_is_not_sent_again, {BY_LINKS, "sockets of domains are lost"}),
        (_new_life_of_peer_is_not_noticed, {BY_LINKS, "kill"}),
        (_observers_of_peer_are_not_told, {BY_LINKS, "kill"}),
        (_stored_messages_are_forgotten, {"domains are unreachable", "serving worker is killed"}),
        (_paused_peer_goes_on, {"peers are paused"}),
        (_requests_of_dead_stub_are_waited_for, {"stubs are slow", "stubs die"}),
        (_new_session_at_peer_is_not_noticed, {"stubs die"}),
        (_silence_of_peer_is_not_noticed, {BY_LINKS, "sockets of domains are half open"}),
        (_claims_of_the_dead_are_left, {BY_LINKS, "kill"}),
        (_webhook_is_not_set_again, {SERVER, "kill"}),
        (_posted_again_under_another_id, {SERVER, "answers of server are lost"}),
        (_fetched_is_not_noticed, {PHONE}),
        (_unacknowledged_frames_are_forgotten, {LAMP, "server is away"}),
    )
}
"""Each with the faults that it needs to show."""
