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
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from msgnode.runtime.python.messages import Message

from .frames import (
    BYES,
    BadFrame,
    Begun,
    Bytes,
    Data,
    Piece,
    Sign,
    Transfer,
    join,
    read,
    sign,
    write,
)
from .settings import P2PTimers

# What a link does things through, the channel, the node and the bus; and which way it takes.


class Way(StrEnum):
    """Where what is sent goes."""

    NODE = "node"
    FENCING = "fencing"
    CHANNEL = "channel"
    RESUMING = "resuming"


class Outlet(Protocol):
    """What a link does things through."""

    def to_channel(self, frame: str | bytes) -> None:
        """Hand a frame to the channel; one that has closed takes it without a word."""
        ...

    def has_room(self) -> bool:
        """Whether the channel's buffer takes another frame."""
        ...

    def to_node(self, message: Message) -> None:
        """Send a message through the node."""
        ...

    def ask(self, method: str, params: dict[str, Any]) -> None:
        """Ask the other stub through the node; the answer comes to `Link.answered`."""
        ...

    def take(self, message: Message) -> bool:
        """Deliver a message of the channel; False if it cannot be decided yet (`Link.proceed`)."""
        ...

    def refuse(self, message: Message, code: int, text: str) -> None:
        """Tell the sender that his message does not go out; or say that there is a gap."""
        ...

    def close(self, reason: str) -> None:
        """Close the channel."""
        ...


# What was sent on a channel and is not acknowledged yet: bounded in number and size. Pure.


@dataclass(slots=True)
class Item:
    """A message on its way; `is_for_node` is one that must not take the channel."""

    message: Message
    size: int
    is_for_node: bool = False
    seq: int = 0


class Window:
    """The messages of one direction, oldest first."""

    def __init__(self, most: int, most_size: int) -> None:
        self._most = most
        self._most_size = most_size
        self._items: deque[Item] = deque()
        self._size = 0

    def __len__(self) -> int:
        return len(self._items)

    def is_full(self, item: Item) -> bool:
        """Whether there is no room for this one; an empty window has room for any."""
        is_long = self._size + item.size > self._most_size
        return bool(self._items) and (is_long or len(self._items) >= self._most)

    def add(self, item: Item) -> None:
        """Keep a message that was sent."""
        self._items.append(item)
        self._size += item.size

    def drop(self, upto: int) -> bool:
        """Keep no longer what has arrived, up to this number; whether there was anything."""
        is_any = False
        while self._items and self._items[0].seq <= upto:
            self._size -= self._items.popleft().size
            is_any = True
        return is_any

    def take(self) -> list[Message]:
        """Everything that is left; it is kept no longer."""
        messages = [item.message for item in self._items]
        self._items.clear()
        self._size = 0
        return messages


# The messages that wait for their way: in order, and bounded in size. Pure.


class Held:
    """The messages of one direction, oldest first."""

    def __init__(self, most_size: int) -> None:
        self._most_size = most_size
        self._items: deque[Item] = deque()
        self._size = 0

    def __len__(self) -> int:
        return len(self._items)

    @property
    def first(self) -> Item:
        """The oldest one."""
        return self._items[0]

    def add(self, item: Item) -> bool:
        """Have a message wait; False if there is no room for it."""
        if self._size + item.size > self._most_size:
            return False
        self._items.append(item)
        self._size += item.size
        return True

    def take(self) -> Item:
        """The oldest one; it waits no longer."""
        item = self._items.popleft()
        self._size -= item.size
        return item


# What comes on a channel: numbered, put together from pieces, delivered in order. Pure.
#
# Rules
# - A message counts as received when it was delivered, not when it came: what still waits for a
#   check
#   when the channel ends is sent again by the other side.
# - A message that came before is dropped. One that skips others ends the channel, since a channel
#   neither loses nor swaps: the other side has lost count.


