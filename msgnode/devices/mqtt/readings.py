"""The readings of sensors: a message as the value of an attribute, and the data objects they go to.

Devices write JSON with what `printf` makes of a number that they have not (`nan`, `inf`) and with
names in other encodings than UTF-8. Each such field is null, or cannot be read; the others are.

The data objects of a topic are claimed by its session; readings wait until they are. Rules
- Many objects are claimed at once, each by subscribing it and its subscription address.
- If the node cannot determine an object's owner now, the claim is repeated. Its readings wait
  meanwhile, in order, unacknowledged: of QoS 0 a limited number, of QoS 1 as many as the broker
  sends. After HELD_SECONDS they are carried anyway, and refused if necessary.
- An object that is refused for good delays no readings, nor does a session that has ended.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec

from msgnode.core import messages
from msgnode.core.errors import BadMessage, GatewayTimeout, NodeError, Unavailable
from msgnode.core.faults import FAULTS
from msgnode.sessions.frame_connection import FrameConnection

from .counters import MqttCounters
from .delivery import Delivery
from .session import BrokerSession, TooFast

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode
_BLANKS = b" \t\r\n"
_NO_NUMBER = re.compile(  # outside of texts; a text that does not end goes to the end, once
    r'("(?:[^"\\]|\\.)*"?)|[-+]?\b(?:nan|inf(?:inity)?)\b', re.IGNORECASE | re.DOTALL
)


def value_of(payload: bytes, path: tuple[str, ...]) -> bytes:
    """The value in a payload, as JSON text.

    Args:
        payload: JSON, or a text that is none and is then the value itself.
        path: the names that lead to the value; numbers are places in a list.

    Raises:
        BadMessage: it has no such value.

    >>> value_of(b"20.5", ()), value_of(b"on", ()), value_of(b'{"t": {"c": 20}}', ("t", "c"))
    (b'20.5', b'"on"', b'20')
    >>> value_of(b'{"t": 20, "h": nan}', ("t",)), value_of(b'{"t": 20, "h": nan}', ())
    (b'20', b'{"t":20,"h":null}')
    """
    try:
        value: Any = _decode(payload)
    except (ValueError, RecursionError):
        value = _repaired(payload)
        if value is None and path:
            raise BadMessage("The payload is no JSON.") from None
        if value is None:
            value = _decoded(payload)
    for name in path:
        if isinstance(value, dict) and name in value:
            value = value[name]
        elif isinstance(value, list) and name.isdigit() and int(name) < len(value):
            value = value[int(name)]
        else:
            raise BadMessage(f"The payload has no {'.'.join(path)}.")
    try:
        return _encode(value)
    except (ValueError, OverflowError):
        raise BadMessage("The value in the payload cannot be written as JSON.") from None


def form_of(payload: bytes, before: bool) -> bool:
    """Whether a reading is JSON, and no plain text; `before` where that cannot be told.

    >>> form_of(b'{"on": 1}', False), form_of(b"on", True), form_of(b"20.5", True)
    (True, False, True)
    """
    if payload.lstrip(_BLANKS)[:1] in (b"{", b"["):
        return True
    try:
        value = _decode(payload)
    except (ValueError, RecursionError):
        return False
    return True if isinstance(value, str) else before


def written(value: Any, is_json: bool) -> bytes:
    """What is published for the value of a command.

    Args:
        value: of the command.
        is_json: whether a text is written as JSON, too.

    >>> written("off", False), written("off", True), written(20, False), written({"a": 1}, False)
    (b'off', b'"off"', b'20', b'{"a":1}')
    """
    if isinstance(value, str) and not is_json:
        return value.encode()
    return _encode(value)


def _repaired(payload: bytes) -> Any:
    """An object or a list of which single fields are no JSON; None if it is neither."""
    text = payload.decode(errors="replace").lstrip("\ufeff")
    if text.lstrip()[:1] not in ("{", "["):
        return None
    try:
        return _clean(
            json.loads(_NO_NUMBER.sub(lambda found: found[1] or "null", text), strict=False)
        )
    except (ValueError, RecursionError):
        return None


def _clean(value: Any) -> Any:
    """The value with null for numbers that are none, and without halves of characters."""
    if isinstance(value, dict):
        return {_clean(name): _clean(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_clean(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, str):
        return value.encode(errors="replace").decode()
    return value


def _decoded(payload: bytes) -> str:
    try:
        return payload.decode()
    except UnicodeDecodeError:
        raise BadMessage("The payload is neither JSON nor text.") from None


HELD_AT_MOST = 1_000
"""Readings of QoS 0 that may wait for the claims of a topic."""
HELD_SECONDS = 30.0
CLAIM_SECONDS = 10.0
_CLAIMED_AT_ONCE = 100
_PASSING = (Unavailable.code, GatewayTimeout.code)
_CLAIM_AGAIN = 0.5  # seconds until it is tried again where the node could not answer yet


class SensorObject:
    """A data object: the frame of its updates up to the value, and the last value.

    `is_json` tells whether texts for it are written as JSON. `held` are the readings that wait for
    its claim, None once they need not; `since` is when that began.
    """

    __slots__ = ("url", "head", "value", "is_json", "held", "since")

    def __init__(self, url: str, attribute: str) -> None:
        self.url = url
        self.value = b"null"
        self.is_json = False
        self.head = b'"type":"update","from":%b,"to":%b,"body":{"attribute":%b,"value":' % (
            _encode(url), _encode(f"{url}/changes"), _encode(attribute),
        )  # fmt: skip
        self.wait()

    def wait(self) -> None:
        """Readings wait from now on."""
        self.held: deque[tuple[Delivery, bytes]] | None = deque()
        self.since = asyncio.get_running_loop().time()


class ObjectClaims:
    """The objects of one topic. `refuse` is called with readings that are not carried, and why."""

    def __init__(
        self,
        session: BrokerSession,
        domain: str,
        ids: Iterator[int],
        counters: MqttCounters,
        refuse: Callable[[Delivery, bytes, NodeError], None],
    ) -> None:
        self.objects: dict[str, SensorObject] = {}  # by URL
        self._session = session
        self._domain = domain
        self._ids = ids
        self._counters = counters
        self._refuse = refuse
        self._unclaimed: deque[str] = deque()
        self._claiming: asyncio.Task[None] | None = None
        self._number_held = 0

    def enter(self, url: str, attribute: str) -> SensorObject:
        """A new object, to be claimed."""
        found = self.objects[url] = SensorObject(url, attribute)
        self._unclaimed.append(url)
        self._claim()
        return found

    def take(self, found: SensorObject, delivery: Delivery, frame: bytes) -> None:
        """Carry a reading, now or once the object is claimed."""
        if found.held is None or not (found.held or self._session.is_open):
            self._session.take(delivery, frame)
        elif not delivery.qos and (self._number_held >= HELD_AT_MOST or delivery.client.is_filling):
            self._refuse(delivery, frame, TooFast())
            delivery.done()
        else:
            self._number_held += 1
            found.held.append((delivery, frame))

    async def claim_again(self) -> None:
        """Claim all objects, because the session is new or resumed."""
        for each in self.objects.values():
            if each.held is None:
                each.wait()
        self._unclaimed = deque(self.objects)
        self._claim()
        if self._claiming is not None:
            await asyncio.wait([self._claiming], timeout=HELD_SECONDS)

    def stop(self) -> None:
        """Claim nothing more; readings that wait come again elsewhere."""
        for each in self.objects.values():
            each.held = None
        if self._claiming is not None:
            self._claiming.cancel()

    # --- claiming ---------------------------------------------------------------------------------

    def _claim(self) -> None:
        if self._claiming is None and self._unclaimed and self._session.is_open:
            self._claiming = asyncio.create_task(self._claim_all())
            self._claiming.add_done_callback(self._claimed)

    def _claimed(self, task: asyncio.Task[None]) -> None:
        self._claiming = None
        if task.cancelled():
            return
        if (error := task.exception()) is not None:
            FAULTS.note("MQTT session", error)
        if self._unclaimed and self._session.is_open:
            self._claim()
        else:  # the session has ended: readings wait for the next one like all its frames
            self._carry_held(self.objects)

    async def _claim_all(self) -> None:
        """Claim the objects and listen at their subscription addresses, many at once."""
        while self._unclaimed:
            connection = self._session.connection
            if connection is None:
                return
            number = min(len(self._unclaimed), _CLAIMED_AT_ONCE)
            urls = [self._unclaimed.popleft() for _ in range(number)]
            code = await self._ask_for(connection, urls)
            again = urls if code in _PASSING else []
            if code != 200 and not again:
                again = [u for u in urls if await self._ask_for(connection, [u]) in _PASSING]
            late = asyncio.get_running_loop().time() - HELD_SECONDS
            self._carry_held(u for u in urls if u not in again or self.objects[u].since < late)
            if again:  # whose they were may have ended just now
                self._unclaimed.extend(again)
                await asyncio.sleep(_CLAIM_AGAIN)

    def _carry_held(self, urls: Iterable[str]) -> None:
        """Readings of these objects wait no longer for claims."""
        for url in urls:
            found = self.objects[url]
            held, found.held = found.held, None
            for delivery, frame in held or ():
                self._number_held -= 1
                self._session.take(delivery, frame)

    async def _ask_for(self, connection: FrameConnection, urls: list[str]) -> int:
        """Claim objects; the code of the answer."""
        resources = [each for url in urls for each in (url, f"{url}/subscription")]
        frame = _encode(
            {
                "id": next(self._ids),
                "type": "subscribe",
                "from": self._session.runtime_url,
                "to": f"domain://msg-node.{self._domain}/sm",
                "body": {"resources": resources},
            }
        )
        until = asyncio.get_running_loop().time() + CLAIM_SECONDS
        try:
            carried = await connection.carry_through(messages.parse(frame))
            response = await connection.response(carried, until)
        except NodeError as error:
            self._counters.last_error = error.description[:500]
            return error.code
        body = response.fields() if response is not None else {"code": 504}
        code = body.get("code")
        if code != 200 and len(urls) == 1:
            self._counters.last_error = f"{urls[0]}: {body.get('description', 'no answer')}"[:500]
        return code if isinstance(code, int) else 0
