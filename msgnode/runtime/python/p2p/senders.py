"""Who may say what on a channel: only the runtime at its other end, and what is registered as its.

Rules
- An address below the runtime's URL is its own, one below another's is not. Any other is looked up
  in its domain's registry once in ten minutes: the entry has to name the runtime.
- The marks of a node are taken off: no node has seen what comes on a channel.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

from msgnode.core import addresses
from msgnode.runtime.python.inbound import is_private_status
from msgnode.runtime.python.listeners import Listening
from msgnode.runtime.python.message_bus import MessageBus
from msgnode.runtime.python.messages import (
    BadMessage,
    Message,
    answer_to,
    body_of,
    code_of,
    is_answerable,
    recipients,
    without_marks,
)

from .remote_runtime import Peer, plain
from .signalling import is_of

KNOWN_SECONDS = 600.0
MAX_KNOWN = 10_000
MAX_FORGED = 10
NO_BYTES = "There is no channel, and JSON cannot carry bytes."
_BACK_ENDS = frozenset({"domain", "global", "domain-idp", "mn"})


def names(message: Message) -> list[str]:
    """The addresses that a message says to come from."""
    body = body_of(message)
    said = (message["from"], body.get("source"), body.get("subscriber"))
    return [each for each in said if isinstance(each, str)]


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


class Forgeries:
    """How often the other sides of channels have spoken for others."""

    def __init__(self) -> None:
        self._at: OrderedDict[str, list[float]] = OrderedDict()

    def is_too_many(self, runtime: str) -> bool:
        """Count one; whether it is the tenth in a minute."""
        now = asyncio.get_running_loop().time()
        lately = [*(at for at in self._at.get(runtime, ()) if at > now - 60.0), now]
        self._at[runtime] = lately[-MAX_FORGED:]
        if len(self._at) > MAX_KNOWN:
            self._at.popitem(last=False)
        return len(lately) >= MAX_FORGED


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


class Whereabouts:
    """In which runtime an address is, as the registry of its domain says."""

    def __init__(self, bus: MessageBus) -> None:
        self._bus = bus
        self._known: OrderedDict[str, tuple[dict[str, Any], float]] = OrderedDict()
        self._said: OrderedDict[tuple[str, str], tuple[dict[str, Any], float]] = OrderedDict()
        self._asked: dict[str, asyncio.Task[None]] = {}

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
            is_same = str(named).removeprefix("hyperty-") == said[0]["runtime"].removeprefix(
                "hyperty-"
            )
            return said[0] if is_same else record
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
        key = sender, _placed(address)
        self._said[key] = {"runtime": runtime, "p2pHandler": handler}, until
        self._said.move_to_end(key)
        if len(self._said) > MAX_KNOWN:
            self._said.popitem(last=False)

    def note(self, address: str, record: dict[str, Any]) -> None:
        """Keep what is known of an address."""
        until = asyncio.get_running_loop().time() + KNOWN_SECONDS
        url = _placed(address)
        self._known[url] = record, until
        self._known.move_to_end(url)
        if len(self._known) > MAX_KNOWN:
            self._known.popitem(last=False)

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


# What channels bring: into the bus, if its sender is in the runtime at the other end.


class Arrivals:
    """Takes the messages of all channels of one runtime."""

    def __init__(self, bus: MessageBus, whereabouts: Whereabouts) -> None:
        self._bus = bus
        self._whereabouts = whereabouts
        self._forgeries = Forgeries()

    def take(self, peer: Peer, message: Message, then: Callable[[], None] | None = None) -> bool:
        """Take in what came from a peer.

        Args:
            peer: whose channel or stub brought it.
            message: the message.
            then: is called after the look-up, instead of going on with the channel.

        Returns:
            False if its sender has to be looked up first.
        """
        try:
            is_one = isinstance(message.get("to"), str) and len(recipients(message)) == 1
        except BadMessage:
            is_one = False
        if not is_one:
            self._bus.counters["p2p.bad"] += 1
            return True
        for name in names(message):
            if is_of(name, peer.runtime):
                continue
            record = {} if runtime_of(name) else self._whereabouts.of(name)
            if record is None:
                self._whereabouts.ask(name, then or peer.proceed)
                return False
            if plain(str(record.get("runtime"))) != plain(peer.runtime):
                self._forbid(peer, message, f"{name} is not known to be in {peer.runtime}.")
                return True
        if addresses.is_p2p_stub(message["to"]):
            self._forbid(peer, message, "Signalling goes through the node.")
            return True
        if is_private_status(message["to"], self._bus.runtime_url):
            self._bus.counters["p2p.bad"] += 1
            return True
        if message["type"] == "response":
            if not self._bus.is_expected(message, peer.via):
                self._bus.unclaimed(message)
                return True
            if code_of(message) == 404:
                self._whereabouts.forget(message["from"])
        self._bus.receive(without_marks(message), peer.via)
        return True

    def _forbid(self, peer: Peer, message: Message, text: str) -> None:
        self._bus.report("p2p.forged", f"{peer.runtime} posted as another: {text}")
        if self._forgeries.is_too_many(peer.runtime):
            asyncio.get_running_loop().call_soon(peer.bye, "forbidden")
        elif is_answerable(message) and message.get("id"):
            answer = answer_to(message, 403, text)
            peer.wrap((answer["to"], str(answer["id"])))
            peer.send(answer, 0)
