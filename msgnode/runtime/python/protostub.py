"""The protostub of a Messaging Node for Python runtimes: links a bus with the WebSocket `/ws`.

One file on asyncio and the library `websockets`, so that a catalogue can serve it. The bus has
`add_listener(address, callable)` and `post_message(message)`; messages are dicts.

    instance = activate(stub_url, bus, {"url": "ws://…/ws", "runtimeURL": "runtime://…"})["instance"]
    await instance.connect()          # or let the first message that goes out do it

Rules
- It listens on `*` of the bus. The first message that goes out connects it.
- Status events go to `<stub_url>/status` of the bus and never to the node:
  created -> in-progress -> live <-> disconnected, and failed where coming back is no use.
  `gap` is no state: it says that messages were lost or that the node lost the session.
- While there is no session, messages wait in order, up to `max_queue` characters. One that finds no
  room is never dropped in silence: a request is answered 503, anything else is a `gap`.
- A lost session is opened again with its token, so that addresses, subscriptions and what waited at
  the node come back. Delays double from `min_delay` to `max_delay`, with jitter.
- If the node does not take the identity any more, the session waits `identity_timeout` for a newer
  one, `in-progress`.
- To a node that does not know the session any more the subscriptions it had granted are sent again,
  100 addresses a request, before anything else. What it refuses then is a `gap`.
- `via` keeps messages from going round: what came in through this stub does not go out through it,
  and what went out through it is not taken in again.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import random
import re
import secrets
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple, Protocol

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidURI

NAME = "MessagingNodeProtoStub"

Message = dict[str, Any]

_SESSION = "mn:/session"
_SM = re.compile(r"domain://msg-node\.[^/]+/sm")  # the node's subscription manager
_MAX_CLAIMS = 1_000  # subscriptions whose answer is awaited
_MAX_HELD = 10_000  # addresses that are announced again
_AT_A_TIME = 100  # of them in one request
_OVERHEAD = 64  # characters a waiting message counts besides its text


class Bus(Protocol):
    """The runtime's bus as the stub needs it."""

    def add_listener(self, address: str, listener: Callable[[Message], None]) -> object:
        """Have the messages to an address; "*" for those to other runtimes."""

    def post_message(self, message: Message) -> None:
        """Hand over a message that came from the node."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What `config` may hold; times are in seconds."""

    url: str
    runtimeURL: str  # noqa: N815 (wire spelling)
    connect_timeout: float = 10.0  # until the socket is open
    reply_timeout: float = 3.0  # until mn:/session has answered
    identity_timeout: float = 10.0  # that a session whose identity has ended waits for a newer one
    min_delay: float = 0.25  # before the first return
    max_delay: float = 30.0  # between two tries, at most
    stagger: float = 3.0  # over which a return is spread if the node restarts and names no time
    stable_after: float = 5.0  # of being live, after which delays begin anew
    max_queue: int = 4 * 1024 * 1024  # characters that wait here
    max_frame: int = 1024 * 1024  # bytes of the largest message the node takes


class Closing(NamedTuple):
    """What a close code asks of us. `final` is the code for those who wait, 0: come back."""

    text: str
    final: int = 0
    is_staggered: bool = False


CLOSE_CODES = {
    1009: Closing("A message was too large for the node."),
    3001: Closing("The node restarts.", is_staggered=True),
    3008: Closing("Messages came faster than they were read."),
    4400: Closing("The node could not read a frame."),
    4401: Closing("No session was opened in time."),
    4403: Closing("The node refuses this runtime.", final=403),
    4409: Closing("The session goes on over another connection.", final=403),
    4413: Closing("A message was too large for the node."),
    4429: Closing("The node has no room for another session at the moment."),
}
_DROPPED = Closing("The connection was lost.")
_RETRY_AFTER = re.compile(r"\bretryAfter=(\d+)", re.ASCII)  # in the reason of a close
_LONGEST_SPREAD = 300.0  # seconds, whatever a node says


