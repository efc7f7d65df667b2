"""The way of messages to one other runtime: the node or a channel, in order and exactly once. Pure.

    node  ──channel opens──►  fencing  ──fenceAck──►  channel  ──lost──►  resuming  ──►  node
                                 └──no answer──►  node, tried once more

It follows docs/reference/p2p.md, rows 1-8. Time is passed in; `due()` is when `tick()` is needed.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
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

MAX_FAULTS = 10  # frames in a row that cannot be read
ACK_EVERY = 32  # messages
FENCE_TRIES = 2  # of the first one, for one channel


class Way(StrEnum):
    """Where what is sent goes."""

    NODE = "node"
    FENCING = "fencing"
    CHANNEL = "channel"
    RESUMING = "resuming"


class Outlet(Protocol):
    """What a link does things through: the channel, the node and the bus."""

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

    def is_awaited(self, message: Message) -> bool:
        """Whether somebody here waits for the answer to a message; a link to the field asks."""
        ...

    def close(self, reason: str) -> None:
        """Close the channel."""
        ...


@dataclass(slots=True)
class Item:
    """A message on its way; `is_for_node` is one that must not take the channel."""

    message: Message
    size: int
    is_for_node: bool = False
    seq: int = 0
    at: float = 0.0


class SizedQueue(deque[Item]):
    """Items, oldest first, bounded in number and in size."""

    def __init__(self, most_size: int, most: float = float("inf")) -> None:
        super().__init__()
        self._most_size = most_size
        self._most = most
        self._size = 0

    def has_room_for(self, size: int) -> bool:
        """Whether there is room for one of this size besides."""
        return len(self) < self._most and self._size + size <= self._most_size

    def is_overfull(self) -> bool:
        """Whether there is more than there may be."""
        return len(self) > self._most or self._size > self._most_size

    def push(self, item: Item) -> None:
        """Put an item behind the others."""
        self.append(item)
        self._size += item.size

    def shift(self) -> Item:
        """Take the oldest item out."""
        item = self.popleft()
        self._size -= item.size
        return item

    def take_all(self) -> list[Item]:
        """Take everything out, the oldest first."""
        items = list(self)
        self.clear()
        self._size = 0
        return items


class Inbox:
    """What came on a channel and waits for a check."""

    def __init__(self, outlet: Outlet, timers: P2PTimers) -> None:
        self._outlet = outlet
        self._items = SizedQueue(timers.inbox_size, timers.inbox)

    def __len__(self) -> int:
        return len(self._items)

    def add(self, item: Item) -> bool:
        """Take an item; whether no more waits than the other side may have under way."""
        self._items.push(item)
        return not self._items.is_overfull()

    def deliver(self, delivered: Callable[[Item], None] = lambda item: None) -> None:
        """Deliver what came, as far as it can be decided; `delivered` is told of each item."""
        while self._items:
            item = self._items[0]
            if not self._outlet.take(item.message):
                return
            if not self._items or self._items[0] is not item:
                return  # delivering it ended the channel
            delivered(self._items.shift())

    def clear(self) -> None:
        """Take nothing more of what came and was not delivered."""
        self._items.take_all()


class Incoming:
    """What comes on a channel: numbered, put together from pieces, delivered in order."""

    def __init__(self, outlet: Outlet, timers: P2PTimers) -> None:
        self.received = 0  # the last message that was delivered here
        self.told = 0  # the last one that was acknowledged
        self.faults = 0
        self._outlet = outlet
        self._inbox = Inbox(outlet, timers)
        self._seen = 0
        self._begun_size = 0  # of the message that is coming
        self._pieces: list[str] = []
        self._content: tuple[Begun, Transfer] | None = None  # of it

    def begin(self) -> None:
        """A new channel: numbers start again."""
        self.received = self.told = self._seen = 0
        self.drop()

    def drop(self) -> None:
        """Take nothing more of what came and was not delivered."""
        self._inbox.clear()
        self._pieces.clear()
        self._content = None

    def has_waiting(self) -> bool:
        """Whether something came that is not delivered yet."""
        return bool(self._inbox)

    def add(self, frame: Data | Begun | Piece, size: int) -> bool:
        """Take a frame of so many characters; False if the channel has to end. Raises BadFrame."""
        if self._content is not None:
            return self._fault(False)  # a content comes in one go
        if frame.seq != self._seen + 1:
            return self._fault(frame.seq <= self._seen)
        if isinstance(frame, Data):
            return self._arrived(frame.seq, frame.message, size)
        if isinstance(frame, Begun):
            self._begun_size = size + frame.size
            self._content = frame, Transfer(frame)
            return True
        if frame.index != len(self._pieces):
            return self._fault(frame.index < len(self._pieces))
        self._begun_size = size if not frame.index else self._begun_size + size
        self._pieces.append(frame.text)
        if len(self._pieces) < frame.count:
            return True
        pieces, self._pieces = self._pieces, []
        return self._arrived(frame.seq, join(pieces), self._begun_size)

    def add_content(self, frame: Bytes) -> bool:
        """Take a piece of a content; False if the channel has to end. Raises BadFrame."""
        if self._content is None or self._content[0].uuid != frame.uuid:
            raise BadFrame("No content of this uuid is under way.")
        begun, transfer = self._content
        if transfer.add(frame):
            self._content = None
            return self._arrived(begun.seq, transfer.message(), self._begun_size)
        if (progress := transfer.progress()) is not None:
            self._outlet.take(progress)
        return True

    def deliver(self) -> None:
        """Deliver what came, as far as it can be decided."""
        self._inbox.deliver(self._delivered)

    def _delivered(self, item: Item) -> None:
        self.received = item.seq

    def _fault(self, is_good: bool) -> bool:
        self.faults += 1
        return is_good

    def _arrived(self, seq: int, message: Message, size: int) -> bool:
        self._seen = seq
        self._pieces.clear()
        return self._inbox.add(Item(message, size, seq=seq))


class Fences:
    """The fences of one channel: their numbers, and what became of them."""

    def __init__(self) -> None:
        self.has_passed = False
        self._number = 0
        self._failures = 0
        self._early = ("", 0)  # one that came before its channel was open here
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
        return self._failures < FENCE_TRIES

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
        self._incoming = Incoming(outlet, self._timers)
        self._due: dict[str, float] = {}
        self._held = SizedQueue(self._timers.held_size)
        self._window = SizedQueue(self._timers.window_size, self._timers.window)
        self._frames: deque[str | bytes] = deque()  # pieces that wait for room in the channel
        self._sent = 0
        self._fences = Fences()
        self._bad_in_a_row = 0
        self._ended: OrderedDict[str, int] = OrderedDict()  # epoch -> received

    @property
    def faults(self) -> int:
        """Frames that could not be read or came out of turn."""
        return self._bad + self._incoming.faults

    @property
    def ended_epochs(self) -> int:
        """Epochs that a late resume can still ask for."""
        return len(self._ended)

    @property
    def unacknowledged(self) -> int:
        """Messages that were sent and are not acknowledged."""
        return len(self._window)

    def has_waiting(self) -> bool:
        """Whether something came that waits for a check."""
        return self._incoming.has_waiting()

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
        if not self._held.has_room_for(size):
            self._outlet.refuse(message, 503, "Too many messages wait for their way.")
            return
        self._held.push(Item(message, size, is_for_node))
        self.pump(now)

    def pump(self, now: float) -> None:
        """Send what the channel and the window have room for."""
        while self.way is Way.CHANNEL:
            while self._frames and self._outlet.has_room():
                self._outlet.to_channel(self._frames.popleft())
            if not self.is_open or self._frames or not self._held:
                return  # a frame that the channel does not take ends it
            item = self._held[0]
            is_for_node = item.is_for_node or self._fences.is_at_node(item.message)
            if not is_for_node and self._window and not self._window.has_room_for(item.size):
                return
            self._held.shift()
            if is_for_node:
                self._outlet.to_node(item.message)
                continue
            self._sent += 1
            item.seq = self._sent
            self._window.push(item)
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
        if upto and self._drop(min(upto, self._sent)):
            self.pump(now)

    def _drop(self, upto: int) -> bool:
        """Keep no longer what has arrived, up to this number; whether there was anything."""
        before = len(self._window)
        while self._window and self._window[0].seq <= upto:
            self._window.shift()
        return len(self._window) < before

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
        self._drop(received)
        self.resent += len(self._window)
        for item in self._window.take_all():
            self._outlet.to_node(item.message)
        self._all_to_node()

    def _give_up(self) -> None:
        text = "It was lost at switch-over: the other runtime does not say what it got."
        for item in self._window.take_all():
            self._outlet.refuse(item.message, 503, text)
        self._all_to_node()

    def _all_to_node(self) -> None:
        self.way = Way.NODE
        for name in ("fence", "resume"):
            self._due.pop(name, None)
        while self._held:
            self._outlet.to_node(self._held.shift().message)

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
