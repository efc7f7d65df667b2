"""What of the draft is in force, in words; and one rule that comes into force alone, and out of it.

A rule is not yet in force, published in shadow mode (only counted), or enforced. What that is
follows from the version in force, never from the draft.

Rules
- Sets are switched as one. A rule that comes into force alone therefore moves: from a set that is
  not enforced to a set of the same kind beside it, `<set>-enforced`, and when it is taken back to
  the one in shadow mode, from where it came or `<set>-shadow`.
- Only this rule changes in what is published; everything else that is edited stays in the draft.
- Named lists that are published already stay as they are published.
"""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from policies.engine.documents import MAX_ID, DocumentReader
from policies.engine.grammar import ConditionReader
from policies.engine.language import Lists, PolicyError, Problem
from policies.models import Policy, PolicySet, Rule, Version

from . import pap, sentences
from .drafts import draft_document, draft_lists, layer_out, rule_out

Document = list[dict[str, Any]]
Path = tuple[str, ...]
_ENDINGS = {"enforce": "-enforced", "shadow": "-shadow"}
_OUTER = ("key", "note", "priority", "target", "obligations", "advice", "algorithm")


class State(StrEnum):
    """What a rule does now."""

    NOT_YET = "not in force yet"
    OFF = "switched off"
    SHADOW = "in shadow: only counted"
    ENFORCED = "enforced"


_MODES = {"off": State.OFF, "shadow": State.SHADOW, "enforce": State.ENFORCED}
_WORDS = {
    State.NOT_YET: "Not in force yet: no message is decided by this rule, and none is counted.",
    State.OFF: "Not in force: version {version} has this rule in a set that is switched off.",
    State.SHADOW: "Published in shadow, in version {version}: the node counts what this rule would "
    "change, and decides no message by it.",
    State.ENFORCED: "Enforced, in version {version}: messages are decided by this rule now.",
}


@dataclass(frozen=True, slots=True)
class Standing:
    """What a rule does now.

    version      the version in force, 0 if nothing was ever published
    is_changed   the draft has it otherwise
    """

    state: State
    version: int
    is_changed: bool = False

    @property
    def short(self) -> str:
        """For lists."""
        return f"{self.state}{', changed since' if self.is_changed else ''}"

    @property
    def words(self) -> str:
        """For the page of the rule."""
        changed = " What you changed here since is not in force yet." if self.is_changed else ""
        return _WORDS[self.state].format(version=self.version) + changed


@dataclass(frozen=True, slots=True)
class Change:
    """A version that differs from the one in force in one rule.

    alone   a document that has nothing but this rule and what is around it
    to      where the policy is that the rule stands in then: the ids
    mark    of what it was made from
    """

    document: Document
    alone: Document
    lists: dict[str, Any]
    newest: Version | None
    to: Path
    mode: str
    mark: str


class Standings:
    """Where the rules of the draft stand in the version in force; made once for a page."""

    def __init__(self) -> None:
        self.version = pap.current()
        document = self.version.document if self.version else []
        self._published = {
            "/".join(path)[:255]: (mode, rule) for path, mode, rule in rules_of(document)
        }

    def of(self, path: str, rule: dict[str, Any]) -> Standing:
        """What a rule does that stands there in the draft (as `paths_of_rules` has it)."""
        number = self.version.number if self.version else 0
        found = self._published.get(path)
        if found is None:
            return Standing(State.NOT_YET, number)
        mode, published = found
        return Standing(_MODES[mode], number, published != rule)


def standing_of(rule: Rule) -> Standing:
    """What one rule of the draft does now."""
    return Standings().of("/".join((*path_of(rule.policy), rule.key))[:255], rule_out(rule))


def enforcing(rule: Rule) -> Change:
    """What would be published if this rule alone were enforced. Raises PolicyError."""
    return _change(rule, "enforce")


def taking_back(rule: Rule) -> Change:
    """What would be published if this rule alone only reported again. Raises PolicyError."""
    return _change(rule, "shadow")


