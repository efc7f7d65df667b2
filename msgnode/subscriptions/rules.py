"""What a request to the subscription manager names, and what a session may subscribe. Pure.

Forms of the body (docs/reference/messages.md, sections 4.1 and 9, rows 13-15): exact addresses in
`resources`, `subscribe` or `unsubscribe` (a list or one text; the union of all); or `resource`
with `childrenResources` (or `children`), which means `<resource>/changes`,
`<resource>/children/<c>`, `<resource>/<c>`, and the resource itself if nobody else owns it.

Ownership (docs/reference/messages.md, section 11)
- open to everybody: an address's `/changes`, `/children/…`, `/registration`, `/status`, and for
  data objects also `/<child name>`
- only for its owner: the address itself, its `/subscription`, and everything else below a hyperty
  or a runtime
- subscribing an entity's own address claims it: it then belongs to the session like an allocated
  one
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from itertools import chain, islice
from typing import Any, NamedTuple

from msgnode.core import addresses, redaction
from msgnode.core.errors import BadMessage, Forbidden

_LISTS = ("resources", "subscribe", "unsubscribe")


class Wanted(NamedTuple):
    """The addresses of a request. `optional` ones are subscribed only if nobody else owns them."""

    exact: tuple[str, ...]
    optional: tuple[str, ...]


class Access(Enum):
    """What it takes to subscribe an address."""

    EVERYBODY = "everybody"
    RUNTIME = "runtime"
    CLAIM = "claim"
    OWNER = "owner"
    NOBODY = "nobody"


def wanted(body: dict[str, Any], max_number: int) -> Wanted:
    """The addresses a request names.

    Args:
        body: the body of the request.
        max_number: most addresses per request; counted before they are put together.

    Raises:
        BadMessage: a field is wrong, which the text names; or there are too many.
    """
    exact, optional, children = _named(body, max_number)
    for parent in optional:
        exact.append(f"{parent}/changes")
        exact.extend(f"{parent}/children/{child}" for child in children)
        exact.extend(f"{parent}/{child}" for child in children)
    if not exact:
        raise BadMessage("The request names no address: give `resources`, or `resource`.")
    parts = 0
    for address in (*exact, *optional):
        if why := addresses.fault(address):
            raise BadMessage(f"An address of the request {why}.")
        if len(address) > addresses.MAX_HELD:
            raise BadMessage(f"An address is longer than {addresses.MAX_HELD} characters.")
        if len(addresses.parse(address).scheme) > addresses.MAX_SCHEME:
            raise BadMessage(f"A scheme is longer than {addresses.MAX_SCHEME} characters.")
        if redaction.holds_token(address):
            raise BadMessage("An address of the request holds a token.")
        parts += addresses.parts_of(address)
    if parts > addresses.MAX_PARTS_TOGETHER:
        most = addresses.MAX_PARTS_TOGETHER
        raise BadMessage(f"The addresses of the request have more than {most} parts together.")
    return Wanted(tuple(dict.fromkeys(exact)), tuple(dict.fromkeys(optional)))


def number_named(body: dict[str, Any], max_number: int) -> int:
    """How many addresses a request names, before they are put together. Raises as `wanted`."""
    exact, parents, children = _named(body, max_number)
    return len(exact) + _number_below(parents, children)


def _named(body: dict[str, Any], max_number: int) -> tuple[list[str], list[str], list[str]]:
    """The exact addresses, the resources and the names of the children. Raises BadMessage."""
    most = max_number + 1
    exact = [*islice(chain.from_iterable(_texts(body, field) for field in _LISTS), most)]
    children = [*islice(chain(_texts(body, "childrenResources"), _texts(body, "children")), most)]
    if children and body.get("resource") is None:
        raise BadMessage("`childrenResources` needs the `resource` they belong to.")
    parents = [*islice(_texts(body, "resource"), most)] if children or not exact else []
    if len(exact) + _number_below(parents, children) > max_number:
        raise BadMessage(f"A request may name at most {max_number} addresses.")
    return exact, parents, children


def _number_below(parents: list[str], children: list[str]) -> int:
    return len(parents) * (1 + 2 * len(children))


def check_homes(asked: Wanted, home: str) -> None:
    """Check that all addresses are in the domain of the subscription manager that was asked.

    Raises:
        Forbidden: one is not. Else a policy on requests to one manager could be bypassed by asking
            another.
    """
    for address in (*asked.exact, *asked.optional):
        if addresses.parse(address).home != home:
            raise Forbidden(f"{address} is not of the domain {home}.")


def access(address: str, own_runtime: str, domain: str) -> Access:
    """What is required to subscribe an address."""
    parsed = addresses.parse(address)
    if parsed.scheme in addresses.NODE_SCHEMES:
        return Access.NOBODY
    if addresses.is_event(address):
        return Access.EVERYBODY
    if parsed.scheme in addresses.RUNTIME_SCHEMES:
        return _runtime_access(address, parsed, own_runtime, domain)
    if addresses.is_bare_entity(parsed):
        return Access.CLAIM
    if parsed.scheme in addresses.HYPERTY_SCHEMES or address.endswith("/subscription"):
        return Access.OWNER
    return Access.EVERYBODY


def _runtime_access(
    address: str, parsed: addresses.Address, own_runtime: str, domain: str
) -> Access:
    if addresses.is_under(address, own_runtime) or addresses.is_under(
        addresses.runtime_twin(address), own_runtime
    ):
        return Access.RUNTIME
    if addresses.is_stub(parsed):
        return Access.CLAIM
    carries = addresses.parse(own_runtime).home  # a foreign node speaks for its own runtimes
    return Access.OWNER if parsed.home == carries != domain else Access.NOBODY


def _texts(body: dict[str, Any], field: str) -> Iterator[str]:
    """The texts of a field: one, a list, nested lists, or items `{"name": …}` (row 15)."""
    value = body.get(field)
    stack = [value] if value is not None else []
    while stack:
        item = stack.pop()
        if isinstance(item, list):
            stack.extend(reversed(item))
        elif isinstance(item, dict) and isinstance(item.get("name"), str):
            yield item["name"]
        elif isinstance(item, str):
            yield item
        else:
            raise BadMessage(f"`{field}` must hold addresses as texts.")
