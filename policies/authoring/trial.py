"""Compares the draft without and with a rule that is being edited, in its place."""

from __future__ import annotations

import copy
from typing import Any

from policies.engine.documents import MAX_ID
from policies.models import Policy, Rule

from .standing import Document, path_of, place


def without_and_with(
    document: Document, policy: Policy, stored: Rule | None, rule: dict[str, Any]
) -> tuple[Document, Document]:
    """The draft as it would be without the rule and with it, its set in force.

    Args:
        document: the draft.
        policy: where the rule shall stand; it need not be saved.
        stored: the rule as the draft has it, None for a new one.
        rule: as it is typed.
    """
    without, names = copy.deepcopy(document), path_of(policy)
    if stored is not None:
        rules = place(without, stored.policy, path_of(stored.policy), "enforce")["rules"]
        rules[:] = [each for each in rules if each["id"] != stored.key]
    for each in without:
        if each["id"] == names[0]:
            each["mode"] = "enforce"
    with_it = copy.deepcopy(without)
    rules = place(with_it, policy, names, "enforce")["rules"]
    taken = {each["id"] for each in rules}
    name = rule["id"][:MAX_ID]
    rules.append({**rule, "id": f"{name[: MAX_ID - 6]} (new)" if name in taken else name})
    return without, with_it
