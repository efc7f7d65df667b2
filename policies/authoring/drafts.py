"""Converts the draft, which the console edits, to a document of the language and back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from django.db import connection, transaction

from policies.engine.documents import MAX_ID, read_document
from policies.engine.language import Problem
from policies.engine.vocabulary import ALGORITHM_ALIASES
from policies.models import NamedList, Policy, PolicySet, Rule

from .transfer import Bundle


@contextmanager
def reading() -> Iterator[None]:
    """A transaction that sees the draft as it is at one moment, and keeps nobody from writing."""
    if connection.in_atomic_block:
        yield
        return
    database: Any = connection
    usual = getattr(database, "transaction_mode", None)
    if connection.vendor == "sqlite":
        database.transaction_mode = "DEFERRED"  # the usual one takes the only writer
    try:
        with transaction.atomic():
            if connection.vendor == "postgresql":
                with connection.cursor() as cursor:
                    cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            yield
    finally:
        if connection.vendor == "sqlite":
            database.transaction_mode = usual


def draft_document() -> list[dict[str, Any]]:
    """The whole draft as a document; every set carries its mode. Always a few queries."""
    below: dict[int | None, list[PolicySet]] = {}
    for policy_set in PolicySet.objects.prefetch_related("policies__rules"):
        below.setdefault(policy_set.parent_id, []).append(policy_set)
    return [_set_out(policy_set, below) for policy_set in below.get(None, [])]


def draft_lists() -> dict[str, list[str]]:
    """The named lists."""
    return {each.name: each.texts() for each in NamedList.objects.all()}


def rule_out(rule: Rule) -> dict[str, Any]:
    """A rule in the words of the language."""
    return {**layer_out(rule), "effect": rule.effect, "condition": rule.condition}


def policy_out(policy: Policy, rules: Iterable[Rule]) -> dict[str, Any]:
    """A policy in the words of the language."""
    return {
        **layer_out(policy),
        "ruleCombiningAlgorithm": policy.algorithm,
        "rules": [rule_out(rule) for rule in rules],
    }


def paths_of_rules() -> dict[int, str]:
    """Where each rule of the draft stands, as decisions name it: `set/set/policy/rule`."""
    sets = {
        pk: (key, above) for pk, key, above in PolicySet.objects.values_list("pk", "key", "parent")
    }

    def path(pk: int) -> str:
        key, above = sets[pk]
        return key if above is None else f"{path(above)}/{key}"

    rules = Rule.objects.values_list("pk", "key", "policy__key", "policy__policy_set")
    return {pk: f"{path(inside)}/{policy}/{key}"[:255] for pk, key, policy, inside in rules}


def policy_of_the_console(is_saved: bool = True) -> Policy:
    """Where a rule goes whose author has no policy yet: made in shadow mode, so that it reports.

    Args:
        is_saved: whether it is made if there is none; else it is one that only describes it.
    """
    found = Policy.objects.filter(key="rules", policy_set__key="console", policy_set__parent=None)
    if (policy := found.first()) is not None:
        return policy
    if not is_saved:
        return Policy(key="rules", policy_set=PolicySet(key="console"))
    policy_set, _ = PolicySet.objects.get_or_create(
        key="console", parent=None, defaults={"mode": PolicySet.Mode.SHADOW}
    )
    return Policy.objects.create(key="rules", policy_set=policy_set)


def replace_draft(document: Sequence[dict[str, Any]], lists: dict[str, Sequence[str]]) -> None:
    """Make the draft say what a document says. Raises PolicyError."""
    read_document(list(document), lists)  # before the transaction, for which others wait
    _replace(document, lists)


@transaction.atomic
def _replace(document: Sequence[dict[str, Any]], lists: dict[str, Sequence[str]]) -> None:
    PolicySet.objects.all().delete()
    NamedList.objects.all().delete()
    for name, members in lists.items():
        NamedList.objects.create(name=name, members="\n".join(members))
    for number, policy_set in enumerate(document, 1):
        _set_in(policy_set, None, f"set-{number}")


@transaction.atomic
def add_to_draft(document: Sequence[dict[str, Any]], mode: str | None = None) -> list[PolicySet]:
    """Put the sets of a document into the draft, in the place of sets of the same id."""
    read_document(list(document), draft_lists())
    added = []
    for number, policy_set in enumerate(document, 1):
        name = str(policy_set.get("id", f"set-{number}"))
        PolicySet.objects.filter(key=name, parent=None).delete()
        added.append(_set_in({**policy_set, "mode": mode or policy_set.get("mode", "off")},
                             None, name))  # fmt: skip
    return added


@transaction.atomic
def add_bundle(bundle: Bundle, mode: str | None = None, keep_lists: bool = False) -> int:
    """Put a policy file into the draft, all or nothing; the number of sets. Raises PolicyError.

    mode        of all its sets; None: as the file says
    keep_lists  lists that are kept already stay as they are
    """
    for name, members in bundle.lists.items():
        row, is_new = NamedList.objects.get_or_create(name=name)
        if is_new or not keep_lists:
            row.members = "\n".join(members)
            row.save()
    return len(add_to_draft(bundle.document, mode))


def warnings_of(bundle: Bundle) -> list[Problem]:
    """What a policy file that is in the draft now says in words that are not this language's."""
    warnings = list(bundle.warnings)
    read_document(list(bundle.document), draft_lists(), warnings=warnings)
    return warnings


