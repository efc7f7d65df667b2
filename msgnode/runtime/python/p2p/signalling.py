"""Setting a connection up: the messages of both sides, through the node.

    requester (R, object C)                   handler (H, object D)
    create C/subscription -> H: invited   ──►
                                          ◄── execute H -> handler of the requester: confirm
                                          ◄── subscribe to C/subscription: has the offer
                                          ◄── create D/subscription -> R: announced
    execute R -> H: confirm               ──►
    subscribe to D/subscription: answer   ──►

With a runtime of the field nobody is asked to confirm, and descriptions come late (RemoteObject).

It follows docs/reference/p2p.md, rows 12-15.
"""

from __future__ import annotations

import asyncio
import secrets
import time
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from msgnode.core import addresses
from msgnode.runtime.python.listeners import Listening
from msgnode.runtime.python.message_bus import MessageBus
from msgnode.runtime.python.messages import Message, answer_to, body_of, code_of

from .rtc import MAX_CANDIDATES, MAX_SDP, PROTOCOL, Description
from .states import is_of

SCHEMA = "hyperty-catalogue://catalogue.{}/.well-known/dataschema/Connection"
MAX_CANDIDATE = 1_024  # characters
SKEW = 30.0  # seconds that the clocks of two runtimes may differ


class SetUpError(Exception):
    """A step of the set-up was refused; `code` as in the answer."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class ConnectionObject:
    """One side's connection object, from its announcement to the end of the set-up.

    Args:
        signalling: asks and answers through the node.
        url: of the object.
        epoch: of the channel to be, new with each.
        stub: whose it is.
        to: the other side's stub, which alone may read it.
        runtime: the other side's.
        described: what this side says of its connection.

    Attributes:
        on_read: called before the other side reads it; a SetUpError is the answer instead.
    """

    def __init__(
        self,
        signalling: Signalling,
        url: str,
        epoch: str,
        stub: str,
        to: str,
        runtime: str,
        described: Description,
    ) -> None:
        self.url = url
        self.epoch = epoch
        self._signalling = signalling
        self._stub = stub
        self._to = to
        self._runtime = runtime
        self._described = described
        self._metadata = {
            "name": "P2PConnection",
            "schema": SCHEMA.format(addresses.parse(url).domain),
            "reporter": stub,
            "runtime": signalling.bus.runtime_url,
            "created": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "resources": ["data"],
        }  # an observer of the field takes no object without all of it
        self.was_read = asyncio.Event()
        self.on_read: Callable[[], None] = _nothing
        self._listening: Listening | None = None
        self._is_claimed = False

    async def offer(self, expires: float) -> None:
        """Claim the address, and tell the other side. Raises SetUpError."""
        signalling = self._signalling
        self._is_claimed = True
        await signalling.claim(self.url, f"{self.url}/subscription")
        self._listening = signalling.bus.add_listener(f"{self.url}/subscription", self._asked)
        value = {
            **self._metadata,
            "protocol": PROTOCOL,
            "epoch": self.epoch,
            "instance": signalling.instance,
            "p2pHandler": signalling.handler,
            "expires": int(expires),
        }
        body = {"p2p": False, "source": self._stub, "value": value}
        body["schema"] = value["schema"]
        await signalling.ask("create", f"{self.url}/subscription", self._to, body)

    def free(self) -> None:
        """Give the address back."""
        if self._listening is not None:
            self._listening.remove()
        if self._is_claimed:
            self._signalling.unclaim(self.url, f"{self.url}/subscription")
        self._listening, self._is_claimed = None, False

    def _asked(self, message: Message) -> None:
        signalling = self._signalling
        if message["type"] != "subscribe":
            return
        is_for = body_of(message).get("subscriber") == self._to
        if not is_for or not is_of(message["from"], self._runtime):
            signalling.answer(message, 403, f"{self.url} is for {self._to} alone.")
            return
        data = {
            "name": "P2PConnection",
            "owner": self._stub,
            "runtime": signalling.bus.runtime_url,
            "runtimeURL": signalling.bus.runtime_url,
            "protocol": PROTOCOL,
            "epoch": self.epoch,
            "connectionDescription": self._described,
            "iceCandidates": [],
        }
        value = {**self._metadata, "url": self.url, "version": 1, "data": data}
        try:
            self.on_read()
        except SetUpError as error:
            signalling.answer(message, error.code, str(error))
            return
        self.on_read = _nothing
        self.was_read.set()
        signalling.answer(message, 200, "", value)


class Signalling:
    """What both sides say, and how."""

    def __init__(self, bus: MessageBus, handler: str, seconds: float) -> None:
        self.bus = bus
        self.handler = handler
        self.instance = secrets.token_hex(8)
        self._seconds = seconds

    def new_object(self, stub: str) -> str:
        """A URL for a connection object, in the domain of the stub's address."""
        return f"connection://{addresses.parse(stub).domain}/{uuid.uuid4()}"

    async def ask(self, type_: str, sender: str, to: str, body: dict[str, Any]) -> dict[str, Any]:
        """Ask and return the body of a good answer. Raises SetUpError."""
        message = {"type": type_, "from": sender, "to": to, "body": body}
        try:
            answer = await self.bus.request(message, self._seconds)
        except TimeoutError:
            raise SetUpError(408, f"{to} does not answer.") from None
        code, said = code_of(answer), body_of(answer)
        if code >= 300:
            raise SetUpError(code, str(said.get("desc") or f"{to} answered {code}."))
        return said

    async def claim(self, *named: str) -> None:
        """Have addresses delivered here, by the node of the first one's domain.

        No `source` says for whom: one below the runtime's URL would mean the newest session of that
        URL, which may be another process's.

        Args:
            named: the addresses.

        Raises:
            SetUpError: they are refused.
        """
        sm = f"domain://msg-node.{addresses.parse(named[0]).home}/sm"
        body = {"resources": list(named)}
        await self.ask("subscribe", f"{self.bus.runtime_url}/sm", sm, body)

    def unclaim(self, *named: str) -> None:
        """Have them delivered here no longer."""
        sm = f"domain://msg-node.{addresses.parse(named[0]).home}/sm"
        body = {"resources": list(named)}
        self.bus.post_message(
            {"type": "unsubscribe", "from": f"{self.bus.runtime_url}/sm", "to": sm, "body": body}
        )

    async def confirm(self, own: str, to: str, epoch: str, url: str) -> None:
        """Ask the runtime above `to` whether it made this object. Raises SetUpError."""
        body = {"method": "confirm", "params": [{"epoch": epoch, "resource": url}]}
        await self.ask("execute", own, to, body)

    async def described(self, url: str, own: str) -> Any:
        """What the other side's object describes. Raises SetUpError."""
        data = await self.data_of(url, own)
        return data.get("connectionDescription") if isinstance(data, dict) else None

    async def data_of(self, url: str, own: str) -> Any:
        """What the other side's object says. Raises SetUpError."""
        to = f"{url}/subscription"
        said = await self.ask("subscribe", f"{self.bus.runtime_url}/sm", to, {"subscriber": own})
        value = said.get("value")
        return value.get("data") if isinstance(value, dict) else None

    def answer(self, message: Message, code: int, text: str = "", value: Any = None) -> None:
        """Answer a message of the signalling."""
        answer = answer_to(message, code, text)
        if value is not None:
            answer["body"]["value"] = value
        self.bus.post_message(answer)


