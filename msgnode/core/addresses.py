"""Addresses: URLs of the field, compared segment by segment and never by substring.

An address is split at its first ":" and its slashes only, so that `runtime:/alice` and
`mn:/session` are addresses like any other (docs/reference/messages.md, section 9, row 6). It has
one spelling, its canonical form (section 1.7): two spellings would be two addresses to whoever
holds, permits or reads them. `fault` refuses others, `canonical` reads them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from sys import getsizeof
from unicodedata import normalize
from urllib.parse import quote

from .bounded_cache import BoundedCache

MAX_LENGTH = 2048
"""Longest address in characters; a longer one is refused where it is read."""

MAX_HELD = 600
"""Longest address in characters that a session may hold, subscribe or be named by."""

MAX_PARTS = 32
"""Most slashes in the path of an address: each of its segments is a name that may be held."""

MAX_PARTS_TOGETHER = 4_000
"""Most parts of all addresses together that one message is sent to or about."""

MAX_RUNTIME_PARTS = 16
"""Most path segments of a runtime URL."""

MAX_SCHEME = 32
"""Longest scheme in characters of an address that a session may hold or subscribe."""

RUNTIME_SCHEMES = frozenset({"runtime", "hyperty-runtime"})
HYPERTY_SCHEMES = frozenset({"hyperty"})
NODE_SCHEMES = frozenset({"mn", "domain", "domain-idp", "global"})
"""Schemes whose addresses belong to nodes and their components; no runtime may speak as one."""

_CHILDLESS_SCHEMES = RUNTIME_SCHEMES | HYPERTY_SCHEMES | NODE_SCHEMES
_EVENT_TAILS = ("/changes", "/registration", "/status", "/children", "/children/")
_STUB_PATHS = ("/p2prequester/", "/p2phandler/", "/protostub/")
_P2P = frozenset({"p2phandler", "p2prequester"})
_SERVICE_LABELS = ("msg-node.", "registry.", "idm.", "catalogue.", "qos.")
_PRIVATE_TAILS = ("changes", "subscription", "registration", "status", "children")


_BREAKS_A_SEGMENT = re.compile(r"[\s%/?#]")


@dataclass(frozen=True, slots=True)
class Address:
    """A parsed address.

    text    as written
    scheme  lower case, "" if there is none
    domain  as written, with its port, "" if there is none
    path    everything after the domain, with its leading slash, "" if there is none
    home    the domain for comparison: lower case, without a label such as `msg-node.`
    """

    text: str
    scheme: str
    domain: str
    path: str
    home: str


def parse(text: str) -> Address:
    """Parse an address. Never fails: text without a scheme has scheme and domain ""."""
    return _PARSED[text]


def _parsed(text: str) -> Address:
    scheme, colon, rest = text.partition(":")
    if not colon or not scheme or "/" in scheme:
        return Address(text, "", "", text, "")
    if rest.startswith("//"):
        domain, slash, path = rest[2:].partition("/")
        return Address(text, scheme.lower(), domain, slash + path, home_domain(domain))
    return Address(text, scheme.lower(), "", rest, "")


_PARSED = BoundedCache(_parsed, 16 * 1024 * 1024, lambda each: 200 + 2 * getsizeof(each.text))


def misses() -> int:
    """How many addresses `parse` did not remember."""
    return _PARSED.misses


def home_domain(domain: str) -> str:
    """A domain in lower case, without its service label but with its port.

    docs/reference/messages.md, section 5.
    """
    return _HOMES[domain]


def _home_domain(domain: str) -> str:
    lowered = domain.lower()
    for label in _SERVICE_LABELS:
        if lowered.startswith(label):
            return lowered[len(label) :]
    return lowered


_HOMES = BoundedCache(_home_domain, 1024 * 1024, getsizeof)


def foreign_domain(text: str, home: str) -> str:
    """The domain of an address if it is not `home`, else "".

    >>> foreign_domain("runtime://B.example/1", "a.example"), foreign_domain("runtime:/1", "a.b")
    ('b.example', '')
    """
    domain = parse(text).home
    return "" if domain == home else domain


def fault(text: str) -> str:
    """Why `text` is not a valid address, "" if it is. The words are for its sender."""
    return FAULTS[text]


def identifier_fault(text: str) -> str:
    """Why `text` is not a valid identifier of a registry, "" if it is.

    An address is one, and so is what nobody can hold or send from, such as a name with blanks.
    """
    if not text:
        return "is empty"
    if len(text) > MAX_LENGTH:
        return f"is longer than {MAX_LENGTH} characters"
    if not text.isprintable():
        return "contains a control character"
    return ""


def _fault(text: str) -> str:
    if why := identifier_fault(text):
        return why
    if parts_of(text) > MAX_PARTS:
        return f"has more than {MAX_PARTS} parts"
    if _CANONICAL.fullmatch(text):
        return ""
    form = canonical(text)
    if form == text:
        return ""
    if not form:
        return _reason(normalize("NFC", text)) or "leads upwards by `..`"
    return f"is not in canonical form, which is {form}"


def segment(name: str) -> str:
    """A name as one segment of an address; what would end the segment is percent-encoded.

    >>> segment("a/b@x.example")
    'a%2Fb@x.example'
    """
    return _BREAKS_A_SEGMENT.sub(lambda found: quote(found[0], safe=""), name)


def canonical(text: str) -> str:
    """The canonical form of an address, "" if it has none.

    docs/reference/messages.md, section 1.7.

    >>> canonical("HYPERTY://D.example/%41//./b"), canonical("runtime:/Alice"), canonical("c://d/?")
    ('hyperty://d.example/A/b', 'runtime:/Alice', '')
    """
    text = normalize("NFC", text)
    if _reason(text):
        return ""
    scheme, colon, rest = text.partition(":")
    if not colon or not scheme or "/" in scheme:
        scheme, colon, rest = "", "", text
    rest = _ENCODED.sub(_decoded_if_unreserved, rest)
    domain = slash = ""
    if colon and rest.startswith("//"):
        domain, slash, rest = rest[2:].partition("/")
        domain = f"//{domain.lower()}"
    elif colon and "/" not in rest:  # a mailbox, such as sip:bob@legacy.example
        name, at, host = rest.rpartition("@")
        rest = name + at + host.lower() if at else rest
    *above, last = rest.split("/")
    first = [] if domain or not above else [above.pop(0)]
    path = [*first, *(each for each in above if each not in ("", ".")), "" if last == "." else last]
    if ".." in path:
        return ""
    return normalize("NFC", f"{scheme.lower()}{colon}{domain}{slash}{'/'.join(path)}")


def _reason(text: str) -> str:
    """Why a text has no canonical form, "" if it may have one; it may still lead upwards."""
    if not text or not text.isprintable():
        return "contains a control character" if text else "is empty"
    if " " in text:
        return "contains a blank"
    if "?" in text or "#" in text:
        return "contains `?` or `#`, and has no query or fragment"
    if _BROKEN.search(text) or "%" in text.partition(":")[0]:
        return "has a `%` that encodes nothing"
    if _NO_DOMAIN.search(text):
        return "has an empty domain"
    return ""


def _decoded_if_unreserved(found: re.Match[str]) -> str:
    char = chr(int(found[1], 16))
    return char if char in _UNRESERVED else found[0].upper()


_UNRESERVED = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
_ENCODED = re.compile("%([0-9A-Fa-f]{2})")
_BROKEN = re.compile("%(?![0-9A-Fa-f]{2})")
_NO_DOMAIN = re.compile("^[^/:]+://(/|$)")
_CANONICAL = re.compile(
    r"(?:[a-z][a-z0-9+.-]*:(?://[!$&-.0->@[\]-~]+(?=/|$))?|(?![^/]*:))"  # no capitals
    r"(?:(?!\.\.?(?:/|$))[!$&-.0->A-~]+)?"  # a first segment without a slash before it
    r"(?:/(?!\.\.?(?:/|$))[!$&-.0->@-~]+)*/?"
)
"""Matches no address that is not in canonical form, and nearly all that are."""


FAULTS = BoundedCache(_fault, 16 * 1024 * 1024, len)
"""`fault` for the message path: what is looked up again costs a look-up in a dict."""


def parts_of(text: str) -> int:
    """The slashes in the path of an address: so many names, at most, are at it and above it.

    >>> parts_of("comm://d/1/changes"), parts_of("runtime:/1"), parts_of("comm://d")
    (2, 1, 0)
    """
    return text.count("/") - 2 * ("://" in text)


def is_under(address: str, prefix: str) -> bool:
    """Whether `address` is `prefix` or lies below it, segment by segment.

    >>> is_under("runtime://d/1/sm", "runtime://d/1"), is_under("runtime://d/10", "runtime://d/1")
    (True, False)
    """
    return address.startswith(prefix) and (
        len(address) == len(prefix) or address[len(prefix)] == "/" or prefix.endswith("/")
    )


def ancestors(address: str) -> Iterator[str]:
    """The addresses above `address`, nearest first, down to `<scheme>://<domain>`, not itself.

    Only those that could be held: of at most MAX_HELD characters and MAX_PARTS parts.

    >>> list(ancestors("comm://d/1/children/x"))
    ['comm://d/1/children', 'comm://d/1', 'comm://d']
    """
    start = address.find("://")
    floor = start + 3 if start >= 0 else address.find(":") + 1
    end = address.rfind("/", floor, MAX_HELD + 1)
    if address.count("/") > MAX_PARTS:
        for _ in range(address.count("/", floor, end + 1) - MAX_PARTS - 1):
            end = address.rfind("/", floor, end)
    while end > floor:
        yield address[:end]
        end = address.rfind("/", floor, end)


def runtime_twin(address: str) -> str:
    """A runtime address in its other spelling (row 5), "" for any other address."""
    scheme, colon, rest = address.partition(":")
    if scheme == "runtime":
        return "hyperty-runtime:" + rest if colon else ""
    if scheme == "hyperty-runtime":
        return "runtime:" + rest
    return ""


def runtime_line(address: str) -> list[str]:
    """The possible runtime URLs at or above an address, in both spellings.

    >>> runtime_line("runtime://d/1/sm")[:2], runtime_line("hyperty://d/1")
    (['runtime://d/1/sm', 'runtime://d/1'], [])
    """
    parsed = parse(address)
    if parsed.scheme not in RUNTIME_SCHEMES:
        return []
    line = [address, *ancestors(address)]
    if parsed.domain:
        line.pop()  # the whole domain is no runtime URL
    line = line[-MAX_RUNTIME_PARTS:]
    return [*line, *map(runtime_twin, line)]


def names_of(address: str) -> tuple[str, ...]:
    """The addresses at or above an address; of a runtime in both spellings.

    >>> names_of("comm://d/1/changes")
    ('comm://d/1/changes', 'comm://d/1')
    """
    return _NAMES[address]


def _names_of(address: str) -> tuple[str, ...]:
    names = [address, *ancestors(address)]
    if len(names) > 1 and "://" in address:
        names.pop()  # nobody holds a whole domain
    both = (*names, *filter(None, map(runtime_twin, names)))
    return tuple(each for each in both if len(each) <= MAX_HELD)  # a longer one cannot be held


_NAMES = BoundedCache(_names_of, 32 * 1024 * 1024, lambda names: 64 + sum(map(getsizeof, names)))


def resource_of(address: str) -> str:
    """The object or entity an address is about: without a trailing `/changes` or the like.

    >>> resource_of("comm://d/1/changes"), resource_of("comm://d/1")
    ('comm://d/1', 'comm://d/1')
    """
    head, slash, tail = address.rpartition("/")
    return head if slash and tail in _PRIVATE_TAILS and not head.endswith("/") else address


def child_of(address: str) -> tuple[str, str] | None:
    """Split an address at or below a child into the object and `<object>/children/<name>`.

    Returns:
        None for any other address; runtimes, hyperties and nodes have no children.
    """
    parsed = parse(address)
    if not parsed.scheme or parsed.scheme in _CHILDLESS_SCHEMES:
        return None
    head, mark, tail = parsed.path.partition("/children/")
    name = tail.split("/", 1)[0]
    if not mark or not name or not head.strip("/"):
        return None
    parent = address[: len(address) - len(parsed.path) + len(head)]
    return parent, f"{parent}/children/{name}"


def is_part(address: Address) -> bool:
    """Whether the address ends with the name of a part, such as `/status`."""
    return address.path.rstrip("/").rpartition("/")[2] in _PRIVATE_TAILS


def is_event(address: str) -> bool:
    """Whether anybody may subscribe the address: an event that its owner publishes, or a child.

    >>> is_event("runtime://d/1/x/status"), is_event("comm://d/1/children/a"), is_event("comm://d/1")
    (True, True, False)
    """
    return address.endswith(_EVENT_TAILS) or "/children/" in parse(address).path


def is_stub(address: Address) -> bool:
    """Whether the address is that of a stub in a domain, not below a runtime."""
    return address.scheme in RUNTIME_SCHEMES and address.path.startswith(_STUB_PATHS)


def is_p2p_stub(text: str) -> bool:
    """Whether the address is that of a P2P handler or requester, or below it.

    The segment directly follows a domain or a runtime URL; the word elsewhere in an address does
    not count.

    >>> is_p2p_stub("runtime://d/1/p2phandler/x"), is_p2p_stub("runtime://d/1/chat/p2phandler/x")
    (True, False)
    """
    if "/p2p" not in text:
        return False
    address = parse(text)
    if address.scheme not in RUNTIME_SCHEMES:
        return False
    segments = address.path.strip("/").split("/")
    return len(segments) > 1 and bool(_P2P.intersection(segments[:2])) and segments[-1] not in _P2P


def is_bare_entity(address: Address) -> bool:
    """Whether the address names an entity itself (`<scheme>://<domain>/<id>`), not a part of it."""
    return bool(address.domain) and len(address.path) > 1 and "/" not in address.path[1:]
