"""A component's stream to an XMPP server (XEP-0114): handshake, stanzas, limits while it is parsed.

Rules
- What comes is parsed as it comes, with limits on the depth, the attributes, the elements and the
  bytes of a stanza; a DOCTYPE is refused. Beyond a limit this stream ends, and nothing else.
- What goes out is checked first: the server ends the stream, for all users, for a `from` of another
  domain, for a large stanza, and for a character that XML does not have.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol
from xml.parsers import expat  # limits are below; entities cannot be declared
from xml.sax.saxutils import escape, quoteattr

from .connection import Connection
from .network import Conflicted, Lost, NotAdmitted, TooLarge, shown

COMPONENT = "jabber:component:accept"
STREAMS = "http://etherx.jabber.org/streams"

MAX_DEPTH, MAX_ATTRIBUTES, MAX_ELEMENTS = 20, 50, 2_000
MAX_STANZA_BYTES = 1024 * 1024
"""Of what comes; the server passes on less."""
RENEWED_BYTES = 1024 * 1024
"""After so many a parser is replaced: expat keeps each name of an element or attribute, and users
there may think of any number.
"""
MAX_SENT_BYTES = 256 * 1024
"""Of a stanza that is sent: a server ends the stream for 512 KiB, and a client may answer half."""

_SPECIAL = re.compile('[\x00-\x1f"&<>\ud800-\udfff\ufffe\uffff]')
"""What cannot stand in an attribute as it is; most have nothing like it."""
_FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")


class Element:
    """An element of a stanza; `name` is its namespace and its local name, with a blank between."""

    __slots__ = ("attributes", "children", "name", "text")

    def __init__(self, name: str, attributes: dict[str, str]) -> None:
        self.name = name
        self.attributes = attributes
        self.children: list[Element] = []
        self.text = ""

    def find(self, name: str) -> Element | None:
        """The first child of this name."""
        return next((each for each in self.children if each.name == name), None)

    def get(self, name: str) -> str:
        """An attribute, "" if it is absent."""
        return self.attributes.get(name, "")

    @property
    def local_name(self) -> str:
        """Its name without the namespace."""
        return self.name.rpartition(" ")[2]


class Gateway(Protocol):
    """What the parts of a network use of it."""

    def put(self, name: str, attributes: dict[str, Any], *inside: str) -> None:
        """Send a stanza, if the network is live."""
        ...

    def ask(
        self,
        to: str,
        sender: str,
        inside: str,
        said: Callable[[Element | None], None] | None = None,
    ) -> None:
        """Send a request; `said` is called with its answer, None if none comes in time."""
        ...


class StanzaParser:
    """Parses one stream.

    Args:
        on_begun: called with the attributes of the stream's own element.
        on_stanza: called with each stanza.
    """

    def __init__(
        self, on_begun: Callable[[dict[str, str]], None], on_stanza: Callable[[Element], None]
    ) -> None:
        self._on_begun = on_begun
        self._on_stanza = on_stanza
        self._open: list[Element] = []
        self._depth = self._elements = 0
        self._fed = self._stanza_began = 0
        self._is_over = False
        self._prefixes: list[tuple[str | None, str | None]] = []  # of the stream's own element
        self._parser = expat.ParserCreate(namespace_separator=" ")
        self._handle(self._parser)

    def _handle(self, parser: expat.XMLParserType) -> None:
        parser.buffer_text = True
        parser.StartNamespaceDeclHandler = self._declare
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._text
        parser.StartDoctypeDeclHandler = self._doctype

    def feed(self, data: bytes) -> None:
        """Parse a piece. Raises Lost for what is no stream, is beyond a limit, or ends it."""
        if self._fed > RENEWED_BYTES:
            end = data.rfind(b">") + 1
            self._parse(data[:end])
            if self._depth == 1 and self._parser.CurrentByteIndex == self._fed:
                self._renew()
            data = data[end:]
        self._parse(data)
        if self._is_over:
            raise Lost("the server has ended the stream")
        if self._fed - self._stanza_began > MAX_STANZA_BYTES:
            raise Lost(f"the server sent a stanza of more than {MAX_STANZA_BYTES:,} bytes")

    def _parse(self, data: bytes) -> None:
        self._fed += len(data)
        try:
            self._parser.Parse(data, False)
        except expat.ExpatError as error:
            raise Lost(f"the server sent what is no XML: {error}") from None

    def _renew(self) -> None:
        """Go on with another parser, between two stanzas."""
        names = "".join(
            f" xmlns{f':{prefix}' if prefix else ''}={quoteattr(uri or '')}"
            for prefix, uri in self._prefixes
        )
        ours = next(prefix for prefix, uri in self._prefixes if uri == STREAMS)
        begin = f"<{f'{ours}:' if ours else ''}stream{names}>".encode()
        parser = expat.ParserCreate(namespace_separator=" ")
        parser.Parse(begin, False)
        self._handle(parser)
        self._parser, self._fed, self._stanza_began = parser, len(begin), len(begin)

    def _declare(self, prefix: str | None, uri: str | None) -> None:
        if not self._depth:
            self._prefixes.append((prefix, uri))

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self._depth += 1
        self._elements += 1
        if self._depth > MAX_DEPTH:
            raise Lost(f"the server sent a stanza of more than {MAX_DEPTH} levels")
        if len(attributes) > MAX_ATTRIBUTES:
            raise Lost(f"the server sent an element of more than {MAX_ATTRIBUTES} attributes")
        if self._elements > MAX_ELEMENTS:
            raise Lost(f"the server sent a stanza of more than {MAX_ELEMENTS:,} elements")
        if self._depth == 1:
            if name != f"{STREAMS} stream":
                raise Lost(f"the server's stream begins with {name[:80]}")
            self._on_begun(attributes)
            return
        element = Element(name, attributes)
        if self._open:
            self._open[-1].children.append(element)
        self._open.append(element)

    def _end(self, _name: str) -> None:
        self._depth -= 1
        if self._depth == 0:
            self._is_over = True
            return
        element = self._open.pop()
        if self._depth == 1:
            self._elements = 0
            self._stanza_began = self._parser.CurrentByteIndex
            self._on_stanza(element)

    def _text(self, text: str) -> None:
        if self._open:
            self._open[-1].text += text

    def _doctype(self, *_: object) -> None:
        raise Lost("the server sent a DOCTYPE")


class ComponentStream(Connection):
    """One connection of a component to its server.

    Args:
        domain: the component's domain; no stanza has another sender.
        on_stanza: called with each stanza that comes.
        on_drained: called when the server reads again after it was too slow.
    """

    def __init__(
        self, domain: str, on_stanza: Callable[[Element], None], on_drained: Callable[[], None]
    ) -> None:
        super().__init__()
        self.on_drained = on_drained
        self._domain = domain
        self._on_stanza = on_stanza
        self._parser = StanzaParser(self._begun, self._took)
        self._id: str | None = None
        self._is_admitted = False

    async def open(self, host: str, port: int, secret: str) -> None:
        """Connect and be admitted, within ten seconds.

        Raises:
            NotAdmitted: the secret is wrong.
            Conflicted: the component is connected already.
            Lost: anything else.
        """
        async with self.opened(host, port):
            begin = (
                f"<?xml version='1.0'?><stream:stream xmlns='{COMPONENT}' "
                f"xmlns:stream='{STREAMS}' to={quoteattr(self._domain)}>"
            )
            self.send(begin.encode())
            while self._id is None:
                await self.take()
            digest = hashlib.sha1(f"{self._id}{secret}".encode(), usedforsecurity=False)
            self.send(f"<handshake>{digest.hexdigest()}</handshake>".encode())
            while not self._is_admitted:
                await self.take()

    async def take(self) -> None:
        """Read and take one piece. Raises Lost when the stream has ended."""
        self._parser.feed(await self.read())

    def _begun(self, attributes: dict[str, str]) -> None:
        self._id = attributes.get("id", "")

    def _took(self, element: Element) -> None:
        if element.name == f"{STREAMS} error":
            _end_for(element)
        elif self._is_admitted:
            self._on_stanza(element)
        elif element.name == f"{COMPONENT} handshake":
            self._is_admitted = True


def _end_for(error: Element) -> None:
    """Raise why the server ends the stream."""
    names = [each.local_name for each in error.children]
    texts = [each.text for each in error.children if each.local_name == "text"]
    why = shown(f"{', '.join(name for name in names if name != 'text')}: {' '.join(texts)}")
    if "not-authorized" in names:
        raise NotAdmitted(f"the server refuses the secret of this component ({why})")
    if "conflict" in names:
        raise Conflicted(f"the component is connected already ({why})")
    raise Lost(f"the server has ended the stream ({why})")


def cleaned(text: str) -> str:
    """A text without the characters that XML does not have."""
    return _FORBIDDEN.sub("", text)


def _quoted(value: str) -> str:
    return quoteattr(cleaned(value)) if _SPECIAL.search(value) else f'"{value}"'


def tag(name: str, attributes: Mapping[str, str | None] | None = None, *inside: str) -> str:
    """An element; attributes that are empty are left out, and `inside` is XML already."""
    named = "".join(
        [f" {key}={_quoted(value)}" for key, value in (attributes or {}).items() if value]
    )
    content = "".join(inside)
    return f"<{name}{named}>{content}</{name}>" if content else f"<{name}{named}/>"


def text_of(text: str) -> str:
    """Text as XML."""
    return escape(cleaned(text))


def stanza(domain: str, name: str, attributes: dict[str, Any], *inside: str) -> bytes:
    """A stanza from an address of this component.

    Args:
        domain: the component's domain.
        name: message, presence or iq.
        attributes: with `from`.
        inside: its content, as XML.

    Raises:
        ValueError: its `from` is of another domain: the server would end the stream.
        TooLarge: it is larger than the server, or a client behind it, takes.
    """
    sender = str(attributes.get("from", ""))
    if sender.partition("/")[0].rpartition("@")[2] != domain:
        raise ValueError(f"{shown(sender)} is not of the domain {domain}")
    made = tag(name, attributes, *inside).encode()
    if len(made) > MAX_SENT_BYTES:
        raise TooLarge(f"It has {len(made):,} bytes there, and may have {MAX_SENT_BYTES:,}.")
    return made


def texts(element: Element) -> Iterator[str]:
    """The texts of an element and all below it."""
    yield element.text
    for each in element.children:
        yield from texts(each)