class Invited:
    """What an invitation or an announcement says; SetUpError for one that says too little."""

    def __init__(self, message: Message) -> None:
        body = body_of(message)
        value = body.get("value")
        value = value if isinstance(value, dict) else {}
        self.url = addresses.resource_of(message["from"])
        self.stub = _short_text(body.get("source"))
        self.runtime = _short_text(value.get("runtime") or value.get("runtimeURL"))
        self.is_field = value.get("protocol") != PROTOCOL
        self.epoch = secrets.token_hex(8) if self.is_field else _short_text(value.get("epoch"))
        self.handler = _short_text(value.get("p2pHandler"))
        self.instance = _short_text(value.get("instance"))
        expires = value.get("expires")
        if not addresses.is_p2p_stub(self.stub):
            raise SetUpError(400, "The body lacks `source`: a P2P stub.")
        if not (self.runtime and self.epoch):
            raise SetUpError(501, "An invitation names its runtime and its epoch.")
        if message["from"] != f"{self.url}/subscription":
            raise SetUpError(400, "An invitation comes from the object's /subscription.")
        if isinstance(expires, (int, float)) and expires + SKEW < time.time():
            raise SetUpError(410, "The invitation has expired.")


def asked_of(message: Message) -> tuple[Any, dict[str, Any]]:
    """Method and parameter of an `execute`. Raises SetUpError."""
    body = body_of(message)
    params = body.get("params")
    said = params[0] if isinstance(params, list) and params else None
    if not isinstance(said, dict):
        raise SetUpError(400, "The body lacks `params`: a list of one object.")
    return body.get("method"), said


