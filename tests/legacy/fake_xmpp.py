"""A small XMPP server for the tests of the gateway: it takes one component, and plays its users.

Written from XEP-0114, RFC 6120 and RFC 6121, and from what prosody 0.12.3 was seen to do;
test_prosody.py has prosody do the same. It parses with ElementTree, not with the gateway's parser.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from typing import Any
from xml.etree import ElementTree as Xml
from xml.sax.saxutils import quoteattr

from .fake_server import FakeServer

DOMAIN, GATEWAY, SECRET = "legacy.example", "gw.legacy.example", "between us"
ACCEPT = "jabber:component:accept"
STANZAS = "urn:ietf:params:xml:ns:xmpp-stanzas"
MAX_STANZA = 512 * 1024


def named(name: str) -> str:
    return f"{{{ACCEPT}}}{name}"


class FakeXmpp(FakeServer):
    """The server; `users` are those that there are, `taken` what they were sent, in order.

    While `holds` is set it reads nothing. `answers_pings` and `refuses` play its troubles.
    """

    def __init__(self) -> None:
        super().__init__()
        self.users = {"bob", "carol"}
        self.taken: list[Xml.Element] = []
        self.refused: list[str] = []  # why streams were ended
        self.pings: list[int] = []  # how many messages had been taken at each
        self.answers_pings = True
        self.secret = SECRET
        self.on_stanza: Callable[[Xml.Element], None] = lambda stanza: None

    # --- what its users do ------------------------------------------------------------------------

    def say(self, xml: str) -> None:
        assert self._writer is not None, "no component is connected"
        self._writer.write(xml.encode())

    def message(
        self, text: str, to: str = "alice%a.example", inside: str = "", **attributes: str
    ) -> None:
        head = {"type": "chat", "from": f"bob@{DOMAIN}/phone", "to": f"{to}@{GATEWAY}"}
        named = " ".join(f"{key}={quoteattr(value)}" for key, value in (head | attributes).items())
        self.say(f"<message {named}><body>{text}</body>{inside}</message>")

    def of(self, name: str, **attributes: str) -> list[Xml.Element]:
        """The stanzas of a name that were sent to its users."""
        return [
            each
            for each in self.taken
            if each.tag == named(name)
            and all(each.get(key.rstrip("_")) == value for key, value in attributes.items())
        ]

    def texts(self) -> list[str]:
        """Those of messages, in order."""
        found = [each.findtext(named("body")) for each in self.of("message")]
        return [each for each in found if each is not None]

    async def expect(self, name: str, **attributes: str) -> Xml.Element:
        found = await self.until(lambda: self.of(name, **attributes))
        return found[-1]

    # --- the component ----------------------------------------------------------------------------

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        parser: Any = Xml.XMLPullParser(["start", "end"])
        depth = size = 0
        id_ = f"s{self.opened}"
        try:
            while data := await reader.read(65_536):
                parser.feed(data)
                size += len(data)
                for event, element in parser.read_events():
                    depth += 1 if event == "start" else -1
                    if event == "start" and depth == 1:
                        writer.write(
                            f"<?xml version='1.0'?><stream:stream xmlns='{ACCEPT}' id='{id_}' "
                            "xmlns:stream='http://etherx.jabber.org/streams' "
                            f"from='{element.get('to')}'>".encode()
                        )
                    elif event == "end" and depth == 1:
                        size = 0
                        if not self._take(element, id_, writer):
                            return None
                if size > MAX_STANZA:
                    return self._end(writer, "not-well-formed", "stanza too large")
        except (Xml.ParseError, OSError):
            self._end(writer, "not-well-formed", "")
        finally:
            if self._writer is writer:
                self._writer = None
            writer.close()

    def _take(self, element: Xml.Element, id_: str, writer: asyncio.StreamWriter) -> bool:
        if element.tag == named("handshake"):
            wanted = hashlib.sha1(f"{id_}{self.secret}".encode(), usedforsecurity=False).hexdigest()
            if element.text != wanted:
                self._end(writer, "not-authorized", "Given token does not match calculated token")
                return False
            if self._writer is not None:
                self._end(writer, "conflict", "Component already connected")
                return False
            self._writer = writer
            self.opened += 1
            writer.write(b"<handshake/>")
            self._changed.set()
            return True
        sender = (element.get("from") or "").partition("/")[0].rpartition("@")[2]
        if sender != GATEWAY:
            self._end(writer, "invalid-from", f"from {sender}")
            return False
        self._route(element)
        self._changed.set()
        return True

    def _route(self, element: Xml.Element) -> None:
        to = element.get("to") or ""
        local = to.partition("/")[0].rpartition("@")[0]
        if to == DOMAIN and element.find("{urn:xmpp:ping}ping") is not None:
            self.pings.append(len(self.of("message")))
            if self.answers_pings:
                self._answer(element, "result")
        elif local and local not in self.users:
            if element.tag != named("presence") and element.get("type") != "error":
                self._answer(
                    element, "error",
                    f"<error type='cancel'><service-unavailable xmlns='{STANZAS}'/></error>",
                )  # fmt: skip
        else:
            self.taken.append(element)
            self.on_stanza(element)

    def _answer(self, element: Xml.Element, type_: str, inside: str = "") -> None:
        name = element.tag.rpartition("}")[2]
        head = {"type": type_, "id": element.get("id") or "", "from": element.get("to") or "",
                "to": element.get("from") or ""}  # fmt: skip
        named = " ".join(f"{key}={quoteattr(value)}" for key, value in head.items())
        self.say(f"<{name} {named}>{inside}</{name}>")

    def _end(self, writer: asyncio.StreamWriter, condition: str, text: str) -> None:
        self.refused.append(condition)
        streams = "urn:ietf:params:xml:ns:xmpp-streams"
        writer.write(
            f"<stream:error><{condition} xmlns='{streams}'/><text xmlns='{streams}'>{text}</text>"
            "</stream:error></stream:stream>".encode()
        )
