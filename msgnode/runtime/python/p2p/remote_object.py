"""The other side's connection object as the field writes it: piece by piece, in any order.

Rules
- The description is in the object, or comes as one change, or as two for its text and its type.
- Candidates may come before it, twice, empty, or be of no use; who applies them passes over those.
- What comes of anybody but the object, or beyond the limits, is not taken.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from msgnode.runtime.python.listeners import Listening
from msgnode.runtime.python.messages import Message, body_of

from .rtc import MAX_CANDIDATES, MAX_SDP, Description
from .signalling import Talk

MAX_CANDIDATE = 1_024  # characters

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

    def __init__(self, talk: Talk, url: str, own: str, kind: str) -> None:
        self._talk = talk
        self._url = url
        self._own = own
        self._described = Described(kind)
        self._is_whole = asyncio.Event()
        self._listening: Listening | None = None
        self._on_candidate: Callable[[Candidate], None] | None = None

    async def description(self) -> Description:
        """Observe the object until the description is whole. Raises SetUpError."""
        changes = f"{self._url}/changes"
        self._listening = self._talk.bus.add_listener(changes, self._changed)
        await self._talk.claim(changes)
        self._described.read(await self._talk.data_of(self._url, self._own))
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
            self._talk.unclaim(f"{self._url}/changes")
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