def count(value: Any) -> int:
    """A count as the other side wrote it, 0 for what is none."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else 0


def _nothing() -> None:
    pass


def _short_text(value: Any) -> str:
    return value if isinstance(value, str) and len(value) <= addresses.MAX_HELD else ""


Candidate = dict[str, Any]


class Described:
    """What is known of the other side's connection. Pure.

    Args:
        kind: "offer" or "answer".
    """

    def __init__(self, kind: str) -> None:
        self.candidates: list[Candidate] = []
        self._kind = kind
        self._sdp = self._type = ""

    @property
    def description(self) -> Description | None:
        """The description, once it is whole."""
        is_whole = self._type == self._kind and self._sdp
        return {"sdp": self._sdp, "type": self._type} if is_whole else None

    def read(self, data: Any) -> None:
        """Take what the object says."""
        if isinstance(data, dict):
            self._describe(data.get("connectionDescription"))
            self._add(data.get("iceCandidates"))

    def change(self, body: dict[str, Any]) -> list[Candidate]:
        """Take a change; the candidates that are new with it."""
        attribute, value = body.get("attribute"), body.get("value")
        if not isinstance(attribute, str):
            return []
        name, _, part = attribute.partition(".")
        if name == "connectionDescription":
            self._describe({part: value} if part else value)
        elif name == "iceCandidates":
            return self._add(value)
        return []

    def _describe(self, value: Any) -> None:
        if not isinstance(value, dict):
            return
        sdp, kind = value.get("sdp"), value.get("type")
        if isinstance(sdp, str) and len(sdp) <= MAX_SDP:
            self._sdp = sdp
        if kind in ("offer", "answer"):
            self._type = kind

    def _add(self, value: Any) -> list[Candidate]:
        new = []
        for each in value if isinstance(value, list) else [value]:
            text = each.get("candidate") if isinstance(each, dict) else None
            if not isinstance(text, str) or not 0 < len(text) <= MAX_CANDIDATE:
                continue
            if each not in self.candidates and len(self.candidates) < MAX_CANDIDATES:
                self.candidates.append(each)
                new.append(each)
        return new


class RemoteObject:
    """The object, from the first look at it to the end of the set-up.

    Args:
        url: of the object.
        own: our stub, which observes it.
        kind: "offer" or "answer".
    """

    def __init__(self, signalling: Signalling, url: str, own: str, kind: str) -> None:
        self._signalling = signalling
        self._url = url
        self._own = own
        self._described = Described(kind)
        self._is_whole = asyncio.Event()
        self._listening: Listening | None = None
        self._on_candidate: Callable[[Candidate], None] | None = None

    async def description(self) -> Description:
        """Observe the object until the description is whole. Raises SetUpError."""
        changes = f"{self._url}/changes"
        self._listening = self._signalling.bus.add_listener(changes, self._changed)
        await self._signalling.claim(changes)
        self._described.read(await self._signalling.data_of(self._url, self._own))
        while self._described.description is None:
            self._is_whole.clear()
            await self._is_whole.wait()
        return self._described.description

    def give_candidates(self, on_candidate: Callable[[Candidate], None]) -> None:
        """Hand over the candidates that came, and from now on those that come."""
        self._on_candidate = on_candidate
        for each in self._described.candidates:
            on_candidate(each)

    def free(self) -> None:
        """Observe it no longer."""
        if self._listening is not None:
            self._listening.remove()
            self._signalling.unclaim(f"{self._url}/changes")
            self._listening = None

    def _changed(self, message: Message) -> None:
        if message["type"] != "update" or message["from"] != self._url:
            return
        new = self._described.change(body_of(message))
        if self._on_candidate is not None:
            for each in new:
                self._on_candidate(each)
        if self._described.description is not None:
            self._is_whole.set()
