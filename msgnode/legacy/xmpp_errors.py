"""Errors of XMPP (RFC 6120, section 8.3) and the codes that they are here. Pure."""

from __future__ import annotations

from msgnode.core.errors import NodeError

from .network import Answer, shown
from .xmpp_stream import COMPONENT, Element, tag, text_of

_STANZAS = "urn:ietf:params:xml:ns:xmpp-stanzas"
_CODES = {
    "item-not-found": 404, "service-unavailable": 404, "recipient-unavailable": 404, "gone": 410,
    "remote-server-not-found": 404, "not-allowed": 404, "forbidden": 403, "not-authorized": 403,
    "registration-required": 403, "subscription-required": 403, "remote-server-timeout": 504,
    "conflict": 409, "policy-violation": 429, "resource-constraint": 429, "not-acceptable": 400,
    "bad-request": 400, "jid-malformed": 400, "feature-not-implemented": 501,
    "internal-server-error": 502,
}  # fmt: skip
"""What a server's error is here; prosody says `service-unavailable` of a user that there is not."""
_CONDITIONS = {
    400: ("modify", "not-acceptable"),
    403: ("auth", "forbidden"),
    404: ("cancel", "service-unavailable"),
    409: ("cancel", "conflict"),
    413: ("modify", "policy-violation"),
    429: ("wait", "resource-constraint"),
    501: ("cancel", "feature-not-implemented"),
    503: ("wait", "service-unavailable"),
    504: ("wait", "remote-server-timeout"),
}


def error_in(element: Element, about: str) -> NodeError:
    """The error in a stanza, as it is answered here.

    Args:
        element: the stanza.
        about: who it is about.
    """
    error = element.find(f"{COMPONENT} error")
    found = error.children if error is not None else []
    names = [each.local_name for each in found]
    condition = next((name for name in names if name in _CODES), "")
    if "not-connected" in names:
        condition = "remote-server-timeout"
    said = " ".join(each.text for each in found if each.local_name == "text")
    why = ": ".join(filter(None, (condition or "refused", shown(said))))
    return Answer(_CODES.get(condition, 502), f"{about} cannot be reached ({why}).")


def error_element(code: int, text: str = "", more: str = "") -> str:
    """The error that somebody there is told; `more` is XML that it has besides."""
    type_, condition = _CONDITIONS.get(code, ("cancel", "service-unavailable"))
    words = tag("text", {"xmlns": _STANZAS}, text_of(text[:200])) if text else ""
    return tag("error", {"type": type_}, tag(condition, {"xmlns": _STANZAS}), words, more)
