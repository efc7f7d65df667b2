"""The media of calls: passed as they are described, or by an rtpengine of the operator's.

With rtpengine a phone gets plain RTP, and a browser ICE and DTLS-SRTP; nothing is transcoded. It is
told by `ng`: a datagram with a cookie and a dictionary in bencode, answered by the same cookie.
Libraries for bencode want sorted keys, which rtpengine's answers do not have.

Rules
- A call has an id of ours at rtpengine, `<mark>-<number>`: the Call-ID of SIP is chosen by who
  calls, and the proxy may tell the same rtpengine of the same call.
- The mark is random, and of one worker in one life of its link. It is stored before the link
  connects. There are as many numbers as calls at a time; one is free again once rtpengine has
  answered that its call is deleted.
- So what a worker that has died has left is known without asking: the next one deletes each number
  of each mark stored before its own. It deletes nothing else, whatever rtpengine says.
"""

from __future__ import annotations

import asyncio
import math
import secrets
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from msgnode.core.errors import BadGateway, NodeError, Unavailable

from .calls import MAX_CALLS
from .descriptions import sdp_fault
from .network import MEDIA, Here

MEDIA_ALARM = "legacy-media"
TRY_SECONDS, TRIES = 1.0, 3
MAX_ANSWER, MAX_DEPTH = 65_536, 10
NUMBERS = 2 * MAX_CALLS
"""Of calls at a time, with those that somebody there begins and that wait for a hyperty."""
LEFT_AT_ONCE, LEFT_PAUSE, LEFT_TRIES, MAX_LEFT = 20, 30.0, 20, 16
"""Of what was left: calls that are deleted at once, seconds between tries if rtpengine is silent,
so many of these, after which it has long forgotten silent calls by itself, and marks."""
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
            call: our tag in the call, which no other call here has.
            sdp: the description.
            is_ours: whether it is of the runtime, for the phone.
            then: called with what has become of it.
        """
        then(sdp)

    def end(self, call: str) -> None:
        """Forget a call."""

    def close(self) -> None:
        """Use it no more for now."""


class Ng(asyncio.DatagramProtocol):
    """Asks one rtpengine.

    Args:
        place: where it listens, as host:port.
    """

    def __init__(self, place: str) -> None:
        self.place = place
        self._transport: asyncio.DatagramTransport | None = None
        self._opening = asyncio.Lock()
        self._waiting: dict[str, asyncio.Future[dict[str, Any]]] = {}

    async def ask(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Its answer to a command. Raises OSError or TimeoutError."""
        cookie = secrets.token_hex(6)
        answer = self._waiting[cookie] = asyncio.get_running_loop().create_future()
        try:
            for _ in range(TRIES):
                transport = await self._opened()
                transport.sendto(f"{cookie} ".encode() + bencoded(asked))
                with suppress(TimeoutError):
                    return await asyncio.wait_for(asyncio.shield(answer), TRY_SECONDS)
            raise TimeoutError
        finally:
            del self._waiting[cookie]

    async def delete(self, call: str) -> None:
        """Have it forget a call, which it need not know. Raises OSError or TimeoutError."""
        await self.ask({"command": "delete", "call-id": call, "from-tag": "", "delete-delay": 0})

    async def _opened(self) -> asyncio.DatagramTransport:
        async with self._opening:
            if self._transport is None or self._transport.is_closing():
                host, _, port = self.place.rpartition(":")
                made = asyncio.get_running_loop().create_datagram_endpoint(
                    lambda: self, remote_addr=(host.strip("[]"), int(port))
                )
                self._transport = (await asyncio.wait_for(made, TRY_SECONDS))[0]
            return self._transport

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


@dataclass(eq=False, slots=True)
class _Changing:
    """A call at rtpengine.

    Attributes:
        number: of its id.
        is_plain: whether its runtime speaks RTP without DTLS.
        last: what rtpengine was asked last: the next question waits for its answer.
    """

    number: int
    is_plain: bool = False
    last: asyncio.Task[None] | None = None


