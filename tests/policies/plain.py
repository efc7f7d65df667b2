"""A second evaluator, as simple as possible: it reads the JSON as it stands, by the book, slowly.

A truth is True, False or None (cannot be told). Known attributes are handed in as a dict.
"""

from __future__ import annotations

import re

DAYS = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]
FOLDED = {"actionType", "weekday", "srcSPDomain", "dstSPDomain", "srcScheme", "dstScheme"}


def evaluate(document, known):
    """(decision, obligations) of a document."""
    sets = sorted(document, key=lambda s: s.get("priority", 0))
    for policy_set in sets:
        effect, obligations = layer(policy_set, known)
        if effect != "notApplicable":
            return effect.split("-")[0], obligations
    return "notApplicable", []


def layer(node, known):
    if "effect" in node:
        both = all_of([truth(node.get(key, {}), known) for key in ("target", "condition")])
        if both is None:
            return f"indeterminate-{node['effect'][0].upper()}", []
        obligations = [list(item) for item in node.get("obligations", {}).items()]
        return (node["effect"], obligations) if both else ("notApplicable", [])
    children = node.get("policies", node.get("rules"))
    algorithm = node.get("policyCombiningAlgorithm", node.get("ruleCombiningAlgorithm"))
    applies = truth(node.get("target", {}), known)
    if applies is False:
        return "notApplicable", []
    effect, obligations = combine(algorithm or "blockOverrides", children, known)
    obligations = obligations + [
        list(d) for d in node.get("obligations", {}).get(effect, {}).items()
    ]
    if applies is None and effect in ("permit", "deny"):
        return f"indeterminate-{effect[0].upper()}", []
    if applies is None and effect != "notApplicable":
        return effect, []
    return effect, obligations


def combine(algorithm, children, known):
    if algorithm == "firstApplicable":
        for child in sorted(children, key=lambda c: c.get("priority", 0)):
            effect, obligations = layer(child, known)
            if effect != "notApplicable":
                return effect, obligations
        return "notApplicable", []
    win, lose = (
        ("deny", "permit")
        if algorithm in ("blockOverrides", "permitUnlessDeny")
        else ("permit", "deny")
    )
    results = [layer(child, known) for child in children]
    final = overridden([effect for effect, _ in results], win, lose)
    if algorithm.endswith(("UnlessPermit", "UnlessDeny")) and final not in (win, lose):
        return lose, []
    return final, [
        obligation
        for effect, obligations in results
        if effect == final
        for obligation in obligations
    ]


def overridden(effects, win, lose):
    mine, other = f"indeterminate-{win[0].upper()}", f"indeterminate-{lose[0].upper()}"
    if win in effects:
        return win
    if "indeterminate-DP" in effects or (mine in effects and (other in effects or lose in effects)):
        return "indeterminate-DP"
    for effect in (mine, lose, other):
        if effect in effects:
            return effect
    return "notApplicable"


def all_of(truths):
    if False in truths:
        return False
    return None if None in truths else True


def any_of(truths):
    if True in truths:
        return True
    return None if None in truths else False


def negated(value):
    return None if value is None else not value


def truth(cond, known, name=None):
    """A condition, or (with a name) the expression of one attribute."""
    if cond in ({}, []):
        return True
    if isinstance(cond, list):
        return any_of([truth(item, known, name) for item in cond])
    truths = []
    for key, value in cond.items():
        items = value if isinstance(value, list) else [value]
        if key == "allOf":
            truths.append(all_of([truth(item, known, name) for item in items]))
        elif key == "anyOf":
            truths.append(any_of([truth(item, known, name) for item in items]))
        elif key == "not":
            truths.append(negated(any_of([truth(item, known, name) for item in items])))
        elif name is None:
            truths.append(truth(value, known, key))
        else:
            truths.append(test(name, key, value, known))
    return all_of(truths)


def test(name, operator, parameter, known):
    value = known.get(name)
    if operator == "exists":
        return (value is not None) == parameter
    items = parameter if isinstance(parameter, list) else [parameter]
    return any_of([one(name, value, operator, item, known) for item in items])


def one(name, value, operator, item, known):
    if operator == "equals" and item == "*":
        return value is not None
    other = isinstance(item, str) and item.startswith("<")
    if other:
        item = known.get(item[1:-1])
        if item is None:
            return False
    if value is None:
        return False
    if operator in ("moreThan", "lessThan"):
        here, bound = order(name, value), order(name, item)
        if here is None or bound is None:
            return None
        return here > bound if operator == "moreThan" else here < bound
    if operator == "between":
        low, high = (order(name, part) for part in item.split())
        here = order(name, value)
        if here is None:
            return None
        if low <= high:
            return low <= here <= high
        return here >= low or here <= high
    fold = str.lower if name in FOLDED else str
    texts = [fold(text(v)) for v in (value if isinstance(value, list) else [value])]
    wanted = [fold(text(v)) for v in (item if isinstance(item, list) else [item])]
    if operator in ("equals", "in"):
        return any(t in wanted for t in texts)
    if operator == "contains":
        if isinstance(value, list):
            return any(w in texts for w in wanted)
        return any(w in texts[0] for w in wanted)
    pattern = ".*".join(re.escape(part) for part in wanted[0].split("*"))
    return any(re.fullmatch(pattern, t, re.DOTALL) for t in texts)


def text(value):
    return str(value).lower() if isinstance(value, bool) else str(value)


def order(name, value):
    if name == "weekday":
        return DAYS.index(value.lower())
    if name == "time":
        hours, minutes, *seconds = value.split(":")
        return int(hours) * 3600 + int(minutes) * 60 + int((seconds or [0])[0])
    if isinstance(value, list):
        return len(value)
    try:
        return float(value)
    except ValueError:
        return None
