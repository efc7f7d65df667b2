"""The stubs of a runtime by destination, and the state of each.

    ""  ->  deploying  ->  created  ->  in-progress  ->  live  <->  disconnected
               |                          \\-> failed    (a dead sandbox is `disconnected` too)
               \\->  deployment-failed, until `retry_at`

Rules
- Messages for a stub that is not there yet wait in one queue per destination, in order and bounded:
  MAX_WAITING messages or MAX_WAITING_SIZE characters.
- The URL of a stub is made with its entry and stays when its sandbox is started again.
"""

from __future__ import annotations

import asyncio
import re
import uuid
from collections import OrderedDict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from .descriptor import Descriptor
from .messages import Message, body_of, code_of, is_answerable, is_final

MAX_WAITING = 1_000
MAX_WAITING_SIZE = 4 * 1024 * 1024
MAX_OPEN = 10_000  # requests of one stub whose answers are awaited
MAX_ENTRIES = 10_000
ANSWER_AGE = 180.0  # seconds after which nobody waits for an answer any more

USABLE = frozenset({"deployed", "created", "in-progress", "live", "disconnected"})
GETTING_LIVE = frozenset({"deployed", "created", "in-progress"})
"""A stub that is there and says neither that it is live nor that it cannot be."""
SYNONYMS = {"connected": "live", "create": "created"}
STATES = USABLE | {"failed"}
_AT_NODE = re.compile(r"domain://msg-node\.[^/]+/(sm|(?:hyperty-|object-)?address-allocation)")


class Held(NamedTuple):
    """Who subscribed an address, where, and for whom."""

    sender: str
    to: str
    source: str = ""


class Stub(Protocol):
    """A stub that was started, wherever it runs."""

    url: str

    @property
    def is_ended(self) -> bool:
        """Whether its sandbox has ended."""
        ...

    def post(self, message: Message) -> bool:
        """Hand it a message; False if it is gone."""
        ...

    async def connect(self, identity: Any = None) -> None:
        """Have it open its session."""
        ...

    async def stop(self) -> None:
        """Disconnect it and take it away."""
        ...

    def kill(self, reason: str) -> None:
        """Take it away at once."""
        ...


@dataclass(slots=True, eq=False)
class StubEntry:
    """What is known of the stub of one destination.

    key      the domain, or `<scheme>.<domain>` of a legacy network, `domain-idp://<domain>` of an
             identity proxy
    code     of the answer to messages while the stub failed, `desc` its words
    open     requests that went out and are not answered
    held     what the runtime has at that domain's node: subscriptions, allocated addresses
    was_live  whether it ever was
    due_since  when it was given something to do and was not live, 0 if it need not be
    """

    key: str
    domain: str
    kind: str
    url: str
    status: str = ""
    desc: str = ""
    code: int = 0
    stub: Stub | None = None
    descriptor: Descriptor | None = None
    source: str = ""
    failures: int = 0
    retry_at: float = 0.0
    last_used: float = 0.0
    checked_at: float = 0.0
    waiting: deque[tuple[Message, int]] = field(default_factory=deque)
    waiting_size: int = 0
    open: OrderedDict[tuple[str, str], tuple[Message, float]] = field(default_factory=OrderedDict)
    held: dict[str, Held] = field(default_factory=dict)
    was_live: bool = False
    task: asyncio.Task[None] | None = None
    due_since: float = 0.0

    @property
    def max_frame(self) -> int:
        """Most bytes of a message that its node takes, 0 if the descriptor does not say."""
        configuration = self.descriptor.configuration if self.descriptor else {}
        most = configuration.get("maxFrame", configuration.get("max_frame", 0))
        return most if isinstance(most, int) else 0

    def enter(self, status: str, desc: str) -> None:
        """It is in another state now."""
        self.status, self.desc = status, desc
        if status not in GETTING_LIVE:
            self.due_since = 0.0

    def expect_live(self, now: float) -> None:
        """It has something to do; an identity proxy connects to nothing."""
        if self.status in GETTING_LIVE and self.kind != "idp-proxy":
            self.due_since = self.due_since or now

    def is_late(self, now: float, seconds: float) -> bool:
        """Whether it had so long to be live."""
        return self.due_since > 0 and now - self.due_since >= seconds

    def has_room(self, size: int) -> bool:
        """Whether one more message may wait."""
        return len(self.waiting) < MAX_WAITING and self.waiting_size + size <= MAX_WAITING_SIZE

    def wait(self, message: Message, size: int) -> None:
        """Keep a message until the stub is there."""
        self.waiting.append((message, size))
        self.waiting_size += size

    def take_waiting(self) -> Iterator[Message]:
        """What waits, in order; what is added meanwhile comes last."""
        while self.waiting:
            message, size = self.waiting.popleft()
            self.waiting_size -= size
            yield message

    def is_idle(self, now: float) -> bool:
        """Whether nobody waits for anything through this stub."""
        while self.open and now - next(iter(self.open.values()))[1] > ANSWER_AGE:
            self.open.popitem(last=False)
        return not (self.open or self.held or self.waiting)

    def sent(self, message: Message, now: float) -> None:
        """Note what a message that goes out asks of the other side."""
        self.expect_live(now)
        if is_answerable(message):
            self.open[message["from"], str(message["id"])] = message, now
            if len(self.open) > MAX_OPEN:
                self.open.popitem(last=False)
        if not _AT_NODE.fullmatch(message["to"]):
            return
        body = body_of(message)
        if message["type"] == "subscribe":
            source = body.get("source")
            source = source if isinstance(source, str) else ""
            held = Held(message["from"], message["to"], source)
            self.held.update(dict.fromkeys(_named(body), held))
        elif message["type"] in ("unsubscribe", "delete"):
            self._forget(_named(body))

    def _forget(self, addresses: list[str]) -> None:
        for each in addresses:
            self.held.pop(each, None)

    def received(self, message: Message) -> None:
        """Note what an answer says of it; what brings something in is live, whatever it says."""
        self.due_since = 0.0
        if message["type"] != "response":
            return
        key = (message["to"], str(message.get("id")))
        code = code_of(message)
        request, _ = self.open.get(key, (None, 0.0))
        if request is None or not is_final(code):
            return
        del self.open[key]
        at_node = _AT_NODE.fullmatch(request["to"])
        if at_node is None:
            return
        if request["type"] == "subscribe" and code != 200:
            self._forget(_named(body_of(request)))
        elif request["type"] == "create" and code == 200:
            value = body_of(message).get("value")
            allocated = value.get("allocated") if isinstance(value, dict) else None
            held = Held(request["from"], request["to"][: at_node.start(1)] + "sm")
            self.held.update(dict.fromkeys(_texts(allocated), held))


