"""The way of messages to a runtime whose stub is the field's: a channel without numbers. Pure.

    node  ──channel opens──►  channel  ──lost──►  node

It follows docs/reference/p2p.md, rows 9-11.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

from msgnode.runtime.python.messages import Message, body_of

from .frames import BadFrame, Begun, Bytes, Data, Frame, Sign, Text, Transfers, read, write_plain
from .link import MAX_FAULTS, Inbox, Item, Outlet, SizedQueue, Way
from .settings import P2PTimers

MAX_FRAME = 65_536  # characters: at most 256 KiB, which is what browsers take
UNSURE = 30.0  # seconds before the end of a channel in which what was sent may be lost


class FieldLink:
    """Both directions of one channel."""

    resent = 0

    def __init__(self, outlet: Outlet, timers: P2PTimers | None = None) -> None:
        self.way = Way.NODE
        self.epoch = ""
        self.is_open = False
        self.faults = 0
        self._outlet = outlet
        self._timers = timers or P2PTimers()
        self._idle_at: float | None = None
        self._sent = 0
        self._held = SizedQueue(self._timers.held_size)
        self._frames: deque[str | bytes] = deque()
        self._unsure = SizedQueue(self._timers.window_size, self._timers.window)
        self._inbox = Inbox(outlet, self._timers)
        self._transfers = Transfers()
        self._bad_in_a_row = 0

    @property
    def unacknowledged(self) -> int:
        """Messages that may be lost if the channel ends now."""
        return len(self._unsure)

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
        if not self._held.has_room_for(size):
            self._outlet.refuse(message, 503, "Too many messages wait for their way.")
            return
        self._held.push(Item(message, size))
        self.pump(now)

    def pump(self, now: float) -> None:
        """Send what the channel has room for."""
        while self.way is Way.CHANNEL:
            while self._frames and self._outlet.has_room():
                self._outlet.to_channel(self._frames.popleft())
            if self._frames or not self._held:
                return
            item = self._held.shift()
            self._sent += 1
            self._idle_at = now + self._timers.idle
            self._frames.extend(write_plain(f"m{self._sent % 10**11:011d}", item.message))
            item.at = now
            self._unsure.push(item)
            self._forget_before(now - UNSURE)

    def _forget_before(self, then: float) -> None:
        """What was sent so long ago, or before so much, has arrived or is not kept."""
        unsure = self._unsure
        while unsure and (unsure[0].at < then or (unsure.is_overfull() and len(unsure) > 1)):
            unsure.shift()

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
        self._frames.clear()
        self._transfers = Transfers()
        self._outlet.close(reason)
        if now is not None:
            self._forget_before(now - UNSURE)
        for item in self._unsure.take_all():
            self._outlet.refuse(item.message, 503, "It may be lost: its channel has ended.")
        while self._held:
            self._outlet.to_node(self._held.shift().message)

    # --- taking -----------------------------------------------------------------------------------

    def frame(self, text: object, now: float) -> None:
        """A frame came on the channel."""
        if not self.is_open:
            return
        try:
            frame = read(text)
            message = self._read(frame, now)
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
        value = body_of(message).get("value")
        content = value.get("content") if isinstance(value, dict) else None
        content = text if isinstance(frame, Data) else content
        size = len(content) if isinstance(content, (str, bytes)) else 0
        if self._inbox.add(Item(message, size)):
            self.proceed(now)
        else:
            self.lost("closing", now)

    def _read(self, frame: Frame, now: float) -> Message | None:
        match frame:
            case Data(message=message):
                self._arrived_before(message)
                return message
            case Begun():
                self._transfers.begin(frame)
            case Text() | Bytes():
                return self._transfers.add(frame)
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
        for index, item in enumerate(self._unsure):
            if (item.message["from"], str(item.message.get("id"))) == key:
                for _ in range(index + 1):
                    self._unsure.shift()
                return

    def proceed(self, now: float) -> None:
        """Deliver what came, as far as it can be decided."""
        self._inbox.deliver()

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