def layer_out(row: PolicySet | Policy | Rule) -> dict[str, Any]:
    """What every layer has, in the words of the language."""
    out: dict[str, Any] = {"id": row.key, "priority": row.priority, "target": row.target}
    for key in ("obligations", "advice"):
        if said := _without_empty_words(getattr(row, key)):
            out[key] = said
    if row.note:
        out["description"] = row.note
    return out


def _without_empty_words(said: Any) -> Any:
    """Obligations without those that tell the sender nothing, as when a field was left empty."""
    if isinstance(said, list):
        return [_without_empty_words(each) for each in said]
    if not isinstance(said, dict):
        return said
    return {
        name: _without_empty_words(value)
        for name, value in said.items()
        if not (name in ("inform", "info") and isinstance(value, str) and not value.strip())
    }


def _set_out(policy_set: PolicySet, below: dict[int | None, list[PolicySet]]) -> dict[str, Any]:
    children = [policy_out(p, p.rules.all()) for p in policy_set.policies.all()]
    children += [_set_out(inner, below) for inner in below.get(policy_set.pk, [])]
    mode = {} if policy_set.parent_id else {"mode": policy_set.mode}
    return {
        **layer_out(policy_set),
        **mode,
        "policyCombiningAlgorithm": policy_set.algorithm,
        "policies": children,
    }


def _layer_in(raw: dict[str, Any], name: str) -> dict[str, Any]:
    return {
        "key": str(raw.get("id", name[-MAX_ID:])),
        "note": str(raw.get("description", ""))[:255],
        "priority": int(raw.get("priority", 0)),
        "target": raw.get("target", {}),
        "obligations": raw.get("obligations", {}),
        "advice": raw.get("advice", {}),
    }


def _algorithm(raw: dict[str, Any], key: str) -> str:
    return ALGORITHM_ALIASES[raw.get(key, "blockOverrides")].value


def _set_in(raw: dict[str, Any], parent: PolicySet | None, name: str) -> PolicySet:
    policy_set = PolicySet.objects.create(
        **_layer_in(raw, name),
        mode=raw.get("mode", "off" if parent is None else "enforce"),
        algorithm=_algorithm(raw, "policyCombiningAlgorithm"),
        parent=parent,
    )
    rules = []
    for number, child in enumerate(raw.get("policies", []), 1):
        name = f"{policy_set.key}/{number}"
        if "policies" in child:
            _set_in(child, policy_set, name)
            continue
        policy = Policy.objects.create(
            **_layer_in(child, name),
            policy_set=policy_set,
            algorithm=_algorithm(child, "ruleCombiningAlgorithm"),
        )
        for at, rule in enumerate(child.get("rules", []), 1):
            rules.append(
                Rule(
                    **_layer_in(rule, f"{policy.key}/{at}"),
                    policy=policy,
                    effect=rule["effect"],
                    condition=rule.get("condition", {}),
                )
            )
    Rule.objects.bulk_create(rules, batch_size=500)
    return policy_set
