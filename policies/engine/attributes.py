"""The attributes that policies can ask about a message, each evaluated when first asked for.

Facts is a map with three forms of every attribute, filled on demand:

    facts["msgId"]    the value, None if the message has none
    facts["=msgId"]   for text comparison: a text, a tuple of texts for a list, None
    facts["#msgId"]   for ordering: a number (length of a list, position of a clock value), NaN

Rules
- Facts belong to one message and one recipient and are never reused: nothing leaks from one message
  to the next.
- The sender is what the Speaker says, never what the body claims.
- A value that exists but cannot be determined (not a number, a failed look-up) is Undetermined:
  every operation on it raises CannotEvaluate. Reading it does not raise."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, NoReturn

from msgnode.core import addresses, json_text
from msgnode.core.addresses import is_p2p_stub
from msgnode.core.decision import Direction
from msgnode.core.errors import NodeError
from msgnode.core.identity import Speaker

from .language import Attribute, CannotEvaluate
from .parameters import NUMBER, text_of_scalar
from .vocabulary import RATE, WEEKDAYS, Kind, kind_of


def kind_of_message(sender: str, to: str) -> str | None:
    """The kind by the first matching line of docs/reference/policy.md, section 1.4."""
    ends = (sender.rstrip("/"), to.rstrip("/"))
    if ends[0].startswith("domain://registry.") or ends[1].startswith("domain://registry."):
        return "registration"
    if is_p2p_stub(sender) or is_p2p_stub(to):
        return "p2pConnection"
    for name, tails, both in _BY_END:
        if all(e.endswith(tails) for e in ends) if both else any(e.endswith(tails) for e in ends):
            return name
    return None


_BY_END: tuple[tuple[str, tuple[str, ...], bool], ...] = (
    ("addressAllocation", ("/address-allocation",), True),
    ("objectAllocation", ("/object-address-allocation", "/object-allocation"), False),
    ("discovery", ("/discovery",), False),
    ("globalRegistry", ("/graph-connector",), False),
    ("identityManagement", ("/idm",), False),
    ("p2pConnection", ("/ua",), False),
    ("dataSync", ("/sm",), False),
)


if TYPE_CHECKING:
    from msgnode.core.messages import Message

NAN = math.nan


class Undetermined:
    """A value that cannot be determined: any comparison with it raises CannotEvaluate."""

    __slots__ = ("why",)

    def __init__(self, why: str) -> None:
        self.why = why

    def ask(self, *_: Any) -> NoReturn:
        """Raise CannotEvaluate."""
        raise CannotEvaluate(self.why)

    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = ask
    __hash__ = __iter__ = __contains__ = __bool__ = __len__ = ask
    startswith = endswith = __add__ = __radd__ = ask

    def __repr__(self) -> str:
        return f"<{self.why}>"


def _nothing(name: str, facts: Facts) -> Any:
    return None


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What is known besides the message: the clock (in the node's time zone), the node, look-ups.

    `look_up(name, facts)` returns attributes that are neither in the message nor here. It must not
    block; it raises CannotEvaluate for a fact that is not available.
    """

    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    node: Mapping[str, Any] = field(default_factory=dict)
    look_up: Callable[[str, Facts], Any] = _nothing


class Facts(dict[str, Any]):
    """The attributes of one message from one speaker, to one recipient."""

    __slots__ = ("direction", "message", "speaker", "surroundings", "to")

    def __init__(
        self,
        message: Message,
        speaker: Speaker,
        direction: Direction,
        to: str,
        around: Surroundings,
    ) -> None:
        self.message = message
        self.speaker = speaker
        self.direction = direction
        self.to = to
        self.surroundings = around

    def set_values(self, values: Mapping[str, Any]) -> None:
        """Set these values instead of evaluating them (tests, playground)."""
        for name, value in values.items():
            kind = kind_of(name)
            if kind in _PLAIN and value is not None:
                value = str(value).lower() if kind is Kind.FOLDED else str(value)
            self[name] = value

    def __missing__(self, key: str) -> Any:
        read = READERS.get(key)
        try:
            if read is not None:
                value = read(self)
            elif key[0] == "=":
                value = text_form(self[key[1:]])
            elif key[0] == "#":
                value = number_form(self[key[1:]])
            else:
                value = _open_name(key, self)
        except CannotEvaluate as why:
            value = Undetermined(str(why))
        except NodeError as error:
            value = Undetermined(error.description)
        self[key] = value
        return value


