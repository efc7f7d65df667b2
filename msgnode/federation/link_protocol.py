"""The protocol between two nodes of this software: hello, numbered batches, acknowledgements. Pure.

Each frame is a JSON object in a text frame of a WebSocket:

    {"hello":{…}}                                  who dials; answered by hello and proof
    {"proof":"…","ready":{…}}  {"ready":{…}}       then both are ready
    {"send":{"seq":n,"ack":m,"items":[…]}}         a batch of messages, as they came
    {"ack":{"seq":n,"credit":b}}                   all batches up to n have been carried
    {"ping":t} {"pong":t} {"gap":{}}               a sign of life; updates were lost

Rules
- Messages are collected for COLLECT_SECONDS, up to MAX_ITEMS or MAX_BYTES. They leave at once while
  nothing is unacknowledged, or little: the last batch had one message, and the window has room for
  two.
- At most WINDOW batches, and the other's credit in bytes, are unacknowledged. They are kept, and
  after a loss of the socket those that the other does not have are sent again, in order.
- Numbers count for one pair of lives. A life ends with the worker that serves the peer; what was
  unacknowledged then is dropped, and whoever has asked is answered (linked_peer.py).
- The next number is expected, or one that was had, with the same content. Anything else ends the
  link, and nothing of it is carried.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any, NamedTuple

import msgspec

from msgnode.core.envelope import EMPTY

VERSIONS = (1,)
SUBPROTOCOL = "rethink-node.1"
PATH = "federation/link"
MAX_ITEMS, MAX_BYTES = 100, 64 * 1024
COLLECT_SECONDS = 0.002
WINDOW = 8
CREDIT = 1024 * 1024
SKEW_SECONDS = 300.0
_HEAD = b'{"send":{"seq":%d,"ack":%d,"items":['
OVERHEAD = 128 + MAX_ITEMS
"""Bytes that a batch has at most besides its messages."""

PASSED = 1000
"""The end of a test."""
ABSENT = 1006
"""Nobody answers, or the socket was lost."""
LEAVES = 3001
"""The peer is served no more, or by another worker, or begins anew."""
BAD_FRAME, BAD_PROOF, NOT_ALLOWED, BAD_VERSION = 4400, 4401, 4403, 4406
LATE, REPLACED, BAD_NAME, TOO_LARGE, ELSEWHERE = 4408, 4409, 4410, 4413, 4421
_LONGEST = 300  # characters of what the other has said, which is stored and shown
_WORDS = {
    ABSENT: "no connection",
    LEAVES: "ended",
    BAD_FRAME: "bad frame",
    BAD_PROOF: "not proved",
    NOT_ALLOWED: "not allowed",
    BAD_VERSION: "no common version",
    LATE: "silent",
    REPLACED: "replaced",
    BAD_NAME: "wrong name",
    TOO_LARGE: "too large",
    ELSEWHERE: "served by another worker",
}


class LinkFault(Exception):
    """What ends a link: a close code of the WebSocket, and words for operators of both nodes."""

    def __init__(self, code: int, why: str) -> None:
        why = "".join(each if each.isprintable() else " " for each in why[:_LONGEST])
        words = _WORDS.get(code, f"closed with {code}")
        super().__init__(f"{words}: {why}" if why else words)
        self.code = code
        self.why = why


class Hello(msgspec.Struct, rename={"sender": "from"}):
    """How a node begins: who it is, for whom, by which key, and which life of it this is."""

    sender: str
    to: str
    nonce: str
    kid: str
    time: float
    life: str
    versions: tuple[int, ...] = VERSIONS
    max_frame: int = 0
    is_test: bool = False


class Ready(msgspec.Struct):
    """What a node has of the other's batches, and which life of the other it means."""

    life: str
    received: int


class Ack(msgspec.Struct):
    """An acknowledgement."""

    seq: int
    credit: int = CREDIT


class _Batch(msgspec.Struct):
    seq: int
    ack: int
    items: list[msgspec.Raw]


class Frame(msgspec.Struct):
    """A frame as it is read; `hello` stays text, because it is signed."""

    send: _Batch | None = None
    ack: Ack | None = None
    hello: msgspec.Raw = EMPTY
    proof: str = ""
    ready: Ready | None = None
    ping: float | None = None
    pong: float | None = None
    gap: dict[str, Any] | None = None


_frames, _hellos = msgspec.json.Decoder(Frame), msgspec.json.Decoder(Hello)
encode = msgspec.json.encode


def read(text: bytes) -> Frame:
    """Read a frame. Raises LinkFault."""
    try:
        return _frames.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise LinkFault(BAD_FRAME, str(error) or "nested too deeply") from None


def read_hello(text: bytes, own: str, now: float) -> Hello:
    """Read a hello to this node, and check all but who it is from.

    Args:
        text: of the hello.
        own: this node's domain.
        now: seconds since 1970.

    Raises:
        LinkFault: it is none, or not for this node, or of another time or version.
    """
    try:
        text.decode()  # it is signed whole, and not all of it is read
        hello = _hellos.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise LinkFault(BAD_FRAME, f"hello: {error}") from None
    if hello.to != own or hello.sender == own:
        raise LinkFault(BAD_NAME, f"this is {own}, and {hello.sender} said hello to {hello.to}")
    if not set(hello.versions) & set(VERSIONS):
        theirs = f"{hello.sender} has {hello.versions}"
        raise LinkFault(BAD_VERSION, f"{own} has {list(VERSIONS)}, {theirs}")
    if not abs(now - hello.time) <= SKEW_SECONDS:
        times = f"{own} has {now:.0f} and {hello.sender} {hello.time:.0f}"
        raise LinkFault(BAD_PROOF, f"the clocks differ: {times} (seconds since 1970)")
    if not (0 < len(hello.nonce) <= 100 and 0 < len(hello.life) <= 100):
        raise LinkFault(BAD_FRAME, "hello: nonce or life is empty or too long")
    return hello


