"""What workers say to one another: a batch is a MessagePack list of these, in order.

A worker speaks for its own sessions only, and each of its words reaches a peer once and in order
(see link.py). A word about a session the peer does not know is passed over: the snapshot that is
under way brings it whole.
"""

from __future__ import annotations

import msgspec

from msgnode.core.identity import Speaker
from msgnode.core.rates import Report


class Word(msgspec.Struct, array_like=True, gc=False):
    """One thing said."""


class Frame(Word, tag=0):
    """A frame for sessions of the peer; read by nobody on the way."""

    frame: bytes
    sessions: list[str]


class Enter(Word, tag=1):
    """A session of mine is there, or something about it has changed."""

    session: str
    runtime_url: str
    token_hash: str
    bound_at: float
    is_connected: bool
    speaker: Speaker


class Leave(Word, tag=2):
    """A session of mine has ended."""

    session: str


class Hold(Word, tag=3):
    """A session holds these addresses in a layer of the table."""

    session: str
    layer: str
    addresses: list[str]


class Drop(Word, tag=4):
    """A session holds these addresses no longer."""

    session: str
    layer: str
    addresses: list[str]


class Holdings(Word, tag=5):
    """All that a session holds, in a snapshot."""

    session: str
    owned: list[str]
    subscribed: list[str]
    learned: list[str]


class SnapshotBegins(Word, tag=6):
    """All of my sessions follow; what you know of me from before may be old."""


class SnapshotEnds(Word, tag=7):
    """Those were all."""


class Settle(Word, tag=8):
    """Say `Settled` when you have done all I said before."""

    mark: int


class Settled(Word, tag=9):
    """The answer to `Settle`."""

    mark: int


class Ready(Word, tag=10):
    """I take sessions from now on."""


class Asked(Word, tag=11):
    """This session of mine asked the request `id_key`; the answer is for no other."""

    sender: str
    id_key: str
    session: str


class Behind(Word, tag=12):
    """A session of mine is behind with its reading, or no longer."""

    session: str
    is_behind: bool


class Gap(Word, tag=13):
    """Frames for these sessions of yours were lost on their way."""

    sessions: list[str]


class Want(Word, tag=14):
    """The runtime of this session of yours has come to me: give it to me."""

    session: str


class Refuse(Word, tag=15):
    """I have no such session to give."""

    session: str


class Give(Word, tag=16):
    """A session becomes yours. Its queue follows as frames, then `Given`; keep until then what
    comes from others. `state` is the session room's own."""

    session: str
    state: bytes


class Given(Word, tag=17):
    """That was all of the session's queue, whoever it came from."""

    session: str


class Move(Word, tag=18):
    """Sessions are with the worker of this epoch from now on."""

    sessions: list[str]
    epoch: str


class Bye(Word, tag=19):
    """I end; what I had has been given away or waits in the database."""


class Counted(Word, tag=20):
    """What a worker has counted in all, under the keys of one set of counters. `epoch` is that
    worker's if it is not me: one that has ended."""

    counters: str
    epoch: str
    reports: list[Report]


class Question(Word, tag=21):
    """What do you know of yourself? `number` comes back with the answer."""

    number: int
    kind: str
    text: bytes


class Reply(Word, tag=22):
    """The answer to `Question`."""

    number: int
    text: bytes


class ResponseFrame(Frame, tag=23):
    """A response for one session of the peer, which takes it only if it has asked the session
    `responder`; `to` and `id` name the request."""

    to: str
    id: str
    responder: str


Said = (
    Frame | Enter | Leave | Hold | Drop | Holdings | SnapshotBegins | SnapshotEnds | Settle
    | Settled | Ready | Asked | Behind | Gap | Want | Refuse | Give | Given | Move | Bye
    | Counted | Question | Reply | ResponseFrame
)  # fmt: skip

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(list[Said])


def encode(words: list[Word]) -> bytes:
    return _encoder.encode(words)


def decode(batch: bytes) -> list[Said]:
    """Raises msgspec.DecodeError for what no worker of this version says."""
    return _decoder.decode(batch)
