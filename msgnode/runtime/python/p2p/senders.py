"""Which messages take a channel, in which runtime an address is, and so who may say what.

It follows docs/reference/p2p.md, rows 34-38.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any

from msgnode.core import addresses
from msgnode.runtime.python.destinations import NoDestination, destination
from msgnode.runtime.python.inbound import is_private_status
from msgnode.runtime.python.listeners import Listening
from msgnode.runtime.python.message_bus import MessageBus, Outside
from msgnode.runtime.python.messages import (
    BadMessage,
    Message,
    answer_to,
    body_of,
    code_of,
    recipients,
)
from msgnode.runtime.python.settings import Settings

from .frames import content_of
from .states import is_of, keep_newest, plain, runtime_of_handler

KNOWN_SECONDS = 600.0
MAX_FORGED = 10
ON_THE_WAY = 60.0  # seconds after which what went through the node has arrived
MAX_SENT = 1_000  # addresses that are remembered; of more than that, those sent to last
NO_BYTES = "There is no channel, and JSON cannot carry bytes."
_BACK_ENDS = frozenset({"domain", "global", "domain-idp", "mn"})


def names(message: Message) -> list[str]:
    """The addresses that a message says to come from."""
    body = body_of(message)
    said = (message["from"], body.get("source"), body.get("subscriber"))
    return [each for each in said if isinstance(each, str)]


def is_unregistered(message: Message, unregistered: set[str]) -> bool:
    """Whether the other side of a channel would not believe it: no registry has the sender."""
    return bool(unregistered) and any(each in unregistered for each in names(message))


def is_for_node(message: Message) -> bool:
    """Whether a message takes no channel: it has many readers, is for a back-end, or signals."""
    to = message["to"]
    if addresses.parse(to).scheme in _BACK_ENDS or addresses.is_event(to):
        return True
    said = (to, *names(message))
    return any(addresses.is_p2p_stub(each) for each in said) or to.startswith("connection:")


def without_peer(message: Message) -> Message:
    """The message without what names its receiver's runtime: that is for the sender's alone."""
    body = body_of(message)
    if "peer" not in body:
        return message
    return {**message, "body": {key: body[key] for key in body if key != "peer"}}


def without_bytes(answer: Message) -> Message:
    """What takes the place of an answer whose content is bytes, where there is no channel."""
    asked = {"id": answer.get("id"), "from": answer["to"], "to": answer["from"]}
    return answer_to(asked, 503, NO_BYTES)


def runtime_of(address: str) -> str:
    """The runtime that an address is below, spelt `runtime`; "" if it is below none.

    >>> runtime_of("hyperty-runtime://d/1/app"), runtime_of("runtime://d/protostub/1")
    ('runtime://d/1', '')
    """
    parsed = addresses.parse(address)
    guid = parsed.path.strip("/").partition("/")[0]
    is_below_one = parsed.scheme in addresses.RUNTIME_SCHEMES and guid not in ("", "protostub")
    return f"runtime://{parsed.domain}/{guid}" if is_below_one else ""


def _placed(address: str) -> str:
    """What an address is looked up by: its runtime's URL, or the object it is a part of."""
    return runtime_of(address) or addresses.resource_of(address)


class NodePath:
    """The way through the node, which nothing on a channel may overtake."""

    def __init__(self, bus: MessageBus, node: Outside, settings: Settings) -> None:
        self._bus = bus
        self._node = node
        self._settings = settings
        self._sent_at: OrderedDict[str, float] = OrderedDict()

    def send(self, message: Message, size: int, stub: str) -> str:
        """Take a message out through the node; bytes, which JSON cannot carry, are refused."""
        if content_of(message) is None:
            return self._node.send(message, size, stub)
        if message["type"] == "response":
            return self._node.send(without_bytes(message), 0, stub)
        self._bus.refuse(message, 503, NO_BYTES)
        return stub

    def is_shared(self, to: str, signalling: str) -> bool:
        """Whether what is sent to an address goes the way of the signalling with a runtime."""
        try:
            key = destination(signalling, self._settings).key
            return destination(to, self._settings).key == key
        except NoDestination:
            return False

    def sent(self, to: str, now: float) -> None:
        """A message went there through the node while a channel was in use."""
        keep_newest(self._sent_at, to, now, MAX_SENT)

    def take_sent(self, to: str, now: float) -> bool:
        """Whether one may still be on the way there; only the first who asks is told so."""
        at = self._sent_at.pop(to, None)
        return at is not None and now - at < ON_THE_WAY


