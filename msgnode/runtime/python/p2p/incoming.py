"""What comes on a channel: numbered, put together from pieces, delivered in order. Pure.

Rules
- A message counts as received when it was delivered, not when it came: what still waits for a check
  when the channel ends is sent again by the other side.
- A message that came before is dropped. One that skips others ends the channel, since a channel
  neither loses nor swaps: the other side has lost count.
"""

from __future__ import annotations

from collections import deque

from msgnode.runtime.python.messages import Message

from .contents import Transfer
from .frames import BadFrame, Begun, Bytes, Data, Piece, join
from .outlet import Outlet


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