def _named(body: dict[str, Any]) -> list[str]:
    found: list[str] = []
    for name in ("resource", "resources", "childrenResources"):
        value = body.get(name)
        found += _texts(value if isinstance(value, list) else [value])
    return found


def _texts(value: Any) -> list[str]:
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []


class StubList:
    """The entries of a runtime."""

    def __init__(self) -> None:
        self._entries: dict[str, StubEntry] = {}
        self._urls: dict[str, StubEntry] = {}

    def __iter__(self) -> Iterator[StubEntry]:
        return iter(tuple(self._entries.values()))

    def get(self, key: str) -> StubEntry | None:
        """The entry of a destination."""
        return self._entries.get(key)

    def of_url(self, url: str) -> StubEntry | None:
        """The entry whose stub has this URL, or had it until it was replaced."""
        return self._urls.get(url)

    def add(self, key: str, domain: str, kind: str) -> StubEntry | None:
        """A new entry, None if there are too many that are in use."""
        if len(self._entries) >= MAX_ENTRIES:
            unused = next((each for each in self if each.stub is None and each.task is None), None)
            if unused is None:
                return None
            self.remove(unused)
        entry = StubEntry(key, domain, kind, new_url(domain, kind))
        self._entries[key] = entry
        self._urls[entry.url] = entry
        return entry

    def rename(self, entry: StubEntry, url: str) -> None:
        """Give the stub of an entry another URL; the old one goes on being known until forget()."""
        entry.url = url
        self._urls[url] = entry

    def forget(self, url: str) -> None:
        """Know a URL no longer."""
        self._urls.pop(url, None)

    def remove(self, entry: StubEntry) -> None:
        """Know a destination no longer."""
        self._entries.pop(entry.key, None)
        for url in [url for url, each in self._urls.items() if each is entry]:
            del self._urls[url]


def back_off(bounds: tuple[float, float], failures: int) -> float:
    """Seconds before the next try after so many failures: doubling, between these bounds."""
    first, longest = bounds
    return float(min(longest, first * 2 ** min(failures, 20)))


def status_of(message: Message) -> tuple[str, str, dict[str, Any]]:
    """The state that a status event says, "" if none; its words; its body."""
    body = message.get("body")
    body = body if isinstance(body, dict) else {"value": body}
    value, desc = body.get("value"), body.get("desc")
    value = SYNONYMS.get(value, value) if isinstance(value, str) else ""
    return value, desc if isinstance(desc, str) else "", body


def new_url(domain: str, kind: str) -> str:
    """A URL for a stub of a domain."""
    if kind == "idp-proxy":
        return f"domain-idp://{domain}/stub/{uuid.uuid4()}"
    return f"runtime://{domain}/protostub/{uuid.uuid4()}"
