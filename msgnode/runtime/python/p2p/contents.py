"""Contents of messages that arrive behind them on a channel, and are put into them again. Pure.

Rules
- The first frame says how much is to come: bytes, or UTF-16 units of a text. What is empty, too
  much, of the other kind or of a transfer that never began is a bad frame.
- Who waits for an answer with such a content is told of its progress (183), as it grows.
"""

from __future__ import annotations

from collections import OrderedDict

from msgnode.runtime.python.messages import Message, answer_to

from .frames import BadFrame, Begun, Bytes, Text, with_content

MAX_TRANSFERS = 8  # at a time, on one channel


class Transfer:
    """A content that arrives.

    Args:
        begun: the frame before it.
    """

    def __init__(self, begun: Begun) -> None:
        self._begun = begun
        self._pieces: list[str | bytes] = []
        self._left = begun.size
        self._percent = 0

    def add(self, frame: Text | Bytes) -> bool:
        """Take a piece; whether it was the last one. Raises BadFrame."""
        piece = frame.text if isinstance(frame, Text) else frame.data
        if self._pieces and type(piece) is not type(self._pieces[0]):
            raise BadFrame("A content is text or bytes, not both.")
        size = len(piece) if isinstance(piece, bytes) else len(piece.encode("utf-16-le")) // 2
        if not size or size > self._left:
            raise BadFrame("A piece of a content is empty, or more than was to come.")
        self._pieces.append(piece)
        self._left -= size
        return not self._left

    def progress(self) -> Message | None:
        """A provisional answer to who waits for this one, when the percentage has grown."""
        message = self._begun.message
        percent = 100 * (self._begun.size - self._left) // self._begun.size
        sender, to = message.get("from"), message.get("to")
        is_answer = message.get("type") == "response" and isinstance(sender, str)
        if not is_answer or percent <= self._percent:
            return None
        self._percent = percent
        text = "Message reception is progressing"
        found = answer_to({**message, "from": to, "to": sender}, 183, text)
        found["body"]["value"] = percent
        return found

    def message(self) -> Message:
        """The message as it was sent."""
        first = self._pieces[0]
        if isinstance(first, bytes):
            whole: str | bytes = b"".join(each for each in self._pieces if isinstance(each, bytes))
        else:
            whole = "".join(each for each in self._pieces if isinstance(each, str))
        return with_content(self._begun.message, whole)


class Transfers:
    """The contents that arrive on one channel without numbers, several at a time."""

    def __init__(self) -> None:
        self._all: OrderedDict[str, Transfer] = OrderedDict()

    def __len__(self) -> int:
        return len(self._all)

    def begin(self, begun: Begun) -> None:
        """A message whose content follows. Raises BadFrame."""
        if begun.uuid in self._all or len(self._all) >= MAX_TRANSFERS:
            raise BadFrame("The content is under way, or too many are.")
        self._all[begun.uuid] = Transfer(begun)

    def add(self, frame: Text | Bytes) -> Message | None:
        """A piece. Returns what it makes: the message, progress, or nothing. Raises BadFrame."""
        transfer = self._all.get(frame.uuid)
        if transfer is None:
            raise BadFrame("No content of this uuid is under way.")
        try:
            is_last = transfer.add(frame)
        except BadFrame:
            del self._all[frame.uuid]
            raise
        if not is_last:
            return transfer.progress()
        del self._all[frame.uuid]
        return transfer.message()