def to_sign(role: str, dialled: bytes, answered: bytes) -> bytes:
    """What a node signs: its role, and both hellos as they were sent."""
    return encode([role, dialled.decode(), answered.decode()])


class _Sent(NamedTuple):
    seq: int
    text: bytes
    at: float


class Outbox:
    """The batches for the other node. One instance per pair of lives.

    Args:
        clock: a monotonic clock, in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._items: deque[bytes] = deque()
        self._bytes = 0
        self._sent: deque[_Sent] = deque()
        self._in_flight = 0
        self._seq = 0
        self._was_single = False
        self._credit = CREDIT
        self.has_room = True
        """Whether the batch that is being collected takes another message."""

    @property
    def is_idle(self) -> bool:
        """Whether nothing is unacknowledged."""
        return not self._sent

    @property
    def is_quiet(self) -> bool:
        """Whether a message may leave without waiting for others."""
        return not self._sent or (self._was_single and len(self._sent) < WINDOW - 1)

    @property
    def unacknowledged(self) -> tuple[int, int, float]:
        """Batches, their bytes, and for how many seconds the oldest is unacknowledged."""
        oldest = self._clock() - self._sent[0].at if self._sent else 0.0
        return len(self._sent), self._in_flight, oldest

    def add(self, item: bytes) -> None:
        """Add a message to what is being collected."""
        self._items.append(item)
        self._bytes += len(item)
        self.has_room = self._bytes < MAX_BYTES and len(self._items) < MAX_ITEMS

    def seal(self, ack: int) -> bytes | None:
        """The next batch to be sent, if the window and the other's credit allow one.

        Args:
            ack: the number up to which the other's batches were carried.
        """
        if not self._items or len(self._sent) >= WINDOW or self._credit <= 0:
            return None
        largest = max(len(self._items[0]), min(self._bytes, MAX_BYTES)) + OVERHEAD
        if self._sent and self._in_flight + largest > self._credit:
            return None
        items = [self._items.popleft()]
        size = len(items[0])
        while self._items and len(items) < MAX_ITEMS and size + len(self._items[0]) <= MAX_BYTES:
            items.append(self._items.popleft())
            size += len(items[-1])
        self._bytes -= size
        self._was_single = len(items) == 1
        self.has_room = self._bytes < MAX_BYTES and len(self._items) < MAX_ITEMS
        self._seq += 1
        text = b"%b%b]}}" % (_HEAD % (self._seq, ack), b",".join(items))
        self._sent.append(_Sent(self._seq, text, self._clock()))
        self._in_flight += len(text)
        return text

    def acknowledged(self, seq: int, credit: int = CREDIT) -> None:
        """Forget what the other has. Raises LinkFault if that was never sent."""
        if seq > self._seq:
            raise LinkFault(BAD_FRAME, f"{seq} was acknowledged, and {self._seq} sent last")
        self._credit = credit
        while self._sent and self._sent[0].seq <= seq:
            self._in_flight -= len(self._sent.popleft().text)

    def again(self, received: int) -> list[bytes]:
        """What is to be sent again on a new socket. Raises LinkFault."""
        self.acknowledged(received)
        if received + len(self._sent) < self._seq:
            raise LinkFault(BAD_FRAME, f"{received} was received, and more acknowledged before")
        return [each.text for each in self._sent]


class Inbox:
    """The batches of the other node. One instance per pair of lives."""

    def __init__(self) -> None:
        self.received = 0
        self.carried = 0  # what of it the node has taken: it may be acknowledged
        self.acknowledged = 0
        self.repeated = 0
        self._last: deque[tuple[int, int]] = deque(maxlen=WINDOW)  # hash and bytes

    def take(self, text: bytes, batch: _Batch) -> Sequence[msgspec.Raw]:
        """The messages of a batch, none if it has come before.

        Args:
            text: the frame.
            batch: what was read in it.

        Raises:
            LinkFault: it is not the next one, another one than before, or not in its form.
        """
        items = batch.items
        if not 0 < len(items) <= MAX_ITEMS:
            raise LinkFault(TOO_LARGE, f"a batch of {len(items)} messages")
        head = _HEAD % (batch.seq, batch.ack)
        size = len(head) + sum(len(memoryview(each)) for each in items) + len(items) - 1 + 3
        if not text.startswith(head) or size != len(text):
            raise LinkFault(BAD_FRAME, "a batch that is not in the form of one")
        if batch.seq != self.received + 1:
            at = batch.seq - self.received - 1  # -1: the last one
            if not -len(self._last) <= at < 0 or self._last[at][0] != hash(text):
                last = f"batch {batch.seq} after {self.received}"
                raise LinkFault(BAD_FRAME, f"{last}, or with another content than before")
            self.repeated += 1
            return ()
        waits = self.received - self.carried
        size = sum(each for _, each in islice(self._last, len(self._last) - waits, None))
        if waits >= WINDOW or (waits and size + len(text) > CREDIT):
            raise LinkFault(TOO_LARGE, "more is sent than may be unacknowledged")
        self.received = batch.seq
        self._last.append((hash(text), len(text)))
        return items
