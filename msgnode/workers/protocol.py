"""The protocol between workers: a batch is a MessagePack list of these messages, in order.

A worker speaks for its own sessions only, and each of its messages reaches another worker once and
in order (see window.py). It tells only those workers of a session that watch one of its names. A
message about a session that its receiver no longer knows is ignored, or makes the receiver query
its name again.
In the docstrings "I" is the sender and "you" the receiver.

Three messages say something about what was sent before them, on one link. They go through the same
window as all others, never beside it, although the links acknowledge batches beside it (links.py):
- `BarrierAck` tells that I have processed what you sent, *and* comes behind all that I had put on
  the link before: when you read it, you have what I sent before I knew. The hand-over of a session
  needs the second half (handover.py): whoever has acknowledged `SessionMoved` sends no more frames
  to the giver, and the giver has all that were under way.
- `NamesResponse` comes behind what was said of its names: a name that is answered is known.
- `TransferEnd` comes behind the queue, and behind what the giver has passed on.
"""

from __future__ import annotations

import msgspec

from msgnode.bus.return_paths import ReturnPath
from msgnode.core.identity import Speaker
from msgnode.core.rates import Report

PROTOCOL = 5
"""The version of this protocol, sent with each heartbeat. It is raised when a message changes, so
that workers of different versions do not connect and misread each other."""


class LinkMessage(msgspec.Struct, array_like=True, gc=False):
    """One message from a worker to another."""


class Frame(LinkMessage):
    """A frame for sessions of the receiver, opaque to the links.

    `trace` comes last in every kind of frame: the trace context of a traced message, else "".
    """

    frame: bytes
    sessions: list[str]


class PlainFrame(Frame, tag=0):
    """A frame with nothing to accompany it."""

    trace: str = ""


class SessionUp(LinkMessage, tag=1):
    """A session of mine is new or has changed.

    `is_new`: you were not told of it before.
    """

    session: str
    runtime_url: str
    token_hash: str
    bound_at: float
    is_connected: bool
    speaker: Speaker
    is_new: bool = True


class SessionDown(LinkMessage, tag=2):
    """A session of mine has ended."""

    session: str


class AddressAdded(LinkMessage, tag=3):
    """A session holds these addresses in a layer of the table."""

    session: str
    layer: str
    addresses: list[str]


class AddressRemoved(LinkMessage, tag=4):
    """A session no longer holds these addresses."""

    session: str
    layer: str
    addresses: list[str]


class SessionsAt(LinkMessage, tag=5):
    """All sessions of mine at a name, by what they have there.

    You have been told before of those whose runtime's URL it is. I announce changes to its
    watchers.
    """

    name: str
    owned: list[str]
    subscribed: list[str]
    learned: list[str]


class SnapshotBegins(LinkMessage, tag=6):
    """All that you watch of mine follows; what you know of me from before may be outdated."""


class SnapshotEnds(LinkMessage, tag=7):
    """The snapshot is complete."""


class BarrierRequest(LinkMessage, tag=8):
    """Send BarrierAck when you have processed everything I sent before."""

    mark: int


class BarrierAck(LinkMessage, tag=9):
    """The answer to BarrierRequest, behind everything I had put on this link before.

    Not the same as the acknowledgement of batches, which may overtake what I have sent.
    """

    mark: int


class Ready(LinkMessage, tag=10):
    """I accept sessions from now on: I know all that you had to tell me."""


class Backpressure(LinkMessage, tag=12):
    """A session of mine lags, or no longer does."""

    session: str
    is_behind: bool


class LostFrames(LinkMessage, tag=13):
    """Frames for these sessions of yours were lost."""

    sessions: list[str]


class RequestSession(LinkMessage, tag=14):
    """The runtime of this session of yours has connected to me: hand the session over."""

    session: str


class RequestRefused(LinkMessage, tag=15):
    """I have no such session to hand over."""

    session: str


class TransferBegin(LinkMessage, tag=16):
    """A session becomes yours.

    Its queue follows as frames, then `TransferEnd`; queue until then what comes from others. Only
    sessions/ reads `state`; `told` are the workers (epochs) that know of the session.
    """

    session: str
    state: bytes
    told: list[str]


class TransferEnd(LinkMessage, tag=17):
    """The queue of the session is complete.

    `return_paths` are those of the requests that it may still answer; `has_ended` says that the
    session ended while it moved, which earlier versions did not say.
    """

    session: str
    return_paths: list[ReturnPath]
    has_ended: bool = False


class SessionMoved(LinkMessage, tag=18):
    """Sessions are at the worker of this epoch from now on."""

    sessions: list[str]
    epoch: str


class Goodbye(LinkMessage, tag=19):
    """I end; my sessions were handed over or are in the database."""


class CounterReport(LinkMessage, tag=20):
    """The totals that a worker has counted, under the keys of one set of counters.

    `epoch` is that worker's if it is not me but one that has ended.
    """

    counters: str
    epoch: str
    reports: list[Report]


class RpcRequest(LinkMessage, tag=21):
    """A query of a kind. `number` is returned with the answer."""

    number: int
    kind: str
    text: bytes


class RpcResponse(LinkMessage, tag=22):
    """The answer to `RpcRequest`."""

    number: int
    text: bytes


class ResponseFrame(Frame, tag=23):
    """A response for a session of the receiver, accepted only if that session asked `responder`.

    `to` and `id` identify the request; `responder` is a session.
    """

    to: str
    id: str
    responder: str
    trace: str = ""


class CheckSocket(LinkMessage, tag=24):
    """Is the socket of this session of yours alive? Answer with SocketChecked."""

    session: str


class SocketChecked(LinkMessage, tag=25):
    """The socket of a session of mine is alive (true), or was dead and is dropped (false).

    None if that is unknown.
    """

    session: str
    outcome: bool | None


class RequestFrame(Frame, tag=26):
    """A request by one of several sessions of a runtime; its answer is for `asker` only."""

    sender: str
    id_key: str
    asker: str
    runtime_url: str
    trace: str = ""


class NamesRequest(LinkMessage, tag=27):
    """Who is at these names? I watch them from now on.

    Answer with SessionsAt for each where you have or had a session, then with NamesResponse.
    """

    number: int
    names: list[str]


class NamesResponse(LinkMessage, tag=28):
    """I have sent everything about the names, before this.

    `elsewhere` are the workers (epochs) to which sessions at one of them have moved from me.
    """

    number: int
    elsewhere: dict[str, list[str]]


class EntriesOwed(LinkMessage, tag=29):
    """Whether entries of mine are missing from the directory."""

    is_owed: bool


class Unwatch(LinkMessage, tag=30):
    """Stop announcing who is at these names, and what happens to these sessions of yours."""

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


def encode(words: list[LinkMessage]) -> bytes:
    """Encode messages as a batch."""
    return _encoder.encode(words)


def decode(batch: bytes) -> list[AnyMessage]:
    """Decode a batch.

    Raises:
        msgspec.DecodeError: it is not a batch of this version.
    """
    return _decoder.decode(batch)