def text_form(value: Any) -> Any:
    """The form for text comparison."""
    if value is None or value.__class__ in (str, Undetermined):
        return value
    if isinstance(value, (list, tuple)):
        return tuple(text_of_scalar(item) for item in value if isinstance(item, (str, int, float)))
    return () if isinstance(value, dict) else text_of_scalar(value)


def number_form(value: Any) -> Any:
    """The form for ordering."""
    kind = value.__class__
    if kind is int:
        return value
    if value is None:
        return NAN
    if kind is Undetermined:
        return value
    if kind is list or kind is tuple:
        return len(value)
    if kind is str and NUMBER.fullmatch(value):
        value = float(value)
    if value.__class__ is float and math.isfinite(value):
        return value
    return Undetermined(f"{str(value)[:60]!r} is not a number")


def _domain(text: str) -> str:
    address = addresses.parse(text)
    return (address.domain if address.scheme else text).lstrip(".").lower()


@lru_cache(maxsize=16_384)
def origin_of(text: str) -> object:
    """The part of an address that its scheme and domain attributes depend on."""
    address = addresses.parse(text)
    return (address.scheme, address.domain) if address.scheme else text


def _scheme(text: str) -> str:
    return addresses.parse(text).scheme or "https"


def _first(path: str) -> str:
    return path.lstrip("/").split("/", 1)[0]


def _hyperty(text: str) -> str | None:
    address = addresses.parse(text)
    if address.scheme != "hyperty":
        return None
    return f"hyperty://{address.domain}/{_first(address.path)}"


def _user_domain(facts: Facts) -> str | None:
    identity = facts.speaker.identity
    if identity is None or not identity.username:
        return identity.idp_domain.lower() or None if identity else None
    _, at, domain = identity.username.rpartition("@")
    return (domain if at else identity.idp_domain or identity.username).lower()


def _identity(name: str, facts: Facts) -> Any:
    identity = facts.speaker.identity
    return (getattr(identity, name) or None) if identity is not None else None


def _body(path: tuple[str, ...], facts: Facts) -> Any:
    value: Any = facts.message.fields()
    for key in path:
        value = value.get(key) if value.__class__ is dict else None
    return value


def _subscribe_to(facts: Facts) -> Any:
    """Every address a subscription names, under whichever of the field's keys."""
    if facts.message.type not in ("subscribe", "unsubscribe"):
        return None
    body = facts.message.fields()
    named: list[str] = []
    for key in ("resource", "resources", "subscribe", "unsubscribe"):
        value = body.get(key)
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, str) and item not in named:
                named.append(item)
    return named


def _runtime(end: str, name: str, facts: Facts) -> Any:
    if end == "to":
        text = facts.to
    else:
        text = facts.message.sender
        if facts.speaker.runtime_url:
            return facts.speaker.runtime_url
    address = addresses.parse(text)
    if address.scheme in addresses.RUNTIME_SCHEMES:
        return f"{address.scheme}://{address.domain}/{_first(address.path)}"
    return facts.surroundings.look_up(name, facts)


def _id(facts: Facts) -> Any:
    return json_text.decode(facts.message.id) if facts.message.id else None


def _clock(facts: Facts) -> datetime:
    now = dict.get(facts, "@now")
    if now is None:
        now = facts["@now"] = facts.surroundings.now()
    return now


def _seconds(facts: Facts) -> int:
    now = _clock(facts)
    return now.hour * 3600 + now.minute * 60 + now.second


def _node(name: str, facts: Facts) -> Any:
    return facts.surroundings.node.get(name)


def _looked_up(name: str, facts: Facts) -> Any:
    return facts.surroundings.look_up(name, facts)


def _open_name(name: str, facts: Facts) -> Any:
    """An attribute whose name is open: body.<field>, rate.<key>.<window>, sumOf a b."""
    if name.startswith("body."):
        return _body(tuple(name.split(".")[1:]), facts)
    if name.startswith("sumOf "):
        try:
            total = sum(facts["#" + term] for term in name.split()[1:])
        except OverflowError:
            raise CannotEvaluate("the sum is too large") from None
        return None if total != total else total
    if RATE.fullmatch(name):
        return facts.surroundings.look_up(name, facts)
    raise CannotEvaluate(f"there is no attribute {name!r}")


