"""Compares the draft without and with a rule that is being edited, in its place."""

from __future__ import annotations

import copy
from typing import Any

from policies.engine.documents import MAX_ID
from policies.models import Policy, PolicySet, Rule

Document = list[dict[str, Any]]


def without_and_with(
    document: Document, policy: Policy, stored: Rule | None, rule: dict[str, Any]
) -> tuple[Document, Document]:
    """The draft as it would be without the rule and with it, its set in force.

    Args:
        document: the draft.
        policy: where the rule shall stand.
        stored: the rule as the draft has it, None for a new one.
        rule: as it is typed.
    """
    without, names = copy.deepcopy(document), _path(policy)
    if stored is not None:
        rules = _policy_in(without, _path(stored.policy))["rules"]
        rules[:] = [each for each in rules if each["id"] != stored.key]
    for each in without:
        if each["id"] == names[0]:
            each["mode"] = "enforce"
    with_it = copy.deepcopy(without)
    rules = _policy_in(with_it, names)["rules"]
    taken = {each["id"] for each in rules}
    name = rule["id"][:MAX_ID]
    rules.append({**rule, "id": f"{name[: MAX_ID - 6]} (new)" if name in taken else name})
    return without, with_it


def _path(policy: Policy) -> list[str]:
    """The ids of the sets around a policy, the outermost first, and its own."""
    names = [policy.key]
    above: PolicySet | None = policy.policy_set
    while above is not None:
        names.insert(0, above.key)
        above = above.parent
    return names


def _policy_in(document: Document, names: list[str]) -> dict[str, Any]:
    *sets, last = names
    inside = document
    for name in sets:
        found = next(each for each in inside if each["id"] == name and "policies" in each)
        inside = found["policies"]
    return next(each for each in inside if each["id"] == last and "rules" in each)
