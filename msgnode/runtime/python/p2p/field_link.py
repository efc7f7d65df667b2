"""The way of messages to a runtime whose stub is the field's: a channel without numbers. Pure.

    node  ──channel opens──►  channel  ──lost──►  node

Rules
- Nothing tells what has arrived, so there is no fence and no resume: a message on the channel may
  overtake one that is still at the node, and what was sent shortly before the end may be lost. Who
  sent it is told so.
- The answer to a request says that all before it has arrived, because a channel keeps the order.
- Requests go through the node: the field answers there, and the node delivers no answer to what it
  was not asked. So does what is longer than a frame may be.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, Protocol

from msgnode.runtime.python.messages import Message

from .frames import BadFrame, Begun, Bytes, Data, Sign, Text, Transfers, read, write_plain
from .link import Held, Item, Outlet, Way
from .settings import P2PTimers

MAX_FAULTS = 10  # frames in a row that cannot be read
MAX_FRAME = 65_536  # characters: at most 256 KiB, which is what browsers take
UNSURE = 30.0  # seconds before the end of a channel in which what was sent may be lost


class FieldOutlet(Outlet, Protocol):
    """What a link to the field does things through."""

    def is_awaited(self, message: Message) -> bool:
        """Whether somebody here waits for the answer to a message."""
        ...


class FieldLink:
    """Both directions of one channel."""

    resent = 0

    def __init__(self, outlet: FieldOutlet, timers: P2PTimers | None = None) -> None:
        self.way = Way.NODE
        self.epoch = ""
        self.is_open = False
        self.faults = 0
        self._outlet = outlet
        self._timers = timers or P2PTimers()
        self._idle_at: float | None = None
        self._sent = 0
        self._held = Held(self._timers.held_size)
        self._frames: deque[str | bytes] = deque()
        self._unsure: deque[tuple[float, Item]] = deque()
        self._unsure_size = 0
        self._inbox: deque[Message] = deque()
        self._inbox_size = 0  # characters that came since something waits in it
        self._transfers = Transfers()
        self._bad_in_a_row = 0

    def is_quiet(self) -> bool:
        """Whether nothing waits here."""
        return not (self._held or self._frames or self._inbox)

    # --- sending ----------------------------------------------------------------------------------

    def send(self, message: Message, size: int, now: float, is_for_node: bool = False) -> None:
        """Send a message; see `Link.send`."""
        is_long = size > MAX_FRAME
        if self.way is Way.NODE or is_for_node or is_long or self._outlet.is_awaited(message):
            self._outlet.to_node(message)
            return
        if self._held.add(Item(message, size)):
            self.pump(now)
        else:
            self._outlet.refuse(message, 503, "Too many messages wait for their way.")

    def pump(self, now: float) -> None:
        """Send what the channel has room for."""
        while self.way is Way.CHANNEL:
            while self._frames and self._outlet.has_room():
                self._outlet.to_channel(self._frames.popleft())
            if self._frames or not self._held:
                return
            item = self._held.take()
            self._sent += 1
            self._idle_at = now + self._timers.idle
            self._frames.extend(write_plain(f"m{self._sent % 10**11:011d}", item.message))
            self._unsure.append((now, item))
            self._unsure_size += item.size
            self._forget_before(now - UNSURE)

    def _forget_before(self, then: float) -> None:
        """What was sent so long ago, or before so much, has arrived or is not kept."""
        timers = self._timers
        while self._unsure and (
            self._unsure[0][0] < then
            or len(self._unsure) > timers.window
            or (self._unsure_size > timers.window_size and len(self._unsure) > 1)
        ):
            self._unsure_size -= self._unsure.popleft()[1].size

    # --- the channel ------------------------------------------------------------------------------

    def opened(self, epoch: str, now: float) -> None:
        """A channel is open."""
        self.abandon()
        self.epoch, self.is_open, self.way = epoch, True, Way.CHANNEL
        self._transfers = Transfers()
        self._bad_in_a_row = 0
        self._idle_at = now + self._timers.idle

    def abandon(self) -> None:
        """Another channel comes."""
        self._end("closing", None)

    def bye(self, reason: str, now: float) -> None:
        """Leave the channel: the field knows no frame that says so."""
        self.lost(reason, now)

    def lost(self, reason: str, now: float) -> None:
        """The channel is of no use any more."""
        self._end(reason, now)

    def _end(self, reason: str, now: float | None) -> None:
        if not self.is_open:
            return
        self.is_open, self.way, self._idle_at = False, Way.NODE, None
        self._inbox.clear()
        self._inbox_size = 0
        self._frames.clear()
        self._transfers = Transfers()
        self._outlet.close(reason)
        if now is not None:
            self._forget_before(now - UNSURE)
        unsure = [item.message for _, item in self._unsure]
        self._unsure.clear()
        self._unsure_size = 0
        for message in unsure:
            self._outlet.refuse(message, 503, "It may be lost: its channel has ended.")
        while self._held:
            self._outlet.to_node(self._held.take().message)

    # --- taking -----------------------------------------------------------------------------------

    def frame(self, text: object, now: float) -> None:
        """A frame came on the channel."""
        if not self.is_open:
            return
        if self._inbox:
            self._inbox_size += len(text) if isinstance(text, (str, bytes)) else 0
        try:
            message = self._read(text, now)
            self._bad_in_a_row = 0
        except BadFrame:
            self.faults += 1
            self._bad_in_a_row += 1
            if self._bad_in_a_row >= MAX_FAULTS:
                self.lost("closing", now)
            return
        if message is None:
            return
        self._idle_at = now + self._timers.idle
        self._inbox.append(message)
        if len(self._inbox) > self._timers.inbox or self._inbox_size > self._timers.inbox_size:
            self.lost("closing", now)
        else:
            self.proceed(now)

    def _read(self, text: object, now: float) -> Message | None:
        match read(text):
            case Data(message=message):
                self._arrived_before(message)
                return message
            case Begun() as begun:
                self._transfers.begin(begun)
            case Text() | Bytes() as piece:
                return self._transfers.add(piece)
            case Sign("bye", reason):
                self.lost(str(reason), now)
            case Sign():
                pass
            case _:
                raise BadFrame("The frame is none of the field's.")
        return None

    def _arrived_before(self, answer: Message) -> None:
        """An answer came: its request has arrived, and all that was sent before."""
        if answer.get("type") != "response":
            return
        key = (answer.get("to"), str(answer.get("id")))
        for index, (_, item) in enumerate(self._unsure):
            if (item.message["from"], str(item.message.get("id"))) == key:
                for _ in range(index + 1):
                    self._unsure_size -= self._unsure.popleft()[1].size
                return

    def proceed(self, now: float) -> None:
        """Deliver what came, as far as it can be decided."""
        while self._inbox and self.is_open:
            if not self._outlet.take(self._inbox[0]):
                return
            if self._inbox:  # delivering it did not end the channel
                self._inbox.popleft()
        self._inbox_size = 0

    # --- what the field does not know -------------------------------------------------------------

    def fence_asked(self, epoch: str, k: int) -> bool:
        """There is no fence."""
        return False

    def resume_asked(self, epoch: str, received: int, bye: object = None) -> int | None:
        """Nor a resume."""
        return None

    def answered(
        self, method: str, params: Mapping[str, Any], received: int | None, now: float
    ) -> None:
        """An answer to what an older link has asked."""

    # --- time -------------------------------------------------------------------------------------

    def due(self) -> float | None:
        """When `tick` is needed next."""
        return self._idle_at

    def tick(self, now: float) -> None:
        """Do what is due."""
        if self._idle_at is not None and self._idle_at <= now:
            self.bye("idle", now)
