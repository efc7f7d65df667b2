"""Import and export: policy files of this node and of the field, as documents.

Three forms are read:
    a list of policy sets (or one)       the language itself, as the field's nodes ship it
    {"sets": [...], "lists": {...}}      a bundle, what export writes: with version and hash
    {key: {"rules": [...], ...}}         the runtime's own policies (or one of them): conditions
                                         with attribute, operator and params, or lists that begin
                                         with and, or, not; decisions true and false

Rules
- What is read is still a document to be checked; reading only changes its form.
- The hash of a bundle is over its sets and lists; if it is there it must be right.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from msgnode.core import json_text
from policies.engine.language import PolicyError, Problem
from policies.engine.vocabulary import WEEKDAYS

MAX_SHOWN = 500
"""Characters of a rule that a warning shows."""
_LIST_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_OPERATORS = {"greaterThan": "moreThan", "lessThan": "lessThan"}
_ATTRIBUTES = {
    "source": "srcUsername",
    "domain": "srcIDPDomain",
    "scheme": "srcScheme",
    "type": "resourceType",
}
_DAY = re.compile(r"(\d{1,2})/(\d{1,2})/(\d{4})")
_CLOCK = re.compile(r"(\d{1,2}):?(\d{2})")
_DAYS = ("sunday", *WEEKDAYS[:-1])
_LOGIC = {"and": "allOf", "or": "anyOf", "not": "not"}
_ALGORITHMS = {
    "blockOverrides": "blockOverrides",
    "allowOverrides": "allowOverrides",
    "firstApplicable": "firstApplicable",
}


@dataclass(frozen=True, slots=True)
class Bundle:
    """Sets and named lists; `warnings` show what was written otherwise."""

    document: list[Any]
    lists: dict[str, list[str]] = field(default_factory=dict)
    version: int = 0
    warnings: tuple[Problem, ...] = ()


def read_bundle(text: str | bytes) -> Bundle:
    """Read a policy file of any of the three forms. Raises PolicyError."""
    try:
        raw = json_text.decode_document(text)
    except json_text.UNREADABLE as error:
        raise PolicyError([Problem("$", json_text.fault_of(error))]) from None
    if isinstance(raw, list):
        return Bundle(raw)
    if not isinstance(raw, dict):
        raise PolicyError([Problem("$", "expected a list of policy sets or a bundle")])
    if "sets" in raw:
        return _bundle(raw)
    if "policies" in raw:
        return Bundle([raw])
    if isinstance(raw.get("rules"), list):
        raw = {str(raw.get("key") or "policy"): raw}
    if raw and all(isinstance(each, dict) and "rules" in each for each in raw.values()):
        warnings: list[Problem] = []
        try:
            policies = [_runtime_policy(key, each, warnings) for key, each in raw.items()]
        except RecursionError:
            raise PolicyError([Problem("$", "nested too deeply")]) from None
        sets = [{"id": "runtime-policies", "policies": policies}]
        return Bundle(sets, warnings=tuple(warnings))
    raise PolicyError([Problem("$", "expected a list of policy sets or a bundle")])


def write_bundle(
    document: Sequence[Any], lists: Mapping[str, Sequence[str]], version: int = 0
) -> str:
    """The text of a bundle, with its hash."""
    bundle = {
        "version": version,
        "hash": _hash(document, lists),
        "lists": {name: list(members) for name, members in lists.items()},
        "sets": list(document),
    }
    return msgspec.json.format(msgspec.json.encode(bundle), indent=2).decode() + "\n"


def _bundle(raw: dict[str, Any]) -> Bundle:
    sets, lists = raw["sets"], raw.get("lists", {})
    if not isinstance(sets, list):
        raise PolicyError([Problem("$.sets", "expected a list of policy sets")])
    if not isinstance(lists, dict) or not all(
        isinstance(members, list) and all(isinstance(text, str) for text in members)
        for members in lists.values()
    ):
        raise PolicyError([Problem("$.lists", "expected a map of names and lists of texts")])
    for name in lists:
        if not _LIST_NAME.fullmatch(name):
            raise PolicyError(
                [Problem("$.lists", f"{name!r} is no name: letters, digits, - and _")]
            )
    if "hash" in raw and raw["hash"] != _hash(sets, lists):
        raise PolicyError([Problem("$.hash", "the hash is not that of the sets and lists")])
    version = raw.get("version", 0)
    return Bundle(sets, lists, version if isinstance(version, int) else 0)


def _hash(document: Sequence[Any], lists: Mapping[str, Sequence[str]]) -> str:
    content = msgspec.json.encode([list(document), dict(lists)], order="sorted")
    return "sha256:" + hashlib.sha256(content).hexdigest()


def _runtime_policy(key: str, raw: dict[str, Any], warnings: list[Problem]) -> dict[str, Any]:
    rules = []
    for n, rule in enumerate(raw["rules"] if isinstance(raw["rules"], list) else []):
        at = f"$.{key}.rules[{n}]"
        rules.append(_runtime_rule(rule, at))
        warnings.append(Problem(at, f"a runtime's rule is written {_shown(rules[-1])}"))
    algorithm = raw.get("combiningAlgorithm", raw.get("_combiningAlgorithm"))
    return {
        "id": key.replace(" ", "-"),
        "rules": rules,
        "ruleCombiningAlgorithm": _ALGORITHMS.get(str(algorithm), "blockOverrides"),
    }


def _runtime_rule(raw: Any, at: str) -> dict[str, Any]:
    decision = raw.get("decision", raw.get("authorise")) if isinstance(raw, dict) else None
    if not isinstance(decision, bool):
        text = "expected a rule with a decision (or authorise) true or false"
        raise PolicyError([Problem(at, text)])
    target: dict[str, Any] = {}
    scope, name = raw.get("scope"), raw.get("target")
    if scope == "hyperty" and name not in (None, "*", "global"):
        target = {"dstHyperty": {"equals": name}}
    elif scope in ("identity", "user") and name not in (None, "*", "global"):
        target = {"srcUsername": {"equals": name}}
    return {
        "effect": "permit" if decision else "deny",
        "priority": raw.get("priority", 0),
        "target": target,
        "condition": _runtime_condition(raw.get("condition", {}), f"{at}.condition"),
    }


def _runtime_value(attribute: str, value: Any) -> Any:
    """A parameter as this language writes it: 13/02/2017, 0 for Sunday, 0900 or 900."""
    text = str(value)
    if attribute == "date" and (day := _DAY.fullmatch(text)):
        return f"{day[3]}-{int(day[2]):02}-{int(day[1]):02}"
    if attribute == "weekday" and text.isdecimal() and int(text) < len(_DAYS):
        return _DAYS[int(text)]
    if attribute == "time" and " " in text:
        return " ".join(str(_runtime_value(attribute, each)) for each in text.split())
    if attribute == "time" and (clock := _CLOCK.fullmatch(text.zfill(4))):
        return f"{int(clock[1]):02}:{clock[2]}"
    return value


def _runtime_condition(raw: Any, at: str) -> Any:
    if raw in ({}, []):
        return {}
    if isinstance(raw, list) and raw and isinstance(raw[0], str) and raw[0] in _LOGIC:
        parts = [_runtime_condition(item, f"{at}[{n}]") for n, item in enumerate(raw[1:], 1)]
        return {_LOGIC[raw[0]]: parts}
    if isinstance(raw, dict) and isinstance(raw.get("condition"), list):
        return _runtime_condition(raw["condition"], f"{at}.condition")  # with logic, serialised
    if not isinstance(raw, dict) or "attribute" not in raw:
        raise PolicyError([Problem(at, "expected attribute, operator and params")])
    attribute, operator = str(raw["attribute"]), str(raw.get("operator"))
    params = raw.get("params")
    if operator == "in" and isinstance(params, str):
        params = f"@{params}"  # a group of the user: a list the operator keeps
    elif isinstance(params, list):
        params = [_runtime_value(attribute, each) for each in params]
    else:
        params = _runtime_value(attribute, params)
    if operator == "between" and isinstance(params, list) and len(params) == 2:
        params = f"{params[0]} {params[1]}"
    return {_ATTRIBUTES.get(attribute, attribute): {_OPERATORS.get(operator, operator): params}}


def _shown(value: Any) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= MAX_SHOWN else text[:MAX_SHOWN] + "…"