class Incoming:
    """One direction of one channel after the other."""

    def __init__(self, outlet: Outlet, limit: int, most_size: int) -> None:
        self.received = 0  # the last message that was delivered here
        self.told = 0  # the last one that was acknowledged
        self.faults = 0
        self._outlet = outlet
        self._limit = limit
        self._most_size = most_size
        self._seen = 0
        self._inbox: deque[tuple[int, Message, int]] = deque()  # with the characters of each
        self._size = 0  # of all of them
        self._begun_size = 0  # of the one that is coming
        self._pieces: list[str] = []
        self._transfer: tuple[Begun, Transfer] | None = None  # of the message that comes next

    def begin(self) -> None:
        """A new channel: numbers start again."""
        self.received = self.told = self._seen = 0
        self.drop()

    def drop(self) -> None:
        """Take nothing more of what came and was not delivered."""
        self._inbox.clear()
        self._pieces.clear()
        self._transfer = None
        self._size = self._begun_size = 0

    def has_waiting(self) -> bool:
        """Whether something came that is not delivered yet."""
        return bool(self._inbox)

    def add(self, frame: Data | Begun | Piece, size: int) -> bool:
        """Take a frame of so many characters.

        Returns:
            False if the channel has to end.

        Raises:
            BadFrame: the frame, or what it completes, cannot be read.
        """
        if self._transfer is not None:
            self.faults += 1
            return False  # a content comes in one go
        if frame.seq != self._seen + 1:
            self.faults += 1
            return frame.seq <= self._seen
        if isinstance(frame, Data):
            self._begun_size = size
            return self._arrived(frame.seq, frame.message)
        if isinstance(frame, Begun):
            self._begun_size = size + frame.size
            self._transfer = frame, Transfer(frame)
            return True
        if frame.index != len(self._pieces):
            self.faults += 1
            return frame.index < len(self._pieces)
        self._begun_size = size if not frame.index else self._begun_size + size
        self._pieces.append(frame.text)
        if len(self._pieces) < frame.count:
            return True
        pieces, self._pieces = self._pieces, []
        return self._arrived(frame.seq, join(pieces))

    def add_content(self, frame: Bytes) -> bool:
        """Take a piece of a content. Returns False if the channel has to end. Raises BadFrame."""
        if self._transfer is None or self._transfer[0].uuid != frame.uuid:
            raise BadFrame("No content of this uuid is under way.")
        begun, transfer = self._transfer
        if transfer.add(frame):
            self._transfer = None
            return self._arrived(begun.seq, transfer.message())
        if (progress := transfer.progress()) is not None:
            self._outlet.take(progress)
        return True

    def _arrived(self, seq: int, message: Message) -> bool:
        self._seen = seq
        self._pieces.clear()
        self._inbox.append((seq, message, self._begun_size))
        self._size += self._begun_size
        # Neither is more than the other side may have under way.
        return len(self._inbox) <= self._limit and self._size <= self._most_size

    def deliver(self) -> None:
        """Deliver what came, as far as it can be decided."""
        while self._inbox:
            seq, message, size = self._inbox[0]
            if not self._outlet.take(message):
                return
            if self._inbox and self._inbox[0][0] == seq:  # delivering it did not end the channel
                self._inbox.popleft()
                self._size -= size
                self.received = seq


# The fences of one channel, so that nothing on it overtakes what is still at the node. Pure.
#
# Rules
# - The first one is for all that went through the node before the channel was open. If it is not
#   answered everything goes on through the node, and it is tried once more.
# - Where the channel is in use, and messages went through the node to an address of which nobody
#   knew
#   that it is at the other side, another one is for that address. If it is not answered the address
#   stays with the node as long as the channel is open.


TRIES = 2  # of the first one, for one channel


class Fences:
    """Their numbers, and what became of them."""

    def __init__(self) -> None:
        self.has_passed = False
        self._number = 0
        self._failures = 0
        self._early = ("", 0)
        self._waiting: set[str] = set()  # addresses
        self._at_node: set[str] = set()

    def opened(self) -> None:
        """There is a new channel, with the first fence to come."""
        self.has_passed = False
        self._failures = 0
        self._waiting.clear()
        self._at_node.clear()

    def next(self) -> int:
        """The number of a fence that takes the place of those before."""
        self._number += 1
        return self._number

    def is_current(self, number: object) -> bool:
        """Whether it is the last one."""
        return number == self._number

    def add(self, address: str) -> bool:
        """Another fence is for this address too; False if it stays with the node anyway."""
        if address in self._at_node:
            return False
        self._waiting.add(address)
        return True

    def passed(self) -> None:
        """The last one was answered, behind all that went before it."""
        self.has_passed = True
        self._waiting.clear()

    def failed(self) -> bool:
        """The last one was not answered; whether the first is to be tried again."""
        if self.has_passed:
            self._at_node |= self._waiting
        else:
            self._failures += 1
        self._waiting.clear()
        return self._failures < TRIES

    def is_at_node(self, message: Message) -> bool:
        """Whether a message stays with the node, for the sake of those before it."""
        return message.get("to") in self._at_node and message.get("type") != "response"

    def came_early(self, epoch: str, number: int) -> bool:
        """One came through the node whose channel is not open here yet; True."""
        self._early = epoch, number
        return True

    def early(self, epoch: str) -> int | None:
        """The number of the one that came before this channel was open."""
        return self._early[1] if self._early[0] == epoch else None


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
