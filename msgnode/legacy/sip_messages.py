"""Messages of SIP (RFC 3261): cut out of a stream, read with limits, and written. Pure.

Rules
- A message ends where its one Content-Length says; a stream without one is given up, since nothing
  tells where the next message begins. A head has at most 16 KiB, a body 64 KiB.
- Nothing that comes raises: what is wrong with a message is its `fault`, and who sent it is told.
- What is written cannot have a line break in a line.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any
from urllib.parse import unquote
from urllib.request import parse_http_list

from sipmessage import URI, Address, Via
from sipmessage.message import COMPACT_FORMS

from .network import Lost, shown

MAX_HEAD, MAX_BODY = 16 * 1024, 64 * 1024
MAX_VALUE = 2_000
"""Characters of an address, a route or a Via."""
MAX_ROUTES = 20
REMEMBERED = 1_000
"""URIs that need not be read or written again."""
VERSION = "SIP/2.0"
METHODS = ("INVITE", "ACK", "CANCEL", "BYE", "OPTIONS", "MESSAGE")
SDP, TEXT = "application/sdp", "text/plain"
REASONS = {
    100: "Trying", 180: "Ringing", 200: "OK", 400: "Bad Request", 403: "Forbidden",
    404: "Not Found", 405: "Method Not Allowed", 408: "Request Timeout",
    413: "Request Entity Too Large", 415: "Unsupported Media Type", 420: "Bad Extension",
    480: "Temporarily Unavailable", 481: "Call/Transaction Does Not Exist", 482: "Loop Detected",
    483: "Too Many Hops", 486: "Busy Here", 487: "Request Terminated", 488: "Not Acceptable Here",
    491: "Request Pending", 500: "Server Internal Error", 503: "Service Unavailable",
    603: "Decline",
}  # fmt: skip

_COMPACT = {short: name.lower() for short, name in COMPACT_FORMS.items()}
_SINGLE = ("from", "to", "call-id", "cseq", "max-forwards", "content-type")
_FOLDED = re.compile(r"\r\n[ \t]+")
_TOKEN = re.compile(r"[A-Za-z0-9.!%*_+`'~-]{1,40}")
_BREAKS = re.compile(r"[\r\n\0]")
_BRACKETS = re.compile(r"<([^<>]*)>")
_TAGGED = re.compile(r"([^>]*>)\s*;\s*tag\s*=\s*([A-Za-z0-9.!%*_+`'~-]+)")
_BRANCH = re.compile(r";\s*branch\s*=\s*([^\s;,]+)", re.I)
_VALUE = re.compile(r'(?:"(?:\\.|[^"\\])*(?:"|\\?$)|<[^<>]*>?|[^,"<])+')
"""What ends with the line if it is not closed is one value, too: nothing is read twice."""


class Framer:
    """Cuts one stream into messages.

    Args:
        on_message: called with each message that comes.
        on_ping: called when the other side asks whether the connection is alive.
    """

    def __init__(self, on_message: Callable[[Incoming], None], on_ping: Callable[[], None]) -> None:
        self._on_message = on_message
        self._on_ping = on_ping
        self._data = bytearray()
        self._looked = self._breaks = 0
        self._next: tuple[Incoming, int, int] | None = None  # where its body begins and ends

    def feed(self, data: bytes) -> None:
        """Take a piece. Raises Lost where the next message cannot be found."""
        self._data += data
        while self._data and self._take():
            pass

    def _take(self) -> bool:
        """Take what is at the beginning; whether that was whole."""
        if self._data.startswith(b"\r\n"):
            del self._data[:2]
            self._breaks += 1
            if self._breaks == 2:
                self._breaks = 0
                self._on_ping()
            return True
        if self._next is None:
            self._find_head()
        if self._next is None or len(self._data) < self._next[2]:
            return False
        message, begin, end = self._next
        message.body = bytes(self._data[begin:end])
        del self._data[:end]
        self._looked = self._breaks = 0
        self._next = None
        self._on_message(message)
        return True

    def _find_head(self) -> None:
        """Read the head of the next message, and where it ends, if it is whole."""
        end = self._data.find(b"\r\n\r\n", max(0, self._looked - 3), MAX_HEAD + 4)
        if end < 0:
            self._looked = len(self._data)
            if self._looked > MAX_HEAD:
                raise Lost(f"the server sent a head of more than {MAX_HEAD:,} bytes")
            return
        message = parsed(bytes(self._data[:end]))
        size = message.number_in("content-length")
        if size is None or len(set(message.headers["content-length"])) > 1:
            raise Lost("the server sent a message without one length")
        if size > MAX_BODY:
            raise Lost(f"the server sent a body of more than {MAX_BODY:,} bytes")
        self._next = message, end + 4, end + 4 + size


@dataclass(eq=False, slots=True)
class Incoming:
    """A message that has come; `code` is 0 for a request, `fault` why it cannot be served.

    What is missing is empty: who has looked at `fault` need not ask for it. `transaction` is the
    same for a request, its repetitions, its CANCEL and the ACK of a refusal.
    """

    method: str = ""
    uri: str = ""
    code: int = 0
    reason: str = ""
    headers: dict[str, list[str]] = field(default_factory=dict)
    body: bytes = b""
    fault: str = ""
    sender: Address | None = None
    from_tag: str = ""  # of who began
    to_tag: str = ""  # of who was asked, "" before there is one
    number: int = 0
    branch: str = ""
    transaction: str = ""

    @property
    def call_id(self) -> str:
        """The id of its call."""
        return self.first("call-id")

    def first(self, name: str) -> str:
        """The first value of a header, "" if there is none."""
        return self.headers.get(name, ("",))[0]

    def all(self, name: str) -> list[str]:
        """The values of a header that is a list, whether in one line or in several."""
        return [each for line in self.headers.get(name, ()) for each in split_list(line)]

    def number_in(self, name: str) -> int | None:
        """A header that is a number, None if it is absent or none."""
        return number_of(self.first(name))

    @property
    def media_type(self) -> str:
        """The type of its body, without parameters."""
        return self.first("content-type").partition(";")[0].strip().lower()

    @property
    def contact(self) -> str:
        """The URI of its first contact as it was written, "" if it has none that can be read."""
        written = next(iter(self.all("contact")), "")
        found = _BRACKETS.search(written)
        target = found[1] if found else written.partition(";")[0]
        return target if address_of(f"<{target}>") is not None else ""


def parsed(data: bytes) -> Incoming:
    """A message as it came; one that is no SIP at all has neither a method nor a code."""
    head, _, body = data.partition(b"\r\n\r\n")
    text = _FOLDED.sub(" ", head.decode("utf-8", "surrogateescape"))
    first, *lines = text.split("\r\n")
    message = Incoming(body=body)
    if not text.isascii() and any("\udc80" <= each <= "\udcff" for each in text):
        message.fault = "A header is not in UTF-8."
    if not _has_lines(text, len(lines)):
        message.fault = "A line of the head has a break."
        lines = [_BREAKS.sub(" ", each) for each in lines]
    for line in lines:
        name, colon, value = line.partition(":")
        known = _name_in(name)
        if not (colon and known):
            message.fault = message.fault or "A line of the head is no header."
        message.headers.setdefault(known, []).append(value.strip())
    _read_first(message, first)
    if not message.fault:
        try:
            _read_names(message)
        except (ValueError, TypeError, AttributeError, LookupError, RecursionError):
            message.fault = "A header cannot be read."
    return message


def number_of(text: str) -> int | None:
    """The number of at most ten digits that a text is, None if it is none."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 10 else None


