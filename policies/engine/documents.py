"""Reads policy documents (sets, policies and rules) from JSON, with the path of every error.

Rules
- A document is a list of policy sets (a single set is read as a list of one). The `policies` of a
  set may be policies or sets.
- Defaults: priority 0, no target, no condition, no obligations, the algorithm blockOverrides, an id
  made from the position.
- Obligations are a map {name: parameter}, or a list of such maps. Policies and sets list them by
  decision; rules may. An unknown obligation would silently block what it is attached to, so it is
  refused; unknown advice is not.
- All errors are reported at once.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from .grammar import ConditionReader
from .language import (
    MAX_DEPTH,
    MAX_SETS,
    Condition,
    Lists,
    ObligationExpression,
    ObligationExpressions,
    Policy,
    PolicyError,
    PolicySet,
    Problem,
    Rule,
)
from .obligation_schema import check_obligation
from .vocabulary import ALGORITHM_ALIASES, Algorithm

EFFECTS = ("permit", "deny")
MODES = ("off", "shadow", "enforce")
MAX_ID = 100
MAX_PRIORITY = 2**31 - 1
DUE = (*EFFECTS, "notApplicable", "indeterminate")
_SHARED = {"id", "target", "priority", "obligations", "advice", "description"}
_RULE_KEYS = _SHARED | {"condition", "effect"}
_POLICY_KEYS = _SHARED | {"rules", "ruleCombiningAlgorithm"}
_SET_KEYS = _SHARED | {"policies", "policyCombiningAlgorithm", "version", "update", "mode"}


def read_document(
    raw: Any,
    lists: Lists | None = None,
    forced: bool = False,
    warnings: list[Problem] | None = None,
) -> tuple[PolicySet, ...]:
    """Read a document from decoded JSON.

    Args:
        raw: the document.
        lists: the operator's named lists.
        forced: accept unknown attributes (see ConditionReader).
        warnings: receives what was accepted although it is not the language's own spelling.

    Raises:
        PolicyError: with every error.
    """
    reader = DocumentReader(ConditionReader(lists, forced))
    if warnings is not None:
        reader.conditions.warnings = warnings
    try:
        sets = reader.document(raw)
    except RecursionError:
        reader.report("$", f"nested deeper than {MAX_DEPTH} layers")
    if reader.conditions.problems:
        raise PolicyError(reader.conditions.problems)
    return sets


class DocumentReader:
    """Reads the three layers; errors are collected in the reader of the conditions."""

    def __init__(self, conditions: ConditionReader) -> None:
        self.conditions = conditions
        self.report = conditions.report

    def document(self, raw: Any) -> tuple[PolicySet, ...]:
        """Read a list of policy sets."""
        if isinstance(raw, dict):
            raw = [raw]
        if not isinstance(raw, list):
            self.report("$", "expected a list of policy sets")
            return ()
        sets = [self.policy_set(item, f"$[{n}]", f"set-{n + 1}") for n, item in enumerate(raw)]
        self._distinct([s.id for s in sets], "$")
        return tuple(sets)

    def policy_set(self, raw: Any, at: str, name: str, depth: int = 1) -> PolicySet:
        """Read a policy set with everything in it."""
        raw = self._map(raw, at, _SET_KEYS, "a policy set")
        if depth > MAX_SETS:
            self.report(at, f"sets nested deeper than {MAX_SETS}")
            raw = {}
        id_ = self._id(raw, at, name)
        self._mode(raw, at)
        children: list[Policy | PolicySet] = []
        for n, item in enumerate(self._list(raw, "policies", at)):
            here, child = f"{at}.policies[{n}]", f"{id_}/{n + 1}"
            if isinstance(item, dict) and "policies" in item:
                children.append(self.policy_set(item, here, child, depth + 1))
            else:
                children.append(self.policy(item, here, child))
        self._distinct([c.id for c in children], f"{at}.policies")
        version = raw.get("version")
        return PolicySet(
            id=id_,
            policies=tuple(children),
            target=self.conditions.read(raw.get("target", {}), f"{at}.target"),
            algorithm=self._algorithm(raw, "policyCombiningAlgorithm", at),
            priority=self._priority(raw, at),
            obligations=self._by_decision(raw, "obligations", at, id_),
            advice=self._by_decision(raw, "advice", at, id_),
            version=version if isinstance(version, (int, float)) else 0,
            update=str(raw.get("update") or ""),
        )

    def policy(self, raw: Any, at: str, name: str) -> Policy:
        """Read a policy with its rules."""
        raw = self._map(raw, at, _POLICY_KEYS, "a policy")
        id_ = self._id(raw, at, name)
        rules = [
            self.rule(item, f"{at}.rules[{n}]", f"{id_}/{n + 1}")
            for n, item in enumerate(self._list(raw, "rules", at))
        ]
        self._distinct([rule.id for rule in rules], f"{at}.rules")
        return Policy(
            id=id_,
            rules=tuple(rules),
            target=self.conditions.read(raw.get("target", {}), f"{at}.target"),
            algorithm=self._algorithm(raw, "ruleCombiningAlgorithm", at),
            priority=self._priority(raw, at),
            obligations=self._by_decision(raw, "obligations", at, id_),
            advice=self._by_decision(raw, "advice", at, id_),
        )

    def rule(self, raw: Any, at: str, name: str) -> Rule:
        """Read a rule."""
        raw = self._map(raw, at, _RULE_KEYS, "a rule")
        effect = raw.get("effect")
        if effect not in EFFECTS:
            self.report(f"{at}.effect", f"expected permit or deny, found {effect!r}")
            effect = "deny"
        id_ = self._id(raw, at, name)
        return Rule(
            id=id_,
            effect=effect,
            target=self.conditions.read(raw.get("target", {}), f"{at}.target"),
            condition=self.conditions.read(raw.get("condition", {}), f"{at}.condition"),
            priority=self._priority(raw, at),
            obligations=self._by_rule(raw, "obligations", at, id_, effect),
            advice=self._by_rule(raw, "advice", at, id_, effect),
        )

    def _map(self, raw: Any, at: str, known: set[str], what: str) -> dict[str, Any]:
        if not isinstance(raw, dict):
            self.report(at, f"expected {what}, which is a map")
            return {}
        for key in raw.keys() - known:
            self.report(f"{at}.{key}", f"{what} has no such key; one of {', '.join(sorted(known))}")
        return raw

    def _list(self, raw: dict[str, Any], key: str, at: str) -> list[Any]:
        value = raw.get(key, [])
        if not isinstance(value, list):
            self.report(f"{at}.{key}", "expected a list")
            return []
        return value

    def _id(self, raw: dict[str, Any], at: str, name: str) -> str:
        id_ = raw.get("id", name)
        if isinstance(id_, bool) or not isinstance(id_, (str, int)) or id_ == "":
            self.report(f"{at}.id", "expected a text or a number")
            return name
        text = str(id_)
        if "id" in raw and (len(text) > MAX_ID or not text.isprintable()):
            self.report(f"{at}.id", f"expected at most {MAX_ID} characters that can be printed")
            return name
        return text

    def _priority(self, raw: dict[str, Any], at: str) -> float:
        priority = raw.get("priority", 0)
        is_number = isinstance(priority, (int, float)) and not isinstance(priority, bool)
        if not is_number or priority != priority // 1 or abs(priority) > MAX_PRIORITY:
            self.report(f"{at}.priority", "expected a whole number; the lower one comes first")
            return 0
        return priority  # type: ignore[no-any-return]

    def _mode(self, raw: dict[str, Any], at: str) -> None:
        mode = raw.get("mode", MODES[0])
        if mode not in MODES:
            self.report(f"{at}.mode", f"expected one of {', '.join(MODES)}; found {mode!r}")

    def _algorithm(self, raw: dict[str, Any], key: str, at: str) -> Algorithm:
        name = raw.get(key, Algorithm.BLOCK_OVERRIDES)
        found = ALGORITHM_ALIASES.get(name) if isinstance(name, str) else None
        if found is None:
            self.report(f"{at}.{key}", f"expected one of {', '.join(Algorithm)}; found {name!r}")
        return found or Algorithm.BLOCK_OVERRIDES

    def _distinct(self, ids: list[str], at: str) -> None:
        times = Counter(ids)
        if len(times) < len(ids):
            twice = next(id_ for id_ in ids if times[id_] > 1)
            self.report(at, f"the id {twice!r} stands twice among siblings")

    def _by_rule(
        self, raw: dict[str, Any], key: str, at: str, source: str, effect: str
    ) -> tuple[ObligationExpression, ...]:
        value = raw.get(key)
        if isinstance(value, dict) and value and value.keys() <= set(DUE):
            return self._by_decision(raw, key, at, source).get(effect, ())
        return self._obligations(value, f"{at}.{key}", source, key)

    def _by_decision(
        self, raw: dict[str, Any], key: str, at: str, source: str
    ) -> ObligationExpressions:
        value = raw.get(key)
        obligations: ObligationExpressions = {}
        for item in value if isinstance(value, list) else [value]:
            if not item:
                continue
            if not isinstance(item, dict) or not item.keys() <= set(DUE):
                self.report(f"{at}.{key}", f"expected a map by decision: {', '.join(DUE)}")
                continue
            for due, tasks in item.items():
                more = self._obligations(tasks, f"{at}.{key}.{due}", source, key)
                obligations[due] = obligations.get(due, ()) + more
        return obligations

    def _obligations(
        self, raw: Any, at: str, source: str, key: str
    ) -> tuple[ObligationExpression, ...]:
        obligations = []
        for item in raw if isinstance(raw, list) else [raw]:
            if not item:
                continue
            if not isinstance(item, dict):
                self.report(at, "expected a map of names and parameters, or a list of such maps")
                continue
            for name, value in item.items():
                of_entries: dict[str, Condition] = {}
                if key == "obligations":
                    of_entries = check_obligation(name, value, f"{at}.{name}", self.conditions)
                obligations.append(ObligationExpression(name, value, source, of_entries))
        return tuple(obligations)