def back_off(attempt: int, settings: Settings, jitter: float | None = None) -> float:
    """Seconds before try number `attempt` (from 0): doubling, and between half and all of it."""
    whole = min(settings.max_delay, settings.min_delay * float(2 ** min(attempt, 30)))
    return whole * (0.5 + (random.random() if jitter is None else jitter) / 2)  # noqa: S311


def spread(reason: str, settings: Settings) -> float:
    """Seconds within which to come back to a node that restarts: what it says, else `stagger`."""
    told = _RETRY_AFTER.search(reason)
    return min(float(told[1]), _LONGEST_SPREAD) if told else settings.stagger


def activate(stub_url: str, bus: Bus, config: dict[str, Any]) -> dict[str, Any]:
    """Load the stub: its name and its instance."""
    return {"name": NAME, "instance": Protostub(stub_url, bus, config)}


@dataclass(slots=True)
class _Waiting:
    """A message that has not gone out."""

    message: Message
    frame: str
    size: int = field(init=False)

    def __post_init__(self) -> None:
        self.size = len(self.frame) + _OVERHEAD


class _Refused(Exception):
    """The node does not give this runtime a session, or not now (`is_final` False)."""

    def __init__(self, code: int, text: str, is_final: bool) -> None:
        super().__init__(text)
        self.code = code
        self.is_final = is_final