def _has_lines(head: str, breaks: int) -> bool:
    """Whether a head has so many breaks of lines, and no others."""
    return head.count("\r") == breaks == head.count("\n") and "\0" not in head


@lru_cache(REMEMBERED)
def _name_in(text: str) -> str:
    """The name of a header in its usual form, "" if it is none."""
    name = text.strip().lower()
    return _COMPACT.get(name, name) if _TOKEN.fullmatch(name) else ""


def _read_first(message: Incoming, line: str) -> None:
    words = line.split(" ", 2)
    if len(words) != 3:
        return
    if words[0] == VERSION and 100 <= (code := number_of(words[1]) or 0) < 700:
        message.code, message.reason = code, words[2]
    elif words[2].endswith(VERSION) and _TOKEN.fullmatch(words[0]):
        message.method, message.uri = words[0], line[len(words[0]) + 1 : -len(VERSION) - 1]
        if len(message.uri) > MAX_VALUE or uri_in(message.uri) is None:
            message.fault = message.fault or "The URI of the request cannot be read."


def _read_names(message: Incoming) -> None:
    """Read what every message has. Raises ValueError."""
    for name in _SINGLE:
        if len(message.headers.get(name, ())) > 1:
            message.fault = f"There are several {name.title()}."
    for name in ("from", "to", "call-id", "cseq", "via"):
        if not message.first(name):
            message.fault = message.fault or f"There is no {name.title()}."
    if message.fault:
        return
    digits, method = message.first("cseq")[:80].split()
    number = number_of(digits)
    if message.method not in ("", method) or number is None or number >= 2**31:
        raise ValueError
    message.number, message.method = number, method
    if not message.code or method == "INVITE":  # of other responses nobody asks
        message.sender, message.from_tag = party_in(message.first("from"))
        to, message.to_tag = party_in(message.first("to"))
        if message.sender is None or to is None:
            raise ValueError
    top = split_list(message.first("via")[:MAX_VALUE])[0]
    found = _BRANCH.search(top)
    message.branch = found[1] if found else ""
    if not message.code:  # else it has our Via, as we wrote it
        place = message.branch or f"{message.call_id} {message.number}"
        message.transaction = f"{_sent_by(_BRANCH.sub('', top, 1))} {place}"