READERS: dict[str, Callable[[Facts], Any]] = {
    "msgFrom": lambda f: f.message.sender or None,
    "msgTo": lambda f: f.to or None,
    "msgId": _id,
    "msgType": lambda f: kind_of_message(f.message.sender, f.to),
    "actionType": lambda f: f.message.type,
    "direction": lambda f: f.direction.value,
    "bytes": lambda f: len(f.message.frame),
    "auth": lambda f: None,  # a mark of the node; a sender's claim is ignored
    "srcScheme": lambda f: _scheme(f.message.sender),
    "dstScheme": lambda f: _scheme(f.to),
    "srcSPDomain": lambda f: _domain(f.message.sender),
    "dstSPDomain": lambda f: _domain(f.to),
    "srcHyperty": lambda f: _hyperty(f.message.sender),
    "dstHyperty": lambda f: _hyperty(f.to),
    "hyperty": lambda f: _hyperty(f.to),
    "resource": partial(_body, ("resource",)),
    "resourceType": partial(_body, ("value", "resourceType")),
    "subscription": partial(_body, ("subscriber",)),
    "subscribeTo": _subscribe_to,
    "bodyValue": partial(_body, ("value",)),
    "valueNumber": partial(_body, ("value", "number")),
    "valueAllocated": partial(_body, ("value", "allocated")),
    "valueExpires": partial(_body, ("value", "expires")),
    "valueResources": partial(_body, ("value", "resources")),
    "valueUser": partial(_body, ("value", "user")),
    "valueDescriptor": partial(_body, ("value", "descriptor")),
    "srcUsername": partial(_identity, "username"),
    "srcIDP": partial(_identity, "issuer"),
    "srcIDPDomain": _user_domain,
    "srcGroups": partial(_identity, "groups"),
    "srcSession": lambda f: f.speaker.session_id or None,
    "srcAddress": lambda f: f.speaker.remote_address or None,
    "srcOrigin": lambda f: f.speaker.origin.value,
    "peer": lambda f: f.speaker.peer or f.surroundings.look_up("peer", f),
    "peerWay": partial(_looked_up, "peerWay"),
    "hops": lambda f: 1 if f.speaker.peer else 0,
    "srcRuntime": partial(_runtime, "from", "srcRuntime"),
    "dstRuntime": partial(_runtime, "to", "dstRuntime"),
    "dstUsername": partial(_looked_up, "dstUsername"),
    "userRegistries": partial(_looked_up, "userRegistries"),
    "addrAllastMin": partial(_looked_up, "addrAllastMin"),
    "time": lambda f: _clock(f).strftime("%H:%M:%S"),
    "date": lambda f: _clock(f).date().isoformat(),
    "weekday": lambda f: WEEKDAYS[_clock(f).weekday()],
    "#time": _seconds,
    "#date": lambda f: _clock(f).toordinal(),
    "#weekday": lambda f: _clock(f).weekday(),
    "domain": partial(_node, "domain"),
    "domainRegistry": partial(_node, "domainRegistry"),
    "port": partial(_node, "port"),
    "useSSL": partial(_node, "useSSL"),
}

_PLAIN = frozenset({Kind.TEXT, Kind.FOLDED, Kind.TIME, Kind.DATE, Kind.WEEKDAY})


_DOMAINS = frozenset(
    {
        *("actionType", "srcScheme", "dstScheme", "srcSPDomain", "dstSPDomain", "auth"),
        *("srcUsername", "srcIDP", "srcIDPDomain", "srcGroups", "srcSession", "srcAddress"),
        *("srcOrigin", "domain", "domainRegistry", "port", "useSSL"),
    }
)
_ENDS = _DOMAINS | {"msgFrom", "msgTo", "msgType", "srcHyperty", "dstHyperty", "hyperty"}
SHARED = _DOMAINS | {form + name for form in "=#" for name in _DOMAINS}
"""Keys whose values are the same for every message of one speaker and type between two origins
(`origin_of`)."""
REPEATABLE = _ENDS | {form + name for form in "=#" for name in _ENDS}
"""Keys whose values are the same for every message of one speaker, type, sender and recipient. A
decision that asked for no others holds for the next such message too."""


def text_key(attribute: Attribute) -> str:
    """The key of an attribute's text form. Plain kinds have one text (or None, or Undetermined)."""
    return attribute.name if attribute.kind in _PLAIN else "=" + attribute.name