class Protostub:
    """A stub of one runtime; needs the running event loop from its first message on."""

    name = NAME

    def __init__(self, stub_url: str, bus: Bus, config: dict[str, Any]) -> None:
        known = {each.name for each in fields(Settings)}
        self.settings = Settings(**{key: value for key, value in config.items() if key in known})
        self.state = ""
        self._stub_url = stub_url
        self._bus = bus
        self._mark = f"{stub_url}/{secrets.token_hex(4)}"
        self._identity: Any = None
        self._session_url = ""  # <runtimeURL>/<token>; "" while there is no session to come back to
        self._socket: ClientConnection | None = None
        self._ids = itertools.count(1)
        self._queue: deque[_Waiting] = deque()
        self._queued = 0
        self._lost = 0
        self._claims: dict[tuple[str, str], Message] = {}  # subscriptions that wait for an answer
        self._held: dict[str, tuple[str, str, str]] = {}  # address -> from, to, source
        self._filled = asyncio.Event()
        self._settled = asyncio.Event()
        self._hurry = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._live_since = 0.0  # of the loop's clock, 0 while there is no session
        self._is_sending = False
        bus.add_listener("*", self._send)
        self._enter("created")

    async def connect(self, identity: Any = None) -> str:
        """Open the session, now.

        Args:
            identity: to open it with from now on; None leaves it as it is.

        Returns:
            The state that follows: live, failed (a status event says why), or disconnected if
            disconnect() came first.
        """
        if identity is not None:
            self._identity = identity
        self._begin()
        self._hurry.set()
        await self._settled.wait()
        return self.state

    async def disconnect(self) -> None:
        """Close the session for good: the node frees its addresses."""
        socket, task = self._socket, self._task
        if socket is not None and self.state == "live":
            with contextlib.suppress(ConnectionClosed, TimeoutError):
                async with asyncio.timeout(self.settings.reply_timeout):
                    while self._queue:
                        await socket.send(self._take().frame)
                    self._enter("disconnected")  # what comes now is not ours any more
                    await self._session_frame(socket, "close")
                    await socket.wait_closed()
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
        self._stop("disconnected", 503, "The stub was disconnected.")

    # --- the connection ---------------------------------------------------------------------------

    def _begin(self) -> None:
        if self._task is None:
            self._settled.clear()
            self._enter("in-progress")
            self._task = asyncio.create_task(self._run())
            self._task.add_done_callback(self._ended)

    async def _run(self) -> None:
        """Connect, and come back after each loss, until a final answer."""
        attempt = 0
        clock = asyncio.get_running_loop().time
        while True:
            self._hurry.clear()
            closing = await self._connection()
            if closing.final == 401 and await self._is_given_another(closing.text):
                continue
            if closing.final:
                self._task = None
                self._stop("failed", closing.final, closing.text)
                return
            if self._live_since and clock() - self._live_since > self.settings.stable_after:
                attempt = 0
            self._live_since = 0.0
            self._settled.clear()
            self._enter("disconnected", closing.text)
            delay = back_off(attempt, self.settings)
            if closing.is_staggered:
                delay += random.random() * spread(closing.text, self.settings)  # noqa: S311
            attempt += 1
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(delay):
                    await self._hurry.wait()

    async def _is_given_another(self, text: str) -> bool:
        """Whether a session whose identity the node does not take any more gets a newer one."""
        refused = self._identity
        if not self._session_url or refused is None:
            return False
        self._settled.clear()
        self._hurry.clear()
        self._enter("in-progress", text)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.settings.identity_timeout):
                await self._hurry.wait()
        return self._identity is not refused

    def _ended(self, task: asyncio.Task[None]) -> None:
        """A fault of ours is a failure that is seen, never a stub that stands still."""
        if not task.cancelled() and (error := task.exception()) is not None:
            self._stop("failed", 500, f"The stub broke: {error!r}")

    async def _connection(self) -> Closing:
        """One connection from its opening to its end, and what that end asks of us."""
        writer: asyncio.Task[None] | None = None
        try:
            async with connect(
                self.settings.url,
                open_timeout=self.settings.connect_timeout,
                close_timeout=1,
                max_size=None,
            ) as socket:
                self._socket = socket
                async with asyncio.timeout(self.settings.reply_timeout):
                    await self._open(socket)
                writer = asyncio.create_task(self._write(socket))
                async for frame in socket:
                    self._received(_decoded(frame))
            return _closing(socket)
        except ConnectionClosed:
            return _closing(socket)
        except TimeoutError:
            waited = _SESSION if self._socket else self.settings.url
            return Closing(f"Timeout from {waited}")
        except _Refused as refusal:
            return Closing(str(refusal), final=refusal.code if refusal.is_final else 0)
        except InvalidURI as error:
            return Closing(f"The stub cannot connect: {error}", final=503)
        except (OSError, InvalidHandshake) as error:
            return Closing(f"The node cannot be reached: {error}")
        finally:
            self._socket = None
            if writer is not None:
                writer.cancel()
            if self._is_sending:
                self._is_sending = False
                self._say("gap", "A message was on its way out when the connection broke.")

    def _stop(self, state: str, code: int, text: str) -> None:
        """Leave the connection be until connect() is called; nothing waits any longer."""
        self._task = None
        self._session_url = ""
        self._claims.clear()
        if state == "disconnected":
            self._held.clear()
        self._enter(state, text)
        while self._queue:
            self._refuse(self._take().message, code, text)
        self._settled.set()

    # --- the session ------------------------------------------------------------------------------

    async def _open(self, socket: ClientConnection) -> None:
        """Have the session opened, or opened again; raises _Refused."""
        type_ = "re-open" if self._session_url else "open"
        body = await self._asked(socket, type_)
        is_lost = bool(body.get("runtimeToken")) and type_ == "re-open"
        if type_ == "re-open" and body["code"] not in (200, 401, 403, 503):
            self._session_url = ""  # a node that knows the session no longer: begin anew
            body, is_lost = await self._asked(socket, "open"), True
        code = body["code"]
        if code != 200:
            text = body.get("desc") or body.get("description") or f"The node answered {code}."
            raise _Refused(code, text, is_final=code != 429 and code < 500)
        if body.get("runtimeToken"):
            self._session_url = f"{self.settings.runtimeURL}/{body['runtimeToken']}"
        self._live_since = asyncio.get_running_loop().time()
        self._enter("live")
        if is_lost or type_ == "open":
            await self._announce(socket)
        if is_lost:
            self._say("gap", "The node did not know the session: what it held is gone.")
        self._settled.set()

    async def _asked(self, socket: ClientConnection, type_: str) -> dict[str, Any]:
        """The body of the answer of mn:/session."""
        id_ = await self._session_frame(socket, type_)
        while True:
            message = _decoded(await socket.recv())
            if message.get("from") != _SESSION:
                self._received(message)
            elif message.get("type") == "response" and message.get("id") == id_:
                body = message.get("body")
                known: dict[str, Any] = body if isinstance(body, dict) else {}
                return {**known, "code": _code_of(known)}

    async def _session_frame(self, socket: ClientConnection, type_: str) -> int:
        id_ = next(self._ids)
        sender = self._session_url or self.settings.runtimeURL
        frame: Message = {"id": id_, "type": type_, "from": sender, "to": _SESSION}
        if self._identity is not None and type_ != "close":
            frame["body"] = {"identity": self._identity}
        await socket.send(json.dumps(frame))
        return id_

    # --- what the node holds for the runtime ------------------------------------------------------

    def _asks(self, message: Message) -> None:
        """Note a subscription that goes out; the node's answer decides."""
        is_claim = message["type"] in ("subscribe", "unsubscribe")
        if is_claim and isinstance(message["to"], str) and _SM.fullmatch(message["to"]):
            if len(self._claims) >= _MAX_CLAIMS:
                del self._claims[next(iter(self._claims))]
            self._claims[message["from"], str(message.get("id"))] = message

    def _granted(self, answer: Message, body: dict[str, Any]) -> bool:
        """Note the node's answer; whether it is to an announcement, which is nobody else's."""
        key = (str(answer.get("to")), str(answer.get("id")))
        claim = self._claims.get(key)
        code = _code_of(body)
        if claim is None or code < 200:
            return False
        del self._claims[key]
        is_again = str(claim["id"]).startswith(self._mark)
        asked = claim.get("body") or {}
        named = [asked.get("resources") or [], asked.get("resource") or []]
        found = [each for x in named for each in (x if isinstance(x, list) else [x])]
        for address in found:
            if claim["type"] == "unsubscribe" or (is_again and code != 200):
                self._held.pop(address, None)
            elif code == 200 and isinstance(address, str) and len(self._held) < _MAX_HELD:
                source = asked.get("source")
                source = source if isinstance(source, str) else ""
                self._held[address] = claim["from"], claim["to"], source
        if is_again and code != 200:
            text = f"The node answers {code} to {len(found)} addresses that it held before."
            self._say("gap", text)
        return is_again

    async def _announce(self, socket: ClientConnection) -> None:
        """Tell a node that has forgotten us what it held, before anything else goes out."""
        batches: dict[tuple[str, str, str], list[str]] = {}
        for address, key in self._held.items():
            batches.setdefault(key, []).append(address)
        for (sender, to, source), addresses in batches.items():
            for first in range(0, len(addresses), _AT_A_TIME):
                id_ = f"{self._mark}/again/{next(self._ids)}"
                body: dict[str, Any] = {"resources": addresses[first : first + _AT_A_TIME]}
                body |= {"via": self._mark, **({"source": source} if source else {})}
                frame = {"id": id_, "type": "subscribe", "from": sender, "to": to, "body": body}
                self._claims[sender, id_] = frame
                await socket.send(json.dumps(frame))

    # --- messages ---------------------------------------------------------------------------------

    def _received(self, message: Message) -> None:
        body = message.get("body") or {}
        if not isinstance(body, dict):
            return  # not ours to answer: nodes refuse it
        is_own = body.get("via") in (self._mark, self._stub_url)
        if not message or message.get("from") == _SESSION or is_own:
            return
        if self._claims and message.get("type") == "response" and self._granted(message, body):
            return
        try:
            self._bus.post_message({**message, "body": {**body, "via": self._stub_url}})
        except Exception as error:  # a listener's fault does not stop the stub
            context = {"message": "A listener of the bus failed.", "exception": error}
            asyncio.get_running_loop().call_exception_handler(context)
        if body.get("value") == "gap" and message.get("to") == f"{self.settings.runtimeURL}/status":
            self._say("gap", "The node could not keep all messages while the runtime was away.")

    def _send(self, message: Message) -> None:
        body = message.get("body") or {}
        if not isinstance(body, dict):
            self._refuse(message, 400, "The field `body` is not an object.")
            return
        if message["to"] == f"{self._stub_url}/status" or body.get("via") == self._stub_url:
            return
        frame = json.dumps(
            {**message, "body": {**body, "via": self._mark}},
            separators=(",", ":"),
            ensure_ascii=False,
        )
        limit = self.settings.max_frame
        try:
            size = len(frame) if frame.isascii() else len(frame.encode())
        except UnicodeEncodeError:
            self._refuse(message, 400, "The message has half of a surrogate pair.")
            return
        waiting = _Waiting(message, frame)
        if size > limit:
            self._refuse(message, 413, f"The message is larger than {limit} bytes.")
        elif self.state == "failed":
            self._refuse(message, 503, "The stub has failed: see its status.")
        elif self._queued + waiting.size > self.settings.max_queue:
            self._refuse(message, 503, "Too many messages wait for the node.")
        else:
            self._asks(message)
            self._queue.append(waiting)
            self._queued += waiting.size
            self._filled.set()
            self._begin()

    async def _write(self, socket: ClientConnection) -> None:
        """Send what waits; a message is taken from the queue only while the socket is open."""
        with contextlib.suppress(ConnectionClosed):
            while True:
                while self._queue and socket.state.name == "OPEN":
                    self._is_sending = True
                    await socket.send(self._take().frame)
                    self._is_sending = False
                if self._lost > 1:
                    self._say("gap", f"{self._lost} messages did not go out.")
                self._lost = 0
                self._filled.clear()
                await self._filled.wait()

    def _take(self) -> _Waiting:
        waiting = self._queue.popleft()
        self._queued -= waiting.size
        return waiting

    def _refuse(self, message: Message, code: int, text: str) -> None:
        """Say that a message does not go out: to who asked, or else to all."""
        to = message["to"] if isinstance(message["to"], str) else message["to"][0]
        is_event = message["type"] == "update" and to.endswith(("/changes", "/status"))
        if message["type"] == "response" or is_event or "id" not in message:
            self._lost += 1
            if self._lost == 1:
                self._say("gap", text)
            return
        body = {"code": code, "desc": text, "description": text, "via": self._stub_url}
        answer = {"id": message["id"], "type": "response", "from": to, "to": message["from"]}
        self._bus.post_message({**answer, "body": body})

    # --- status -----------------------------------------------------------------------------------

    def _enter(self, state: str, desc: str = "") -> None:
        if state != self.state:
            self.state = state
            self._say(state, desc)

    def _say(self, value: str, desc: str = "") -> None:
        body = {"value": value, "desc": desc} if desc else {"value": value}
        status = f"{self._stub_url}/status"
        self._bus.post_message(
            {"type": "update", "from": self._stub_url, "to": status, "body": body}
        )


def _code_of(body: dict[str, Any]) -> int:
    """The code of an answer: 500 for one that has none that can be read."""
    code = body.get("code")
    if isinstance(code, (int, str)) and re.fullmatch("[1-9][0-9]{2}", str(code), re.ASCII):
        return int(code)
    return 500


def _decoded(frame: str | bytes) -> Message:
    """The message of a frame; an empty one for what is none, which is not ours to answer."""
    try:
        message = json.loads(frame)
    except (ValueError, RecursionError):
        return {}
    return message if isinstance(message, dict) else {}


def _closing(socket: ClientConnection) -> Closing:
    """What the close of a socket asks of us, in the node's own words where it gave some."""
    known = CLOSE_CODES.get(socket.close_code or 0, _DROPPED)
    return known._replace(text=socket.close_reason or known.text)
