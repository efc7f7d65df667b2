"""One WebRTC connection with one data channel, by the library aiortc, imported here alone."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

LABEL = "P2PChannel"
PROTOCOL = "msgnode.1"
MAX_BUFFERED = 1024 * 1024  # bytes that wait in the channel
LOW_BUFFERED = 256 * 1024
MOST_BUFFERED = 2 * MAX_BUFFERED  # what has no room stays out of it, but for acks and pongs
MAX_SDP = 16 * 1024
MAX_CANDIDATES = 64

Description = dict[str, str]


def is_available() -> bool:
    """Whether this installation can set up WebRTC connections."""
    return importlib.util.find_spec("aiortc") is not None


class BadDescription(ValueError):
    """What the other side offers or answers cannot be used."""


class RtcConnection:
    """A peer connection; `on_open`, `on_frame`, `on_low` and `on_close` are set by who uses it.

    So is `on_end`, which is called once, when `close` has ended it.
    """

    def __init__(
        self, ice_servers: Sequence[Mapping[str, Any]] = (), relay_only: bool = False
    ) -> None:
        import aiortc  # noqa: PLC0415 (100 MB that only who wants P2P has installed)
        from aiortc.sdp import candidate_from_sdp  # noqa: PLC0415

        policy = aiortc.RTCIceTransportPolicy
        self._session_description = aiortc.RTCSessionDescription
        self._connection = aiortc.RTCPeerConnection(
            aiortc.RTCConfiguration(
                [aiortc.RTCIceServer(**server) for server in ice_servers],
                iceTransportPolicy=policy.RELAY if relay_only else policy.ALL,
            )
        )
        self._parse_candidate = candidate_from_sdp
        self._adding: set[asyncio.Task[None]] = set()
        self._channel: Any = None
        self._closing: asyncio.Task[None] | None = None
        self.on_open: Callable[[], None] = _nothing
        self.on_frame: Callable[[Any], None] = _nothing_with
        self.on_low: Callable[[], None] = _nothing
        self.on_close: Callable[[], None] = _nothing
        self.on_end: Callable[[], None] = _nothing
        self._connection.on("datachannel", self._announced)
        self._connection.on("connectionstatechange", self._changed)

    async def offer(self) -> Description:
        """The description of what we offer, with all candidates. Raises BadDescription."""
        self._watch(self._connection.createDataChannel(LABEL, protocol=PROTOCOL))
        return await self._described(self._connection.createOffer)

    async def answer(self, offered: Any) -> Description:
        """Take an offer; the description of our answer. Raises BadDescription."""
        await self._apply(offered, "offer")
        return await self._described(self._connection.createAnswer)

    async def accept(self, answered: Any) -> None:
        """Take the answer to our offer. Raises BadDescription."""
        await self._apply(answered, "answer")

    def add_candidate(self, candidate: Mapping[str, Any]) -> None:
        """Take a candidate of the other side; one that is of no use is passed over."""
        task = asyncio.create_task(self._add_candidate(candidate))
        self._adding.add(task)
        task.add_done_callback(self._adding.discard)

    async def _add_candidate(self, said: Mapping[str, Any]) -> None:
        line, mid = said.get("sdpMLineIndex"), said.get("sdpMid")
        with contextlib.suppress(Exception):  # aiortc raises whatever its parser comes upon
            found = self._parse_candidate(said["candidate"].removeprefix("candidate:"))
            found.sdpMid = mid if isinstance(mid, str) else None
            found.sdpMLineIndex = line if isinstance(line, int) else 0
            await self._connection.addIceCandidate(found)

    async def _apply(self, described: Any, kind: str) -> None:
        sdp = described.get("sdp") if isinstance(described, Mapping) else None
        if not isinstance(sdp, str) or len(sdp) > MAX_SDP or described.get("type") != kind:
            raise BadDescription(f"There is no usable {kind}.")
        if sdp.count("a=candidate:") > MAX_CANDIDATES:
            raise BadDescription(f"The {kind} names more than {MAX_CANDIDATES} candidates.")
        sdp, names = without_names(sdp)
        try:
            await self._connection.setRemoteDescription(self._session_description(sdp, kind))
        except Exception as error:  # aiortc raises whatever its parser comes upon
            raise BadDescription(f"The {kind} cannot be used: {error!r}") from None
        for each in names:
            self.add_candidate({"candidate": each})

    async def _described(self, create: Callable[[], Coroutine[Any, Any, Any]]) -> Description:
        try:
            await self._connection.setLocalDescription(await create())
        except Exception as error:  # aiortc, or what it gathers candidates with
            raise BadDescription(f"This side cannot be described: {error!r}") from None
        local = self._connection.localDescription
        return {"sdp": local.sdp, "type": local.type}

    # --- the channel ------------------------------------------------------------------------------

    def send(self, frame: str | bytes) -> None:
        """Hand a frame to the channel; one that is not open takes it without a word."""
        if self._channel is not None and self._channel.readyState == "open":
            if self._channel.bufferedAmount > MOST_BUFFERED:
                self.on_close()  # who asks and asks and does not read the answers
                return
            try:
                self._channel.send(frame)
            except (ConnectionError, ValueError):
                self.on_close()  # a frame is missing now: the channel is of no use

    def has_room(self) -> bool:
        """Whether another frame may wait in the channel."""
        return self._channel is None or self._channel.bufferedAmount < MAX_BUFFERED

    def _announced(self, channel: Any) -> None:
        if self._channel is None and channel.label == LABEL:
            self._watch(channel)
            if channel.readyState == "open":
                self.on_open()

    def _watch(self, channel: Any) -> None:
        self._channel = channel
        channel.bufferedAmountLowThreshold = LOW_BUFFERED
        channel.on("open", lambda: self.on_open())
        channel.on("message", lambda frame: self.on_frame(frame))
        channel.on("bufferedamountlow", lambda: self.on_low())
        channel.on("close", lambda: self.on_close())

    async def _changed(self) -> None:
        if self._connection.connectionState in ("failed", "closed"):
            self.on_close()

    def close(self) -> None:
        """Close it, after what was handed to it; nothing more is told of it."""
        self.on_open = self.on_low = self.on_close = _nothing
        self.on_frame = _nothing_with
        for task in self._adding:
            task.cancel()
        if self._closing is None:
            self._closing = asyncio.create_task(self._close())

    async def closed(self) -> None:
        """Wait until it is closed."""
        if self._closing is not None:
            await asyncio.wait([self._closing])

    async def _close(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1.0):
                while self._channel is not None and self._channel.bufferedAmount:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)  # aiortc says of no channel that it is empty
        await self._connection.close()
        self.on_end()


def without_names(sdp: str) -> tuple[str, list[str]]:
    """A description without candidates that have names for addresses, and those candidates.

    A browser hides its addresses behind names (`….local`), each of which takes up to a second to
    look up; nobody waits for that, since one that is known is enough.
    """
    lines = sdp.splitlines(keepends=True)
    named = [line for line in lines if line.startswith("a=candidate:") and ".local " in line]
    if not named:
        return sdp, []
    gone = {*named, *(line for line in lines if line.startswith("a=end-of-candidates"))}
    kept = "".join(line for line in lines if line not in gone)
    return kept, [line.strip()[2:] for line in named]


def _nothing() -> None:
    pass


def _nothing_with(frame: Any) -> None:
    pass