@lru_cache(REMEMBERED)
def _sent_by(via: str) -> str:
    """Who has sent what has a Via, which is given without its branch. Raises ValueError."""
    found = Via.parse(via)
    return f"{found.host}:{found.port}"


@lru_cache(REMEMBERED)
def uri_in(text: str) -> URI | None:
    """A URI that is not too long, None if it cannot be read."""
    try:
        return URI.parse(text)
    except ValueError:
        return None


@lru_cache(REMEMBERED)
def _address_of(text: str) -> Address | None:
    try:
        return Address.parse(text)
    except (ValueError, TypeError):  # TypeError: a parameter twice
        return None


def address_of(text: str) -> Address | None:
    """An address with or without brackets, None if it cannot be read."""
    return _address_of(text) if len(text) <= MAX_VALUE else None


def party_in(text: str) -> tuple[Address | None, str]:
    """Who a From or To names, None if it cannot be read, and his tag, "" if there is none.

    Each request has a new tag, and nearly always nothing else: the rest is read once.

    >>> party_in("<sip:bob@b.example>;tag=1")[1], party_in("sip:bob@b.example")[1]
    ('1', '')
    """
    found = _TAGGED.fullmatch(text)
    address = address_of(found[1] if found else text)
    if address is None:
        return None, ""
    return address, unquote(found[2]) if found else address.parameters.get("tag") or ""


def split_list(line: str) -> list[str]:
    """The values in a line, divided by commas outside brackets and quotes.

    >>> split_list('<sip:a;lr>, "b, c" <sip:d,e>')
    ['<sip:a;lr>', '"b, c" <sip:d,e>']
    """
    return [each.strip() for each in _VALUE.findall(line)]


# --- written --------------------------------------------------------------------------------------


@lru_cache(REMEMBERED)
def uri(user: str, host: str) -> str:
    """A SIP URI.

    >>> uri("alice@a.example", "gw.example")
    'sip:alice%40a.example@gw.example'
    """
    return str(URI("sip", host, user or None))


