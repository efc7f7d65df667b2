"""The obligations and their parameters, checked when a document is saved so that none fails later.

limitByNumberOfEntries     {attribute: n}            keep the first n entries of a list
limitByConditionOfEntries  {attribute: condition}    keep the entries that meet the condition
rateLimit                  {"rate.<key>.<window>": n}  refuse messages beyond n
inform, info               text for the sender of a refused message
log                        text for the node's log
emailto                    address, or a list of addresses
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from .grammar import ConditionReader
from .language import Condition
from .vocabulary import ALIASES, OBLIGATIONS, RATE, kind_of

REWRITABLE = {
    "valueAllocated": ("value", "allocated"),
    "valueResources": ("value", "resources"),
    "bodyValue": ("value",),
    "resource": ("resource",),
}
"""The list attributes that an obligation may shorten, and their paths in the body."""

Report = Callable[[str, str], None]
"""Takes where an error is, and what it is."""


def rewritable_path(attribute: str) -> tuple[str, ...] | None:
    """The path of an attribute in the body, None if it cannot be rewritten."""
    name = ALIASES.get(attribute.strip("<>"), attribute.strip("<>"))
    if name.startswith("body."):
        return tuple(name.split(".")[1:])
    return REWRITABLE.get(name)


def check_obligation(
    name: str, value: Any, at: str, conditions: ConditionReader
) -> dict[str, Condition]:
    """Report errors in an obligation; return its conditions on list entries, by attribute."""
    report = conditions.report
    if name not in OBLIGATIONS:
        report(at, f"there is no obligation {name!r}; one of {', '.join(OBLIGATIONS)}")
    elif name == "limitByConditionOfEntries":
        return _check_conditions(value, at, conditions)
    elif name == "limitByNumberOfEntries":
        _check_numbers(value, at, report)
    elif name == "rateLimit":
        _check_rates(value, at, report)
    elif name == "emailto":
        mails = value if isinstance(value, list) else [value]
        if not all(isinstance(mail, str) and "@" in mail for mail in mails):
            report(at, "expected an e-mail address or a list of them")
    elif not isinstance(value, str):
        report(at, "expected a text")
    return {}


def _check_conditions(value: Any, at: str, conditions: ConditionReader) -> dict[str, Condition]:
    return {
        attribute: conditions.entries(condition, here)
        for attribute, condition, here in _rewritten(value, at, conditions.report)
    }


def _check_numbers(value: Any, at: str, report: Report) -> None:
    for _, number, here in _rewritten(value, at, report):
        if not _is_count(number):
            report(here, "expected a number of entries, 0 or more")


def _rewritten(value: Any, at: str, report: Report) -> Iterator[tuple[str, Any, str]]:
    """The attributes of a map that can be rewritten, with their limits and where they stand."""
    if not isinstance(value, dict) or not value:
        report(at, "expected a map {attribute: limit}")
        return
    for attribute, limit in value.items():
        here = f"{at}.{attribute}"
        if rewritable_path(attribute) is None:
            known = ", ".join(REWRITABLE)
            report(here, f"this attribute cannot be rewritten; one of {known}, body.<field>")
        else:
            yield attribute, limit, here


def _check_rates(value: Any, at: str, report: Report) -> None:
    if not isinstance(value, dict) or not value:
        report(at, 'expected a map such as {"rate.srcUsername.minute": 60}')
        return
    for rate, limit in value.items():
        if not RATE.fullmatch(rate) or kind_of(rate) is None:
            report(f"{at}.{rate}", "expected rate.<key>.<second|minute|hour|day>")
        elif not _is_count(limit):
            report(f"{at}.{rate}", "expected a number of messages, 0 or more")


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