def apply(rule: Rule, change: Change, author: Any, shown: str) -> Version:
    """Publish what `enforcing` or `taking_back` gave, and move the rule in the draft.

    Args:
        rule: the rule of the draft.
        change: what it comes to.
        author: who publishes it.
        shown: the mark of what the author was shown, "" if nothing was.

    Raises:
        pap.NotFit: it cannot be compiled, or the tests of the policies fail.
        pap.ChangedMeanwhile: it is not what was shown.
    """
    if shown and shown != change.mark:
        raise pap.ChangedMeanwhile("the rule has changed, or another version is in force")

    def move() -> None:
        policy = _policy_for(rule.policy, change.to, change.mode)
        if policy.pk != rule.policy_id:
            Rule.objects.filter(pk=rule.pk).update(policy=policy)

    does = "enforced" if change.mode == "enforce" else "only counted again"
    note = f"rule {rule.key} is {does}"
    return pap.publish_document(
        change.document, change.lists, author, note, change.newest, also=move
    )


def path_of(policy: Policy) -> Path:
    """The ids of the sets around a policy, the outermost first, and its own."""
    return (*(each.key for each in _sets_around(policy)), policy.key)


def rules_of(document: Sequence[dict[str, Any]]) -> Iterator[tuple[Path, str, dict[str, Any]]]:
    """Every rule of a document with the ids of what is around it, and the mode of its set."""
    for policy_set in document:
        mode = policy_set.get("mode", "enforce")
        for path, rule in _rules_in(policy_set):
            yield path, mode, rule


def changes_in_words(
    before: tuple[Document, Lists], after: tuple[Document, Lists]
) -> list[tuple[str, str, str]]:
    """What another document changes about rules: each rule, what it does then, and what it says."""
    old = {path: (mode, rule) for path, mode, rule in rules_of(before[0])}
    new = {path: (mode, rule) for path, mode, rule in rules_of(after[0])}
    found = []
    for path, (mode, rule) in new.items():
        was = old.get(path)
        if was == (mode, rule):
            continue
        then = _MODES[mode].value
        if was is None:
            then = f"new, {then}"
        elif was[0] != mode:
            then = f"{then}; {_MODES[was[0]]} now"
        else:
            then = f"changed, {then}"
        found.append((" / ".join(path), then, _sentence(rule, after[1])))
    for path, (mode, rule) in old.items():
        if path not in new:
            gone = f"removed; {_MODES[mode]} now"
            found.append((" / ".join(path), gone, _sentence(rule, before[1])))
    return found


def changes(before: Version | None, after: Version | None) -> list[tuple[str, str, str]]:
    """`changes_in_words` from one version to another (None: nothing; after None: the draft)."""
    old = (before.document, before.lists) if before else ([], {})
    new = (after.document, after.lists) if after else (draft_document(), draft_lists())
    return changes_in_words(old, new)


def _sentence(rule: dict[str, Any], lists: Lists) -> str:
    reader = ConditionReader(lists)
    read = DocumentReader(reader).rule(rule, "$", "rule")
    return "" if reader.problems else sentences.of_rule(read)


def _rules_in(layer: dict[str, Any], above: Path = ()) -> Iterator[tuple[Path, dict[str, Any]]]:
    path = (*above, str(layer.get("id", "")))
    for inner in layer.get("policies", ()):
        yield from _rules_in(inner, path)
    for rule in layer.get("rules", ()):
        yield (*path, str(rule.get("id", ""))), rule


def _change(rule: Rule, mode: str) -> Change:
    newest = pap.current()
    document: Document = copy.deepcopy(newest.document) if newest else []
    policy, said = rule.policy, rule_out(rule)
    here = path_of(policy)
    to = (_set_for(here[0], mode, document), *here[1:])
    taken = Rule.objects.filter(policy__key=to[-1], key=rule.key).exclude(pk=rule.pk)
    if any(path_of(each.policy) == to for each in taken.select_related("policy")):
        where = " / ".join(to)
        raise PolicyError([Problem(where, f"there is a rule {rule.key} already; rename this one")])
    _take_out(document, here, rule.key)
    _take_out(document, to, rule.key)
    _place(document, policy, to, mode)["rules"].append(said)
    alone: Document = []
    _place(alone, policy, to, "enforce")["rules"].append(said)
    text = json.dumps([newest.number if newest else 0, mode, to, said], sort_keys=True)
    mark = hashlib.sha256(text.encode()).hexdigest()
    lists = {**draft_lists(), **(newest.lists if newest else {})}
    return Change(document, alone, lists, newest, to, mode, mark)