def written(first: str, headers: Iterable[tuple[str, str]], body: bytes, type_: str) -> bytes:
    """A message as it is sent.

    Args:
        first: its first line.
        headers: names and values.
        body: may be empty.
        type_: of the body.

    Raises:
        ValueError: a line has a line break.
    """
    lines = [first, *(f"{name}: {value}" for name, value in headers)]
    if type_:
        lines.append(f"Content-Type: {type_}")
    lines.append(f"Content-Length: {len(body)}")
    head = "\r\n".join((*lines, "", ""))
    if not _has_lines(head, len(lines) + 1):
        raise ValueError("A header of SIP has one line.")
    return head.encode("utf-8", "surrogateescape") + body


def response(
    request: Incoming,
    code: int,
    tag: str = "",
    reason: str = "",
    headers: Iterable[tuple[str, str]] = (),
    body: bytes = b"",
    type_: str = "",
) -> bytes:
    """A response to a request, with as much as can be read of it; `tag` is of who answers."""
    to = request.first("to")
    if code > 100 and tag and not request.to_tag:
        to = f"{to};tag={tag}"
    passed = {"via": "Via", **({"record-route": "Record-Route"} if code < 300 else {})}
    said = [(name, each) for key, name in passed.items() for each in request.headers.get(key, ())]
    said += [("From", request.first("from")), ("To", to), ("Call-ID", request.call_id),
             ("CSeq", request.first("cseq"))]  # fmt: skip
    first = f"{VERSION} {code} {shown(reason) or REASONS.get(code, 'Refused')}"
    return written(first, (*(each for each in said if each[1]), *headers), body, type_)


# --- digest (RFC 2617, RFC 8760) ------------------------------------------------------------------

_HASHES: dict[str, Any] = {"SHA-256": hashlib.sha256, "MD5": hashlib.md5}


@dataclass(slots=True)
class Challenge:
    """What a server asks of who sends a request: `said`, by name; `used` counts the answers."""

    said: dict[str, str]
    algorithm: str
    used: int = 0

    @property
    def is_stale(self) -> bool:
        """Whether the password was right, and only the nonce too old."""
        return self.said.get("stale", "").lower() == "true"

    def answer(self, user: str, password: str, method: str, uri: str, salt: str) -> str:
        """The value of the header that answers it; `salt` is random."""

        def digest(*parts: str) -> str:
            made = _HASHES[self.algorithm](":".join(parts).encode(), usedforsecurity=False)
            return str(made.hexdigest())

        self.used += 1
        realm, nonce, count = self.said.get("realm", ""), self.said["nonce"], f"{self.used:08x}"
        middle = (count, salt, "auth") if "qop" in self.said else ()
        who, what = digest(user, realm, password), digest(method, uri)
        named = {"username": user, "realm": realm, "nonce": nonce, "uri": uri,
                 "response": digest(who, nonce, *middle, what)}  # fmt: skip
        named |= {"opaque": self.said["opaque"]} if "opaque" in self.said else {}
        quoted = [f"{name}={_quoted(value)}" for name, value in named.items()]
        if middle:
            quoted += ["qop=auth", f"nc={count}", f'cnonce="{salt}"']
        return f"Digest {', '.join((*quoted, f'algorithm={self.algorithm}'))}"


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def challenge_in(response: Incoming) -> Challenge | None:
    """The best challenge in a response, None if it has none that can be answered."""
    name = "www-authenticate" if response.code == 401 else "proxy-authenticate"
    found = [_challenge(each) for each in response.headers.get(name, ())[:5]]
    usable = [each for each in found if each is not None]
    return max(usable, key=lambda each: each.algorithm == "SHA-256", default=None)


def _challenge(value: str) -> Challenge | None:
    scheme, _, rest = value[:MAX_VALUE].partition(" ")
    pairs = (each.partition("=") for each in parse_http_list(rest))
    said = {name.strip().lower(): text.strip().removeprefix('"').removesuffix('"')
            for name, _, text in pairs}  # fmt: skip
    algorithm = said.get("algorithm", "MD5").upper()
    qop = [each.strip().lower() for each in said.get("qop", "auth").split(",")]
    can_be = algorithm in _HASHES and "auth" in qop and said.get("nonce")
    return Challenge(said, algorithm) if scheme.lower() == "digest" and can_be else None
