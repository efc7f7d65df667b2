"""Reads the parameters of operators into the form in which they are compared.

    equals in contains   texts (case-folded if the attribute is); equals "*" matches any value
    like                 pieces between the stars; `\\*` is a literal star
    moreThan lessThan    numbers, or positions of times, dates and weekdays
    between              two such bounds in one text, inclusive
    exists               true or false

Rules
- A list of parameters means "one of them". An empty list is refused.
- "<name>" refers to the value of another attribute (not for `like`, `between` and `exists`: a
  sender's text must not become a pattern). `in` also takes "@name", a list kept by the operator.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from datetime import date
from typing import Any

from .language import Attribute, Condition, Lists, Some, Test
from .vocabulary import CLOSED_WORLDS, SYNONYMS, WEEKDAYS, Kind

Report = Callable[[str, str], None]
NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_LARGEST = sys.float_info.max
_CLOCK = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)(?::([0-5]\d))?", re.ASCII)
_REFERENCE = re.compile(r"<([^<>]+)>")
_STAR = re.compile(r"(\\\*|\*)")
_SHAPES = {
    Kind.TIME: "a time such as 06:00 or 06:00:00",
    Kind.DATE: "a date such as 2017-03-15",
    Kind.WEEKDAY: "a day such as monday",
}


def read_parameters(
    attribute: Attribute,
    operator: str,
    raw: Any,
    at: str,
    report: Report,
    lists: Lists,
    attribute_of: Callable[[str, str], Attribute | None],
    forced: bool,
) -> Condition:
    """Read `attribute operator raw` as a condition. Invalid parameters are reported and skipped."""
    if operator == "exists":
        if not isinstance(raw, bool):
            report(at, "exists expects true or false")
        return Test(attribute, "exists", (raw is True,))
    items = raw if isinstance(raw, list) else [raw]
    if not items:
        report(at, "a list of parameters must not be empty")
    values: list[Any] = []
    others: list[Condition] = []
    for number, item in enumerate(items):
        here = f"{at}[{number}]" if isinstance(raw, list) else at
        if isinstance(item, str):
            if item == "*" and operator == "equals":
                others.append(Test(attribute, "exists", (True,)))
                continue
            if (match := _REFERENCE.fullmatch(item)) is not None:
                if operator in ("like", "between"):
                    report(here, f"{operator} takes no reference to another attribute")
                elif (other := attribute_of(match[1], here)) is not None:
                    others.append(Test(attribute, operator, (), other))
                continue
            if operator == "in" and item.startswith("@"):
                if item[1:] not in lists:
                    report(here, f"there is no list named {item[1:]!r}; {_named(lists)}")
                values += [_folded(attribute.kind, text) for text in lists.get(item[1:], ())]
                continue
        _READERS[operator](attribute, item, here, report, values)
    if operator in ("equals", "in") and not forced:
        _check_world(attribute.name, values, at, report)
    if values or not others:
        others.insert(0, Test(attribute, operator, tuple(values)))
    return others[0] if len(others) == 1 else Some(tuple(others))


def text_of_scalar(value: Any) -> str:
    """A JSON scalar as text for comparison: 1, 1.0 and "1" are equal."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def position(kind: Kind, text: str) -> int | None:
    """The position of a time, date or weekday in its order; None if the text is invalid."""
    if kind is Kind.WEEKDAY:
        lowered = text.lower()
        return WEEKDAYS.index(lowered) if lowered in WEEKDAYS else None
    if kind is Kind.TIME:
        match = _CLOCK.fullmatch(text)
        return match and int(match[1]) * 3600 + int(match[2]) * 60 + int(match[3] or 0)
    try:
        return date.fromisoformat(text).toordinal() if len(text) == 10 else None
    except ValueError:
        return None


def _named(lists: Lists) -> str:
    return f"known are {', '.join(sorted(lists))}" if lists else "none is kept yet"


def _folded(kind: Kind, text: str) -> str:
    return text.lower() if kind in (Kind.FOLDED, Kind.WEEKDAY) else text


def _read_text(attribute: Attribute, item: Any, at: str, report: Report, values: list[Any]) -> None:
    if item is None or isinstance(item, (list, dict)):
        return report(at, "expected a text, a number or true/false")
    kind = attribute.kind
    text = _folded(kind, text_of_scalar(item))
    if kind in (Kind.TIME, Kind.DATE):
        where = position(kind, text)
        if where is None:
            return report(at, f"expected {_SHAPES[kind]}, found {text!r}")
        if kind is Kind.TIME:
            text = f"{where // 3600:02}:{where // 60 % 60:02}:{where % 60:02}"
    values.append(SYNONYMS.get(attribute.name, {}).get(text, text))
    return None


def _check_world(name: str, values: list[str], at: str, report: Report) -> None:
    world = CLOSED_WORLDS.get(name)
    if world is not None:
        for text in values:
            if text not in world:
                report(at, f"{name} is never {text!r}; one of {', '.join(world)}")


def _read_part(attribute: Attribute, item: Any, at: str, report: Report, values: list[Any]) -> None:
    if not isinstance(item, (str, int, float)):
        return report(at, "expected a text, a number or true/false")
    values.append(_folded(attribute.kind, text_of_scalar(item)))
    return None


def _read_pattern(
    attribute: Attribute, item: Any, at: str, report: Report, values: list[Any]
) -> None:
    if not isinstance(item, str):
        return report(at, "like expects a text, in which * stands for anything")
    pieces = [""]
    for part in _STAR.split(_folded(attribute.kind, item)):
        if part == "*":
            pieces.append("")
        else:
            pieces[-1] += "*" if part == "\\*" else part
    values.append(tuple(pieces))
    return None


def _read_number(
    attribute: Attribute, item: Any, at: str, report: Report, values: list[Any]
) -> None:
    bound = _bound(attribute.kind, item)
    if bound is None:
        return report(at, f"expected {_SHAPES.get(attribute.kind, 'a number')}, found {item!r}")
    values.append(bound)
    return None


def _read_interval(
    attribute: Attribute, item: Any, at: str, report: Report, values: list[Any]
) -> None:
    kind = attribute.kind
    parts = item.split() if isinstance(item, str) else []
    bounds = [_bound(kind, part) for part in parts]
    if len(bounds) != 2 or None in bounds:
        shape = _SHAPES.get(kind, "a number")
        return report(at, f"between expects a text of two bounds, each {shape}; found {item!r}")
    low, high = bounds
    if low > high and kind not in (Kind.TIME, Kind.WEEKDAY):  # type: ignore[operator]
        return report(at, f"the lower bound comes first; nothing lies between {item!r}")
    values.append((low, high))
    return None


def _bound(kind: Kind, item: Any) -> float | None:
    if kind in _SHAPES:
        return position(kind, item) if isinstance(item, str) else None
    if isinstance(item, str) and NUMBER.fullmatch(item):
        item = float(item)
    if isinstance(item, bool) or not isinstance(item, (int, float)):
        return None
    return item if abs(item) <= _LARGEST else None


_READERS: dict[str, Callable[[Attribute, Any, str, Report, list[Any]], None]] = {
    "equals": _read_text,
    "in": _read_text,
    "contains": _read_part,
    "like": _read_pattern,
    "moreThan": _read_number,
    "lessThan": _read_number,
    "between": _read_interval,
}