class Rtpengine(Media):
    """One instance per life of a link.

    Args:
        place: where it listens, as host:port.
        mark: what the ids of calls begin with.
        alarm: called with a text when it does not answer.
    """

    def __init__(self, place: str, mark: str, alarm: Callable[[str], None]) -> None:
        self._ng = Ng(place)
        self._mark = mark
        self._alarm = alarm
        self._tasks: set[asyncio.Task[None]] = set()
        self._calls: dict[str, _Changing] = {}
        self._free = deque(range(NUMBERS))
        self._not_deleted: list[_Changing] = []  # since it was silent

    def change(self, command: str, call: str, sdp: str, is_ours: bool, then: Changed) -> None:
        """Have rtpengine change a description."""
        if call not in self._calls:
            if not self._free:
                then(Unavailable("rtpengine has calls that it has not ended."))
                return
            self._calls[call] = _Changing(self._free.popleft())
        changing = self._calls[call]
        if is_ours and command == "offer" and "SAVPF" not in sdp:
            changing.is_plain = True
        if is_ours or changing.is_plain:
            form = _PHONE
        else:
            form = _BROWSER_OFFERED if command == "offer" else _BROWSER
        sdp = with_address(sdp) if is_ours and not changing.is_plain else sdp
        # The tag of who offers is `from` in both commands.
        tags = ("runtime", "phone") if is_ours == (command == "offer") else ("phone", "runtime")
        asked = {"command": command, "call-id": self._id(changing), "sdp": sdp, **form,
                 "from-tag": tags[0], "replace": ["origin", "session-connection"]}  # fmt: skip
        asked |= {"to-tag": tags[1]} if command == "answer" else {}
        self._begin(changing, self._changed(asked, then))

    def _id(self, changing: _Changing) -> str:
        return id_of(self._mark, changing.number)

    async def _changed(self, asked: dict[str, Any], then: Changed) -> None:
        try:
            said = await self._ng.ask(asked)
        except (OSError, TimeoutError) as error:
            why = f"rtpengine at {self._ng.place} does not answer: calls are refused. {error}"
            self._alarm(why.strip())
            then(Unavailable("rtpengine does not answer."))
            return
        left, self._not_deleted = self._not_deleted, []
        for each in left:
            self._begin(each, self._ended(each))
        sdp = said.get("sdp")
        if said.get("result") != "ok" or not isinstance(sdp, str) or sdp_fault(sdp):
            reason = str(said.get("error-reason") or "no description")[:200]
            then(BadGateway(f"rtpengine refuses the description: {reason}"))
        else:
            then(sdp)

    def end(self, call: str) -> None:
        """Have rtpengine forget a call."""
        if (changing := self._calls.pop(call, None)) is not None:
            self._begin(changing, self._ended(changing))

    async def _ended(self, changing: _Changing) -> None:
        try:
            await self._ng.delete(self._id(changing))
        except (OSError, TimeoutError):
            self._not_deleted.append(changing)
        else:
            self._free.append(changing.number)

    def _begin(self, changing: _Changing, action: Coroutine[Any, Any, None]) -> None:
        """Ask something about a call, once what was asked before is answered."""
        before = changing.last

        async def in_turn() -> None:
            if before is not None:
                await asyncio.wait([before])
            await action

        task = changing.last = asyncio.get_running_loop().create_task(in_turn())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def close(self) -> None:
        """Close the socket; it is opened again when it is needed."""
        self._ng.close()


class LeftMedia:
    """Ends at rtpengine the calls of the workers before. One instance per life of a link.

    Args:
        here: this node, where marks are stored.
        clock: a monotonic clock, in seconds.
    """

    def __init__(self, here: Here, clock: Callable[[], float]) -> None:
        self._here = here
        self._clock = clock
        self._own = ""
        self._has_seen_own = False
        self._left: deque[tuple[str, str]] = deque()
        self._number = self._tries = 0  # of the first that was left
        self._at = 0.0
        self._task: asyncio.Task[None] | None = None

    def make_mark(self, place: str) -> str:
        """A mark for calls at a place, which the worker that comes next will know."""
        self._own = f"msgnode-{secrets.token_hex(8)}"
        self._here.keep(MEDIA, self._own, place)
        return self._own

    def restore(self, mark: str, place: str) -> None:
        """Note a mark that was stored, and where its calls were; called in the order of storing.

        What follows the own mark is of a worker that has the network now, or will have it: this one
        was frozen.
        """
        self._has_seen_own = self._has_seen_own or mark == self._own
        if self._has_seen_own:
            return
        self._left.append((mark, place))
        if len(self._left) > MAX_LEFT:
            self._here.keep(MEDIA, *self._left.popleft(), is_kept=False)

    @property
    def due(self) -> float:
        """When `tick` has something to do next."""
        return self._at if self._left else math.inf

    def tick(self) -> None:
        """End some calls that were left, if that is due."""
        if self._left and self._at <= self._clock():
            self._at = math.inf
            self._task = asyncio.get_running_loop().create_task(self._end_some())

    async def _end_some(self) -> None:
        mark, place = self._left[0]
        ng, some = Ng(place), range(self._number, min(self._number + LEFT_AT_ONCE, NUMBERS))
        try:
            asked = (ng.delete(id_of(mark, number)) for number in some)
            said = await asyncio.gather(*asked, return_exceptions=True)
        finally:
            ng.close()
        self._at = self._clock()
        if any(each is not None for each in said):
            self._tries += 1
            self._at += LEFT_PAUSE
        else:
            self._number = some.stop
        if self._number >= NUMBERS or self._tries >= LEFT_TRIES:
            self._here.keep(MEDIA, *self._left.popleft(), is_kept=False)
            self._number = self._tries = 0
        self._here.wake()


def id_of(mark: str, number: int) -> str:
    """The id of a call at rtpengine.

    >>> id_of("msgnode-0123456789abcdef", 7)
    'msgnode-0123456789abcdef-7'
    """
    return f"{mark}-{number}"


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
