"""The media of calls: passed as they are described, or by an rtpengine of the operator's.

With rtpengine a phone gets plain RTP, and a browser ICE and DTLS-SRTP; nothing is transcoded. It is
told by `ng`: a datagram with a cookie and a dictionary in bencode, answered by the same cookie.
Libraries for bencode want sorted keys, which rtpengine's answers do not have.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from msgnode.core.errors import BadGateway, NodeError, Unavailable

from .descriptions import sdp_fault

MEDIA_ALARM = "legacy-media"
TRY_SECONDS, TRIES = 1.0, 3
MAX_ANSWER, MAX_DEPTH, MAX_WAITING = 65_536, 10, 400
_PHONE = {"transport-protocol": "RTP/AVP", "ICE": "remove", "DTLS": "off", "SDES": ["off"],
          "rtcp-mux": ["demux"]}  # fmt: skip
_BROWSER = {"transport-protocol": "UDP/TLS/RTP/SAVPF", "ICE": "force", "DTLS": "active",
            "SDES": ["off"], "rtcp-mux": ["require"]}  # fmt: skip
_BROWSER_OFFERED = {**_BROWSER, "rtcp-mux": ["offer", "require"]}
"""`active`: rtpengine begins with DTLS, since 10.5 does not take the first words of a Chromium."""

Changed = Callable[[str | NodeError], None]
"""Is called with a description as the other side gets it, or why it gets none."""


class Media:
    """Passes descriptions as they are."""

    def change(self, command: str, call: str, sdp: str, is_ours: bool, then: Changed) -> None:
        """Change a description for the other side.

        Args:
            command: `offer` or `answer`.
            call: the id of the call.
            sdp: the description.
            is_ours: whether it is of the runtime, for the phone.
            then: called with what has become of it.
        """
        then(sdp)

    def end(self, call: str) -> None:
        """Forget a call."""

    def close(self) -> None:
        """Use it no more for now."""


class Rtpengine(Media, asyncio.DatagramProtocol):
    """One instance per network.

    Args:
        place: where it listens, as host:port.
        alarm: called with a text when it does not answer.
    """

    def __init__(self, place: str, alarm: Callable[[str], None]) -> None:
        self._place = place
        self._alarm = alarm
        self._transport: asyncio.DatagramTransport | None = None
        self._waiting: dict[str, asyncio.Future[dict[str, Any]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._plain: set[str] = set()  # calls whose runtime speaks RTP without DTLS

    def change(self, command: str, call: str, sdp: str, is_ours: bool, then: Changed) -> None:
        """Have rtpengine change a description."""
        if is_ours and command == "offer" and "SAVPF" not in sdp:
            self._plain.add(call)
        if is_ours or call in self._plain:
            form = _PHONE
        else:
            form = _BROWSER_OFFERED if command == "offer" else _BROWSER
        sdp = with_address(sdp) if is_ours and call not in self._plain else sdp
        # The tag of who offers is `from` in both commands.
        tags = ("runtime", "phone") if is_ours == (command == "offer") else ("phone", "runtime")
        asked = {"command": command, "call-id": call, "sdp": sdp, **form, "from-tag": tags[0],
                 "replace": ["origin", "session-connection"]}  # fmt: skip
        asked |= {"to-tag": tags[1]} if command == "answer" else {}
        self._begin(self._changed(asked, then))

    async def _changed(self, asked: dict[str, Any], then: Changed) -> None:
        try:
            said = await self._ask(asked)
        except (OSError, TimeoutError) as error:
            why = f"rtpengine at {self._place} does not answer: calls are refused. {error}"
            self._alarm(why.strip())
            then(Unavailable("rtpengine does not answer."))
            return
        sdp = said.get("sdp")
        if said.get("result") != "ok" or not isinstance(sdp, str) or sdp_fault(sdp):
            reason = str(said.get("error-reason") or "no description")[:200]
            then(BadGateway(f"rtpengine refuses the description: {reason}"))
        else:
            then(sdp)

    def end(self, call: str) -> None:
        """Have rtpengine forget a call."""
        self._plain.discard(call)
        if len(self._tasks) < MAX_WAITING:
            asked = {"command": "delete", "call-id": call, "from-tag": "", "delete-delay": 0}
            self._begin(self._ended(asked))

    async def _ended(self, asked: dict[str, Any]) -> None:
        with suppress(OSError, TimeoutError):  # it forgets silent calls by itself
            await self._ask(asked)

    def _begin(self, action: Any) -> None:
        task = asyncio.get_running_loop().create_task(action)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _ask(self, asked: dict[str, Any]) -> dict[str, Any]:
        loop = asyncio.get_running_loop()
        transport = self._transport
        if transport is None or transport.is_closing():
            host, _, port = self._place.rpartition(":")
            place = host.strip("[]"), int(port)
            made = loop.create_datagram_endpoint(lambda: self, remote_addr=place)
            transport = (await asyncio.wait_for(made, TRY_SECONDS))[0]
            self._transport = transport
        cookie = secrets.token_hex(6)
        answer = self._waiting[cookie] = loop.create_future()
        try:
            for _ in range(TRIES):
                transport.sendto(f"{cookie} ".encode() + bencoded(asked))
                with suppress(TimeoutError):
                    return await asyncio.wait_for(asyncio.shield(answer), TRY_SECONDS)
            raise TimeoutError
        finally:
            del self._waiting[cookie]

    def datagram_received(self, data: bytes, _: Any) -> None:
        """Take an answer."""
        cookie, _, said = data[:MAX_ANSWER].partition(b" ")
        answer = self._waiting.get(cookie.decode(errors="replace"))
        if answer is not None and not answer.done():
            try:
                answer.set_result(dict(bdecoded(said)))
            except (ValueError, TypeError):
                answer.set_result({"error-reason": "its answer cannot be read"})

    def error_received(self, exc: Exception) -> None:
        """Take that nobody listens there."""
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(exc)

    def close(self) -> None:
        """Close the socket; it is opened again when it is needed."""
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.close()


def with_address(sdp: str) -> str:
    """A description of a browser, whose address of nobody a phone would take for a call on hold.

    Where its media come from is in the candidates; those that follow later name no other place.

    >>> with_address("c=IN IP4 0.0.0.0\\r\\n")
    'c=IN IP4 192.0.2.1\\r\\n'
    """
    return sdp.replace("c=IN IP4 0.0.0.0", "c=IN IP4 192.0.2.1")


def bencoded(value: Any) -> bytes:
    """A value in bencode.

    >>> bencoded({"b": ["x", 1], "a": "é"})
    b'd1:a2:\\xc3\\xa91:bl1:xi1eee'
    """
    if isinstance(value, dict):
        inside = (bencoded(key) + bencoded(value[key]) for key in sorted(value))
        return b"d" + b"".join(inside) + b"e"
    if isinstance(value, list):
        return b"l" + b"".join(map(bencoded, value)) + b"e"
    if isinstance(value, int):
        return b"i%de" % value
    data = str(value).encode(errors="replace")
    return b"%d:%s" % (len(data), data)


def bdecoded(data: bytes) -> Any:
    """A value of bencode. Raises ValueError.

    >>> bdecoded(b"d1:bl1:xi1ee1:a2:oke")
    {'b': ['x', 1], 'a': 'ok'}
    """
    value, rest = _bdecoded(data, 0)
    if rest:
        raise ValueError("there is more than one value")
    return value


def _bdecoded(data: bytes, depth: int) -> tuple[Any, bytes]:
    """The first value, and what follows it."""
    kind, rest = data[:1], data[1:]
    if depth > MAX_DEPTH:
        raise ValueError("it is too deep")
    if kind in (b"d", b"l"):
        found: list[Any] = []
        while rest[:1] != b"e":
            value, rest = _bdecoded(rest, depth + 1)
            found.append(value)
        made = dict(zip(found[::2], found[1::2], strict=True)) if kind == b"d" else found
        return made, rest[1:]
    if kind == b"i":
        digits, _, rest = rest.partition(b"e")
        return int(digits[:20]), rest
    digits, _, rest = data.partition(b":")
    size = int(digits[:8])
    if not 0 <= size <= len(rest):
        raise ValueError("it ends in a text")
    return rest[:size].decode(errors="replace"), rest[size:]
