"""The protocol between workers: a batch is a MessagePack list of these messages, in order.

A worker speaks for its own sessions only, and each of its messages reaches a peer once and in order
(see window.py). It speaks of a session to those workers alone that watch a name where it is. A
message about a session the peer does not know any more is passed over, or its name asked for again.
"""

from __future__ import annotations

import msgspec

from msgnode.bus.return_paths import ReturnPath
from msgnode.core.identity import Speaker
from msgnode.core.rates import Report

PROTOCOL = 5
"""The number of this protocol, said with each heartbeat; raised when what stands here changes, so
that workers of two numbers have no link and do not misread each other."""


class PeerMessage(msgspec.Struct, array_like=True, gc=False):
    """One message from a worker to another."""


class Frame(PeerMessage):
    """A frame for sessions of the peer; read by nobody on the way.

    The kinds of it end with `trace`: the trace context of a message that is traced, else "".
    """

    frame: bytes
    sessions: list[str]


class PlainFrame(Frame, tag=0):
    """A frame with nothing beside it."""

    trace: str = ""


class SessionUp(PeerMessage, tag=1):
    """A session of mine is there, or something about it has changed.

    `is_new`: you were not told of it before.
    """

    session: str
    runtime_url: str
    token_hash: str
    bound_at: float
    is_connected: bool
    speaker: Speaker
    is_new: bool = True


class SessionDown(PeerMessage, tag=2):
    """A session of mine has ended."""

    session: str


class AddressAdded(PeerMessage, tag=3):
    """A session holds these addresses in a layer of the table."""

    session: str
    layer: str
    addresses: list[str]


class AddressRemoved(PeerMessage, tag=4):
    """A session holds these addresses no longer."""

    session: str
    layer: str
    addresses: list[str]


class SessionsAt(PeerMessage, tag=5):
    """All sessions of mine at a name, by what they have there.

    Those whose runtime's URL it is were told before. I say the changes to who watches it.
    """

    name: str
    owned: list[str]
    subscribed: list[str]
    learned: list[str]


class SnapshotBegins(PeerMessage, tag=6):
    """All that you watch of mine follows; what you know of me from before may be old."""


class SnapshotEnds(PeerMessage, tag=7):
    """That was all."""


class BarrierRequest(PeerMessage, tag=8):
    """Send BarrierAck when you have done all I said before."""

    mark: int


class BarrierAck(PeerMessage, tag=9):
    """The answer to BarrierRequest."""

    mark: int


class Ready(PeerMessage, tag=10):
    """I take sessions from now on."""


class Backpressure(PeerMessage, tag=12):
    """A session of mine is behind with its reading, or no longer."""

    session: str
    is_behind: bool


class LostFrames(PeerMessage, tag=13):
    """Frames for these sessions of yours were lost on their way."""

    sessions: list[str]


class RequestSession(PeerMessage, tag=14):
    """The runtime of this session of yours has come to me: give it to me."""

    session: str


class RequestRefused(PeerMessage, tag=15):
    """I have no such session to give."""

    session: str


class TransferBegin(PeerMessage, tag=16):
    """A session becomes yours.

    Its queue follows as frames, then `TransferEnd`; keep until then what comes from others. `state`
    is read by sessions/ alone; `told` are the workers (epochs) that know of the session.
    """

    session: str
    state: bytes
    told: list[str]


class TransferEnd(PeerMessage, tag=17):
    """That was all of the session's queue, whoever it came from.

    `return_paths` are those of what it may still answer.
    """

    session: str
    return_paths: list[ReturnPath]


class SessionMoved(PeerMessage, tag=18):
    """Sessions are with the worker of this epoch from now on."""

    sessions: list[str]
    epoch: str


class Goodbye(PeerMessage, tag=19):
    """I end; what I had has been given away or waits in the database."""


class CounterReport(PeerMessage, tag=20):
    """What a worker has counted in all, under the keys of one set of counters.

    `epoch` is that worker's if it is not me: one that has ended.
    """

    counters: str
    epoch: str
    reports: list[Report]


class RpcRequest(PeerMessage, tag=21):
    """What do you know of yourself? `number` comes back with the answer."""

    number: int
    kind: str
    text: bytes


class RpcResponse(PeerMessage, tag=22):
    """The answer to `RpcRequest`."""

    number: int
    text: bytes


class ResponseFrame(Frame, tag=23):
    """A response for one session of the peer, which takes it only if it has asked `responder`.

    `to` and `id` name the request, `responder` is a session.
    """

    to: str
    id: str
    responder: str
    trace: str = ""


class CheckSocket(PeerMessage, tag=24):
    """Is anybody behind the socket of this session of yours? Answer with SocketChecked."""

    session: str


class SocketChecked(PeerMessage, tag=25):
    """The socket of a session of mine has answered (true), or has not and is dropped (false).

    None if that cannot be told.
    """

    session: str
    outcome: bool | None


class RequestFrame(Frame, tag=26):
    """A request of one of several sessions of a runtime; its answer is for `asker` and no other."""

    sender: str
    id_key: str
    asker: str
    runtime_url: str
    trace: str = ""


class NamesRequest(PeerMessage, tag=27):
    """Who is at these names? I watch them from now on.

    Answer with SessionsAt for each where you have or had somebody, then NamesResponse.
    """

    number: int
    names: list[str]


class NamesResponse(PeerMessage, tag=28):
    """I have told all I know of the names.

    `elsewhere` are the workers (epochs) to which sessions have gone from me that were at one.
    """

    number: int
    elsewhere: dict[str, list[str]]


class EntriesOwed(PeerMessage, tag=29):
    """Whether something of mine is not in the directory that should be."""

    is_owed: bool


class Unwatch(PeerMessage, tag=30):
    """Say no more who is at these names, nor what becomes of these sessions of yours."""

    names: list[str]
    sessions: list[str]


AnyFrame = PlainFrame | ResponseFrame | RequestFrame

AnyMessage = (
    PlainFrame | SessionUp | SessionDown | AddressAdded | AddressRemoved | SessionsAt
    | SnapshotBegins | SnapshotEnds | BarrierRequest | BarrierAck | Ready | Backpressure
    | LostFrames | RequestSession | RequestRefused | TransferBegin | TransferEnd
    | SessionMoved | Goodbye | CounterReport | RpcRequest | RpcResponse
    | ResponseFrame | CheckSocket | SocketChecked | RequestFrame | NamesRequest | NamesResponse
    | EntriesOwed | Unwatch
)  # fmt: skip

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(list[AnyMessage])


def encode(words: list[PeerMessage]) -> bytes:
    """A batch of these messages."""
    return _encoder.encode(words)


def decode(batch: bytes) -> list[AnyMessage]:
    """The messages of a batch.

    Raises:
        msgspec.DecodeError: no worker of this version says that.
    """
    return _decoder.decode(batch)