class Verdict(Enum):
    """What a message is that a channel brought."""

    GOOD = 0
    BAD = 1
    UNKNOWN = 2  # an address has to be looked up first
    FORGED = 3


class Whereabouts:
    """In which runtime an address is, as the registry of its domain says."""

    def __init__(self, bus: MessageBus) -> None:
        self._bus = bus
        self._known: OrderedDict[str, tuple[dict[str, Any], float]] = OrderedDict()
        self._said: OrderedDict[tuple[str, str], tuple[dict[str, Any], float]] = OrderedDict()
        self._asked: dict[str, asyncio.Task[None]] = {}
        self._forged: OrderedDict[str, list[float]] = OrderedDict()

    def judge(self, message: Message, runtime: str) -> tuple[Verdict, str]:
        """What a message is that a channel of this runtime brought.

        Returns:
            The verdict, and the address to be looked up, or what is wrong.
        """
        try:
            is_one = isinstance(message.get("to"), str) and len(recipients(message)) == 1
        except BadMessage:
            is_one = False
        if not is_one:
            return Verdict.BAD, ""
        for name in names(message):
            if is_of(name, runtime):
                continue
            record = {} if runtime_of(name) else self.of(name)
            if record is None:
                return Verdict.UNKNOWN, name
            if plain(str(record.get("runtime"))) != plain(runtime):
                return Verdict.FORGED, f"{name} is not known to be in {runtime}."
        if addresses.is_p2p_stub(message["to"]):
            return Verdict.FORGED, "Signalling goes through the node."
        is_private = is_private_status(message["to"], self._bus.runtime_url)
        return Verdict.BAD if is_private else Verdict.GOOD, ""

    def is_too_many_forged(self, runtime: str) -> bool:
        """Count a message in another's name; whether it is the tenth in a minute."""
        now = asyncio.get_running_loop().time()
        lately = [*(at for at in self._forged.get(runtime, ()) if at > now - 60.0), now]
        keep_newest(self._forged, runtime, lately[-MAX_FORGED:])
        return len(lately) >= MAX_FORGED

    def of(self, address: str, sender: str = "") -> dict[str, Any] | None:
        """What is known of an address, {} if nothing; None if the registry has to be asked.

        Args:
            address: any.
            sender: whose own word counts besides, where the registry names no other runtime.
        """
        now = asyncio.get_running_loop().time()
        url = _placed(address)
        found, said = self._known.get(url), self._said.get((sender, url))
        record = found[0] if found is not None and found[1] >= now else None
        if said is not None and said[1] >= now:
            named = (record or {}).get("runtime") or said[0]["runtime"]
            return said[0] if plain(str(named)) == plain(said[0]["runtime"]) else record
        return record

    def place_of(self, address: str, sender: str) -> tuple[str, str]:
        """Runtime and handler where an address was last, however long ago; "" for unknown."""
        found = self._known.get(_placed(address))
        record = self.of(address, sender) or (found[0] if found is not None else {})
        runtime, handler = record.get("runtime"), record.get("p2pHandler")
        return (
            runtime if isinstance(runtime, str) else "",
            handler if isinstance(handler, str) else "",
        )

    def said_by(self, sender: str, address: str) -> str:
        """The handler that a sender has named for an address, "" for none."""
        said = self._said.get((sender, _placed(address)))
        if said is None or said[1] < asyncio.get_running_loop().time():
            return ""
        return str(said[0]["p2pHandler"])

    def to_dial(
        self, address: str, sender: str, named: str, dial: Callable[[str, str], object]
    ) -> None:
        """Have a receiver's runtime dialled, as soon as it is known where that is.

        Args:
            address: the receiver's.
            sender: whose message it is.
            named: the handler that he names, "" for none.
            dial: called with the runtime and its handler.
        """
        if named:
            self.say(sender, address, runtime_of_handler(named), named)

        def found() -> None:
            record = self.of(address, sender) or {}
            handler, place = record.get("p2pHandler"), record.get("runtime")
            runtime = runtime_of_handler(handler) if isinstance(handler, str) else ""
            is_there = not isinstance(place, str) or plain(place) == plain(runtime)
            if runtime and is_there and plain(runtime) != plain(self._bus.runtime_url):
                dial(runtime, str(handler))

        if self.of(address, sender) is None:
            self.ask(address, found)
        else:
            found()

    def renew(self, address: str, sender: str) -> None:
        """Ask again if that was long ago; until then it counts."""
        if self.of(address, sender) is None and _placed(address) not in self._asked:
            self.ask(address, lambda: None)

    def forget(self, address: str) -> None:
        """The other side does not know the address: look again when it is needed."""
        self._known.pop(_placed(address), None)

    def say(self, sender: str, address: str, runtime: str, handler: str) -> None:
        """Keep what a sender says of his receiver. It is his word: nobody else goes by it."""
        until = asyncio.get_running_loop().time() + KNOWN_SECONDS
        record = {"runtime": runtime, "p2pHandler": handler}
        keep_newest(self._said, (sender, _placed(address)), (record, until))

    def note(self, address: str, record: dict[str, Any]) -> None:
        """Keep what is known of an address."""
        until = asyncio.get_running_loop().time() + KNOWN_SECONDS
        keep_newest(self._known, _placed(address), (record, until))

    def ask(self, address: str, then: Callable[[], None]) -> None:
        """Ask the registry, unless it is being asked; then call `then`."""
        url = _placed(address)
        task = self._asked.get(url)
        if task is None:
            task = self._asked[url] = asyncio.create_task(self._look(url))
            task.add_done_callback(lambda _: self._asked.pop(url, None))
        task.add_done_callback(lambda done: None if done.cancelled() else then())

    async def _look(self, url: str) -> None:
        """Ask the registry, or the runtime itself for where it can be dialled."""
        record: dict[str, Any] = {}
        runtime = runtime_of(url)
        registry = f"domain://registry.{addresses.parse(url).home}"
        request = {
            "type": "read",
            "from": f"{self._bus.runtime_url}/registry/",
            "to": f"{runtime}/p2phandler" if runtime else registry,
            "body": {"resource": url},
        }
        try:
            answer = await self._bus.request(request, 10.0)
        except TimeoutError:
            pass
        else:
            value = body_of(answer).get("value")
            if code_of(answer) == 200 and isinstance(value, dict):
                told = {"runtime": runtime, "p2pHandler": value.get("p2pHandler")}
                record = told if runtime else value
        self.note(url, record)

    def tell_own(self, registration: Mapping[str, str]) -> Listening:
        """Tell who reads `<runtime URL>/p2phandler` how this runtime is dialled."""
        runtime = self._bus.runtime_url

        def asked(message: Message) -> None:
            if message["type"] == "response" or "via" not in body_of(message):
                return
            text = "Here one reads where the runtime can be dialled."
            answer = answer_to(message, 405, text)
            if message["type"] == "read":
                answer["body"] = {"code": 200, "value": {"runtime": runtime, **registration}}
            self._bus.post_message(answer)

        return self._bus.add_listener(f"{runtime}/p2phandler", asked)

    def close(self) -> None:
        """Ask nothing any more."""
        for task in list(self._asked.values()):
            task.cancel()
