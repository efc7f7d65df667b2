"""The way of messages to one other runtime: the node or a channel, in order and exactly once. Pure.

    node  ──channel opens──►  fencing  ──fenceAck──►  channel  ──lost──►  resuming  ──►  node
                                 └──no answer──►  node, tried once more

Rules
- A fence goes through the node behind all that went there before; its answer comes on the channel.
  Until then what is sent waits (fences.py).
- What went on the channel is kept until the other side says that it has delivered it. When the
  channel is lost, each side tells the other through the node how far it has come (`resume`) and
  takes nothing more from that channel; what had not arrived goes through the node, then what waits.
- If the other side no longer knows the epoch or does not answer, what was not acknowledged is lost,
  and said to be.
- Time is passed in; `due()` is when `tick()` is needed next.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Mapping
from typing import Any

from msgnode.runtime.python.messages import Message

from .fences import Fences
from .frames import BYES, BadFrame, Begun, Bytes, Data, Piece, Sign, read, sign, write
from .held import Held
from .incoming import Incoming
from .outlet import Outlet, Way
from .settings import P2PTimers
from .window import Item, Window

__all__ = ["Link", "Way"]
MAX_FAULTS = 10  # frames in a row that cannot be read
ACK_EVERY = 32  # messages


class Link:
    """Both directions to one other runtime, over all epochs of their channel."""

    def __init__(self, outlet: Outlet, timers: P2PTimers | None = None) -> None:
        self.way = Way.NODE
        self.epoch = ""
        self.is_open = False
        self.resent = 0
        self._bad = 0
        self._outlet = outlet
        self._timers = timers or P2PTimers()
        self._incoming = Incoming(outlet, self._timers.inbox, self._timers.inbox_size)
        self._due: dict[str, float] = {}
        self._held = Held(self._timers.held_size)
        self._window = Window(self._timers.window, self._timers.window_size)
        self._frames: deque[str | bytes] = deque()  # pieces that wait for room in the channel
        self._sent = 0
        self._fences = Fences()
        self._bad_in_a_row = 0
        self._ended: OrderedDict[str, int] = OrderedDict()  # epoch -> received

    @property
    def faults(self) -> int:
        """Frames that could not be read or came out of turn."""
        return self._bad + self._incoming.faults

    def is_quiet(self) -> bool:
        """Whether nothing waits: all that was sent has arrived, all that came was delivered."""
        waits = self._held or self._window or self._frames or self._incoming.has_waiting()
        return not waits and self.way in (Way.NODE, Way.CHANNEL)

    # --- sending ----------------------------------------------------------------------------------

    def send(self, message: Message, size: int, now: float, is_for_node: bool = False) -> None:
        """Send a message in its turn.

        Args:
            message: the message.
            size: of the message in characters, about.
            now: by the monotonic clock.
            is_for_node: it must go through the node, as an answer does whose request came there.
        """
        is_for_node = is_for_node or self._fences.is_at_node(message)
        if self.way is Way.NODE or (is_for_node and self.way is Way.CHANNEL and not self._held):
            self._outlet.to_node(message)
            return
        if self._held.add(Item(message, size, is_for_node)):
            self.pump(now)
        else:
            self._outlet.refuse(message, 503, "Too many messages wait for their way.")

    def pump(self, now: float) -> None:
        """Send what the channel and the window have room for."""
        while self.way is Way.CHANNEL:
            while self._frames and self._outlet.has_room():
                self._outlet.to_channel(self._frames.popleft())
            if not self.is_open or self._frames or not self._held:
                return  # a frame that the channel does not take ends it
            item = self._held.first
            is_for_node = item.is_for_node or self._fences.is_at_node(item.message)
            if not is_for_node and self._window.is_full(item):
                return
            self._held.take()
            if is_for_node:
                self._outlet.to_node(item.message)
                continue
            self._sent += 1
            item.seq = self._sent
            self._window.add(item)
            self._due["idle"] = now + self._timers.idle
            self._frames.extend(write(item.seq, item.message, self._riding_ack()))

    def _riding_ack(self) -> int:
        self._due.pop("ack", None)
        self._incoming.told = self._incoming.received
        return self._incoming.received

    # --- the channel ------------------------------------------------------------------------------

    def opened(self, epoch: str, now: float) -> None:
        """A channel is open; `epoch` is new with each."""
        self.abandon()
        self.epoch = epoch
        self.is_open = True
        self._incoming.begin()
        self._sent = self._bad_in_a_row = 0
        self._heard(now)
        self._due["idle"] = now + self._timers.idle
        if (early := self._fences.early(epoch)) is not None:
            self._outlet.to_channel(sign("fenceAck", early))
        self._fences.opened()
        self._begin_fence(now)

    def abandon(self) -> None:
        """Another channel comes: an older one whose end was never settled is given up."""
        if self.is_open:
            self._end_channel("closing")
        if self.way is not Way.NODE:
            self._give_up()

    def bye(self, reason: str, now: float) -> None:
        """Leave the channel in good order; everything goes through the node then."""
        if self.is_open:
            self._outlet.to_channel(sign("bye", reason))
            self.lost(reason, now)

    def lost(self, reason: str, now: float) -> None:
        """The channel is of no use any more."""
        if not self.is_open:
            return
        self._end_channel(reason)
        if self.way is not Way.NODE:
            self.way = Way.RESUMING
            self._due["resume"] = now + self._timers.resume
        said = {"epoch": self.epoch, "received": self._incoming.received}
        self._outlet.ask("resume", said | ({"bye": reason} if reason in BYES else {}))

    def _end_channel(self, reason: str) -> None:
        self.is_open = False
        self._incoming.drop()
        self._frames.clear()
        self._due.clear()
        self._ended[self.epoch] = self._incoming.received
        if len(self._ended) > self._timers.keep_epochs:
            self._ended.popitem(last=False)
        self._outlet.close(reason)

    # --- taking -----------------------------------------------------------------------------------

    def frame(self, text: object, now: float) -> None:
        """A frame came on the channel."""
        if not self.is_open:
            return
        self._heard(now)
        try:
            self._read(text, now)
            self._bad_in_a_row = 0
        except BadFrame:
            self._bad += 1
            self._bad_in_a_row += 1
            if self._bad_in_a_row >= MAX_FAULTS:
                self.lost("closing", now)

    def _read(self, text: object, now: float) -> None:
        frame = read(text)
        match frame:
            case Data() | Begun() | Piece():
                self._taken(frame, len(str(text)), now)
            case Bytes():
                self._added(self._incoming.add_content(frame), now)
            case Sign("ack", value):
                self._acknowledged(value, now)
            case Sign("fenceAck", value):
                self._fence_answered(value, now)
            case Sign("ping", value):
                self._outlet.to_channel(sign("pong", value))
            case Sign("bye", value):
                self.lost(value, now)
            case _:
                raise BadFrame("The frame is the field's.")

    def _taken(self, frame: Data | Begun | Piece, size: int, now: float) -> None:
        self._acknowledged(frame.ack, now)
        if not frame.seq:
            raise BadFrame("The message has no number.")
        self._due["idle"] = now + self._timers.idle
        self._added(self._incoming.add(frame, size), now)

    def _added(self, is_good: bool, now: float) -> None:
        self.proceed(now) if is_good else self.lost("closing", now)

    def proceed(self, now: float) -> None:
        """Deliver what came, as far as it can be decided."""
        self._incoming.deliver()
        waiting = self._incoming.received - self._incoming.told
        if not self.is_open or not waiting:
            return
        if waiting >= ACK_EVERY:
            self._outlet.to_channel(sign("ack", self._riding_ack()))
        else:
            self._due.setdefault("ack", now + self._timers.ack)

    def _acknowledged(self, upto: int, now: float) -> None:
        if upto and self._window.drop(min(upto, self._sent)):
            self.pump(now)

    # --- from the node to the channel -------------------------------------------------------------

    def fence_again(self, address: str, now: float) -> None:
        """Let nothing overtake what went to an address through the node while this was open."""
        if self.way in (Way.FENCING, Way.CHANNEL) and self._fences.add(address):
            self._begin_fence(now)

    def _begin_fence(self, now: float) -> None:
        self.way = Way.FENCING
        self._due["fence"] = now + self._timers.fence
        self._outlet.ask("fence", {"epoch": self.epoch, "k": self._fences.next()})

    def _fence_answered(self, k: int, now: float) -> None:
        if self.way is Way.FENCING and self._fences.is_current(k):
            self._fences.passed()
            self._to_channel(now)

    def _fence_due(self, now: float) -> None:
        is_tried_again = self._fences.failed()
        if self._fences.has_passed:
            self._to_channel(now)
            return
        self._all_to_node()
        if is_tried_again:
            self._due["refence"] = now + self._timers.refence
        else:
            self.lost("closing", now)

    def _to_channel(self, now: float) -> None:
        self._due.pop("fence", None)
        self.way = Way.CHANNEL
        self.pump(now)

    def fence_asked(self, epoch: str, k: int) -> bool:
        """The other side asks through the node; whether its epoch is known (else 410)."""
        if epoch == self.epoch and self.is_open:
            self._outlet.to_channel(sign("fenceAck", k))
            return True
        return epoch not in self._ended and self._fences.came_early(epoch, k)

    # --- from the channel to the node -------------------------------------------------------------

    def resume_asked(self, epoch: str, received: int, bye: object = None) -> int | None:
        """The other side has lost the channel, or left it with a `bye`, and got `received` of us.

        Returns:
            What has arrived here, for the answer; None if the epoch is unknown (410).
        """
        if epoch == self.epoch:
            if self.is_open:
                self._end_channel(bye if isinstance(bye, str) and bye in BYES else "closing")
            if self.way is not Way.NODE:
                self._settle(received)
        return self._ended.get(epoch)

    def answered(
        self, method: str, params: Mapping[str, Any], received: int | None, now: float
    ) -> None:
        """The answer to what was asked through the node; `received` is None for a refusal."""
        if params.get("epoch") != self.epoch:
            return
        if method == "fence":
            is_current = self.way is Way.FENCING and self._fences.is_current(params.get("k"))
            if received is None and is_current:
                self._fence_due(now)
        elif self.way is Way.RESUMING:
            if received is None:
                self._give_up()
            else:
                self._settle(received)

    def _settle(self, received: int) -> None:
        self._window.drop(received)
        self.resent += len(self._window)
        for message in self._window.take():
            self._outlet.to_node(message)
        self._all_to_node()

    def _give_up(self) -> None:
        text = "It was lost at switch-over: the other runtime does not say what it got."
        for message in self._window.take():
            self._outlet.refuse(message, 503, text)
        self._all_to_node()

    def _all_to_node(self) -> None:
        self.way = Way.NODE
        for name in ("fence", "resume"):
            self._due.pop(name, None)
        while self._held:
            self._outlet.to_node(self._held.take().message)

    # --- time -------------------------------------------------------------------------------------

    def due(self) -> float | None:
        """When `tick` is needed next; None if nothing is waited for."""
        return min(self._due.values(), default=None)

    def tick(self, now: float) -> None:
        """Do what is due."""
        for name in [name for name, at in self._due.items() if at <= now]:
            if self._due.get(name, now + 1) > now:
                continue  # what came before it has changed that
            del self._due[name]
            getattr(self, f"_{name}_due")(now)

    def _heard(self, now: float) -> None:
        self._due["ping"] = now + self._timers.ping
        self._due["dead"] = now + self._timers.dead

    def _ack_due(self, now: float) -> None:
        self._outlet.to_channel(sign("ack", self._riding_ack()))

    def _ping_due(self, now: float) -> None:
        self._due["ping"] = now + self._timers.ping
        self._outlet.to_channel(sign("ping", int(now * 1000)))

    def _dead_due(self, now: float) -> None:
        self.lost("silent", now)

    def _idle_due(self, now: float) -> None:
        self.bye("idle", now)

    def _refence_due(self, now: float) -> None:
        self._begin_fence(now)

    def _resume_due(self, now: float) -> None:
        self._give_up()