def _set_for(key: str, mode: str, document: Document) -> str:
    """The outermost set for a rule that shall have this mode: its own if that has it."""
    base = key
    for ending in _ENDINGS.values():
        base = base.removesuffix(ending)
    beside = f"{base[: MAX_ID - 9]}{_ENDINGS[mode]}"
    for name in (key, base, beside):
        drafted = set(
            PolicySet.objects.filter(key=name, parent=None).values_list("mode", flat=True)
        )
        published = {each.get("mode", "enforce") for each in document if each.get("id") == name}
        modes = drafted | published
        if modes == {mode} or (name == beside and not modes):
            return name
    wrong = f"the set {beside} is not in mode {mode}, in the draft or in the version in force"
    raise PolicyError([Problem(beside, wrong)])


def _take_out(document: Document, path: Path, key: str) -> None:
    """Remove a rule where it stands, if it stands there."""
    policy = _found(document, path)
    if policy is not None:
        policy["rules"] = [each for each in policy.get("rules", ()) if each.get("id") != key]


def _found(document: Document, path: Path) -> dict[str, Any] | None:
    *sets, last = path
    inside: list[Any] = document
    for name in sets:
        layer = next((e for e in inside if e.get("id") == name and "policies" in e), None)
        if layer is None:
            return None
        inside = layer["policies"]
    return next((e for e in inside if e.get("id") == last and "policies" not in e), None)


def _place(document: Document, policy: Policy, path: Path, mode: str) -> dict[str, Any]:
    """The policy of a document for a rule; with what is around it as the draft has it, if new."""
    inside: list[Any] = document
    found: dict[str, Any] | None = None
    rows: list[PolicySet | Policy] = [*_sets_around(policy), policy]
    for name, row in zip(path, rows, strict=True):
        is_set = isinstance(row, PolicySet)
        found = next(
            (e for e in inside if e.get("id") == name and ("policies" in e) == is_set), None
        )
        if found is None:
            found = {**layer_out(row), "id": name}
            if isinstance(row, PolicySet):
                found |= {"policyCombiningAlgorithm": row.algorithm, "policies": []}
            else:
                found |= {"ruleCombiningAlgorithm": row.algorithm, "rules": []}
            if inside is document:
                found["mode"] = mode
            inside.append(found)
        inside = found.get("policies", [])
    assert found is not None  # noqa: S101 (a path has at least one name)
    return found


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
        rules = _place(without, stored.policy, path_of(stored.policy), "enforce")["rules"]
        rules[:] = [each for each in rules if each["id"] != stored.key]
    for each in without:
        if each["id"] == names[0]:
            each["mode"] = "enforce"
    with_it = copy.deepcopy(without)
    rules = _place(with_it, policy, names, "enforce")["rules"]
    taken = {each["id"] for each in rules}
    name = rule["id"][:MAX_ID]
    rules.append({**rule, "id": f"{name[: MAX_ID - 6]} (new)" if name in taken else name})
    return without, with_it


def _policy_for(policy: Policy, path: Path, mode: str) -> Policy:
    """The same place in the draft."""
    above: PolicySet | None = None
    for name, row in zip(path, _sets_around(policy), strict=False):
        like = {field: getattr(row, field) for field in _OUTER} | {"key": name}
        like |= {"mode": mode if above is None else row.mode}
        above, _ = PolicySet.objects.get_or_create(key=name, parent=above, defaults=like)
    like = {field: getattr(policy, field) for field in _OUTER}
    found, _ = Policy.objects.get_or_create(key=policy.key, policy_set=above, defaults=like)
    return found


def _sets_around(policy: Policy) -> list[PolicySet]:
    found: list[PolicySet] = []
    above: PolicySet | None = policy.policy_set
    while above is not None:
        found.insert(0, above)
        above = above.parent
    return found
