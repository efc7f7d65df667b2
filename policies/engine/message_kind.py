"""The attribute msgType: the kind of a message, derived from its addresses."""

from __future__ import annotations

from msgnode.core.addresses import is_p2p_stub


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
