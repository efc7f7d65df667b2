"""Go-back-N ARQ between two workers: messages arrive once and in order, or their loss is known.

The channel layer loses messages silently (capacity, a restarted Redis). So batches carry a stream
and a number; the receiver requests what it misses, and the sender keeps a batch until it is
acknowledged, within `limit` bytes. What is given up (the receiver was taken for dead) is known by
session. No I/O here: the transport sends what these two produce.

SendWindow     queues messages and frames, cuts them into batches, keeps them until acknowledged
ReceiveWindow  accepts batches in order, and notices what is missing
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import islice
from time import time
from typing import NamedTuple

from msgnode.bus.ports import Response
from msgnode.bus.return_paths import ReturnPath
from msgnode.core.faults import FAULTS

from . import protocol as words
from .protocol import (
    Frame,
    LinkMessage,
    PlainFrame,
    RequestFrame,
    ResponseFrame,
    RpcRequest,
    RpcResponse,
)

BATCH_BYTES = 256 * 1024
_WORD = 96  # bytes of memory a waiting word costs besides its text
_SESSION = 40  # and each further session of a frame
_KINDS: dict[type, Callable[..., Frame]] = {
    type(None): PlainFrame,
    Response: ResponseFrame,
    ReturnPath: RequestFrame,
}


class Batch(NamedTuple):
    """Encoded messages as published. `sessions` are those with a frame in it."""

    number: int
    words: bytes
    size: int
    sessions: frozenset[str]


class SendWindow:
    """The messages to another worker. `wake` is called when there is something to publish."""

    def __init__(self, limit: int, wake: Callable[[], None]) -> None:
        self.stream = 0
        self.published = 0  # the number of the next batch that has not been published
        self.batches = 0
        self.resent = 0
        self.bytes = 0
        self._limit = limit
        self._wake = wake
        self._words: list[LinkMessage] = []
        self._words_bytes = 0
        self._number = 0
        self._kept: deque[Batch] = deque()
        self._on_resume: list[Callable[[], None]] = []

    def put(self, message: LinkMessage, size: int = 0) -> None:
        """Queue a message; never refused, so that whoever sends much must wait for `has_room`."""
        size += _WORD
        self._words.append(message)
        self._words_bytes += size
        self.bytes += size
        self._wake()

    def put_frame(self, session: str, frame: bytes) -> bool:
        """Queue a frame; False if there is no room. A frame for many sessions is sent once."""
        last = self._words[-1] if self._words else None
        if last.__class__ is PlainFrame and last.frame is frame:
            self._also_for(session, last)
            return True
        if self.bytes + len(frame) > self._limit:
            return False
        self.put(PlainFrame(frame, [session]), len(frame))
        return True

    def put_beside(
        self, session: str, frame: bytes, beside: Response | ReturnPath | None, trace: str = ""
    ) -> bool:
        """Queue a frame and what accompanies it, as put_frame does.

        Args:
            session: the session the frame is for.
            frame: the frame as it came.
            beside: the response it is, or the return path of a request.
            trace: the trace context of a traced frame.
        """
        last = self._words[-1] if self._words else None
        is_plain_request = isinstance(beside, ReturnPath) and not trace
        if is_plain_request and isinstance(last, RequestFrame) and last.frame is frame:
            self._also_for(session, last)
            return True
        size = len(frame) + len(trace) + sum(map(len, beside or ()))
        if self.bytes + size > self._limit:
            return False
        self.put(_KINDS[type(beside)](frame, [session], *(beside or ()), trace), size)
        return True

    def _also_for(self, session: str, message: Frame) -> None:
        message.sessions.append(session)
        self.bytes += _SESSION
        self._words_bytes += _SESSION

    @property
    def is_behind(self) -> bool:
        """Whether more than a quarter of the limit is queued."""
        return self.bytes > self._limit // 4

    @property
    def has_room(self) -> bool:
        """Whether less than half of that quarter is queued."""
        return self.bytes <= self._limit // 8

    def when_writable(self, callback: Callable[[], None]) -> None:
        """Call back once, when half of that quarter is left, or the other worker is given up."""
        self._on_resume.append(callback)

    def resume(self) -> None:
        """Call back everybody who waits for room."""
        callbacks, self._on_resume = self._on_resume, []
        for callback in callbacks:
            with FAULTS.kept_to("sender"):
                callback()

    def take(self) -> Batch | None:
        """The next batch to publish."""
        first = self._kept[0].number if self._kept else self._number
        if self.published == self._number:
            if not self._words:
                return None
            self._cut()
        batch: Batch = self._kept[self.published - first]
        self.published += 1
        self.batches += 1
        return batch

    def rewind(self, number: int) -> bool:
        """Publish again from this batch on; False if it is no longer kept.

        Batches that were acknowledged are not repeated: the request was late or a duplicate.
        """
        first = self._kept[0].number if self._kept else self._number
        if number > self._number:
            return False
        if number < first:
            return True
        if number < self.published:
            self.resent += self.published - number
            self.published = number
        self._wake()
        return True

    def acknowledge(self, until: int) -> None:
        """Note that the other worker has all batches before `until`."""
        while self._kept and self._kept[0].number < until:
            self.bytes -= self._kept.popleft().size
        if self._kept and self.published < self._kept[0].number:
            self.published = self._kept[0].number
        elif not self._kept:
            self.published = self._number
        if self._on_resume and self.has_room:
            self.resume()

    def begin(self) -> set[str]:
        """Give up what is not acknowledged, and begin a new stream.

        Returns:
            The sessions that lose frames by that.
        """
        lost = {session for batch in self._kept for session in batch.sessions}
        lost.update(*(each.sessions for each in self._words if isinstance(each, Frame)))
        self._kept.clear()
        self._words.clear()
        self._words_bytes = self.bytes = self._number = self.published = 0
        self.stream = max(self.stream + 1, int(time() * 1000))
        self.resume()
        return lost

    def _cut(self) -> None:
        """Make a batch of what is queued, or of its first part."""
        said, size = self._words, self._words_bytes
        if size <= BATCH_BYTES:
            self._words, self._words_bytes = [], 0
        else:
            size = count = 0
            for message in said:
                size += _size(message)
                count += 1
                if size >= BATCH_BYTES:
                    break
            said, self._words = said[:count], list(islice(said, count, None))
            size = min(size, self._words_bytes) if self._words else self._words_bytes
            self._words_bytes -= size
        sessions = [message.sessions for message in said if isinstance(message, Frame)]
        batch = Batch(self._number, words.encode(said), size, frozenset().union(*sessions))
        self._kept.append(batch)
        self._number += 1


def _size(message: LinkMessage) -> int:
    if isinstance(message, Frame):
        return _WORD + len(message.frame) + _SESSION * (len(message.sessions) - 1)
    if isinstance(message, RpcRequest | RpcResponse):
        return _WORD + len(message.text)
    return _WORD


class ReceiveWindow:
    """The messages from another worker.

    `gaps` and `missed` count the losses noticed and the batches to be sent again; what comes after
    a loss is not kept.
    """

    def __init__(self) -> None:
        self.stream = -1
        self.next = 0
        self.gaps = 0
        self.missed = 0
        self.is_missing = False
        self._known = 0

    def takes(self, stream: int, number: int) -> bool:
        """Whether this batch is the next one; if not it is a duplicate, or comes after a loss."""
        if stream > self.stream:
            self.stream, self.next, self._known, self.is_missing = stream, 0, 0, False
        if stream < self.stream or number < self.next:
            return False
        if number > self.next:
            self.hears_of(stream, number + 1)
            return False
        self.next += 1
        if self.next >= self._known:
            self.is_missing = False
        return True

    def hears_of(self, stream: int, until: int) -> bool:
        """Note that the other worker has published the batches before `until`.

        Returns:
            Whether a loss is noticed that was not known before.
        """
        if stream > self.stream:
            self.stream, self.next, self._known, self.is_missing = stream, 0, 0, False
        if stream < self.stream or until <= max(self.next, self._known):
            return False
        before, self._known = max(self.next, self._known), until
        is_first = not self.is_missing
        self.is_missing = True
        if self.next == 0:  # the stream began before the other worker was known
            return False
        self.gaps += is_first
        self.missed += until - before
        return True
