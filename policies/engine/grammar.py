"""Conditions: from JSON to values of the language, with the path of every error.

    condition := {} | []                      always
               | { member, ... }              all of its members
               | [ condition, ... ]           at least one
    member    := allOf | anyOf | not : condition(s)
               | attribute : expression       attribute := name | <name> | sumOf name name ...
    expression:= { operator : parameter, ... } | [ expression, ... ]
               | { allOf | anyOf | not : expression(s), ... }

Rules
- `not` over a list is the negation of "at least one of the list".
- {} and [] mean "always" as a whole condition only; an empty form anywhere else is taken for a
  mistake and refused.
- One Python frame per layer: 400 layers must be readable under the default recursion limit.
- Spellings of the field's documents and runtimes are accepted with a warning that shows the
  language's own: `srcDomain`, message types under `msgType`, `and`, `or`, and lists that begin with
  `and`, `or` or `not`.
"""

from __future__ import annotations

from typing import Any

from msgnode.core import addresses, json_text
from msgnode.core.message_types import TYPES

from .language import (
    ALWAYS,
    MAX_DEPTH,
    All,
    Attribute,
    Broken,
    Condition,
    Lists,
    Not,
    Problem,
    Some,
)
from .parameters import read_parameters
from .vocabulary import (
    ALIASES,
    ATTRIBUTES,
    FIELD_KEYWORDS,
    FIELD_NAMES,
    FUNCTIONS,
    KEYWORDS,
    OPERATORS,
    Kind,
    kind_of,
)

_OPERATORS = frozenset(OPERATORS)

_ADDRESSES = frozenset(
    {"msgFrom", "msgTo", "srcHyperty", "dstHyperty", "hyperty", "srcRuntime", "dstRuntime"}
)
"""Attributes whose values are addresses, which the node reads in canonical form only."""


class ConditionReader:
    """Reads conditions and collects the errors in them.

    lists    the operator's named lists
    problems errors, for which the document is refused
    warnings what was accepted although it is not the language's own spelling
    forced   accept unknown attributes as conditions that can never be evaluated; for documents that
             were not checked when they were saved
    """

    def __init__(self, lists: Lists | None = None, forced: bool = False) -> None:
        self.problems: list[Problem] = []
        self.warnings: list[Problem] = []
        self.lists = lists or {}
        self.forced = forced
        self._attributes: dict[str, Attribute] = {}

    def report(self, path: str, text: str) -> None:
        """Note an error."""
        self.problems.append(Problem(path, text))

    def warn(self, path: str, text: str) -> None:
        """Note an accepted spelling that is not the language's own."""
        self.warnings.append(Problem(path, text))

    def read(self, raw: Any, at: str) -> Condition:
        """Read a whole condition or target."""
        if raw in ({}, []):
            return ALWAYS
        return self._condition(raw, at, 1)

    def entries(self, raw: Any, at: str) -> Condition:
        """Read a condition on the fields of a list entry, where any name is an attribute."""
        reader = _EntryReader(self.lists)
        reader.problems, reader.warnings = self.problems, self.warnings
        return reader.read(raw, at)

    def _condition(self, raw: Any, at: str, depth: int) -> Condition:
        if depth > MAX_DEPTH:
            self.report(at, f"nested deeper than {MAX_DEPTH} layers")
            return ALWAYS
        if not isinstance(raw, (dict, list)):
            self.report(at, "expected a map of conditions (all) or a list of them (at least one)")
            return ALWAYS
        if not raw:
            self.report(at, "an empty condition can only stand alone; leave it out here")
            return ALWAYS
        raw = self._in_words(raw, at)
        if isinstance(raw, list):
            some = []
            for number, item in enumerate(raw):
                some.append(self._condition(item, f"{at}[{number}]", depth + 1))
            return some[0] if len(some) == 1 else Some(tuple(some))
        members = []
        for word, value in raw.items():
            here = f"{at}.{word}"
            key = self._keyword(word, here)
            if key in KEYWORDS:
                group = []
                for number, item in enumerate(self._group(key, value, here)):
                    place = f"{here}[{number}]" if isinstance(value, list) else here
                    group.append(self._condition(item, place, depth + 1))
                members.append(_joined(key, group))
            elif (attribute := self.attribute(key, here)) is not None:
                members.append(self._expression(attribute, value, here, depth + 1))
            elif self.forced:
                members.append(Broken(f"{here}: there is no attribute {key!r}"))
        return members[0] if len(members) == 1 else All(tuple(members))

    def _expression(self, attribute: Attribute, raw: Any, at: str, depth: int) -> Condition:
        if depth > MAX_DEPTH:
            self.report(at, f"nested deeper than {MAX_DEPTH} layers")
            return ALWAYS
        if not isinstance(raw, (dict, list)) or not raw:
            self.report(at, f"expected an operator with its parameter; {_one_of(OPERATORS)}")
            return ALWAYS
        raw = self._in_words(raw, at)
        if isinstance(raw, list):
            some = []
            for number, item in enumerate(raw):
                some.append(self._expression(attribute, item, f"{at}[{number}]", depth + 1))
            return some[0] if len(some) == 1 else Some(tuple(some))
        members = []
        for word, value in raw.items():
            here = f"{at}.{word}"
            key = self._keyword(word, here)
            if key in _OPERATORS:
                members.append(self._test(attribute, key, value, here))
            elif key in KEYWORDS:
                group = []
                for number, item in enumerate(self._group(key, value, here)):
                    place = f"{here}[{number}]" if isinstance(value, list) else here
                    group.append(self._expression(attribute, item, place, depth + 1))
                members.append(_joined(key, group))
            else:
                self.report(here, f"there is no operator {key!r}; {_one_of(OPERATORS)}")
        return members[0] if len(members) == 1 else All(tuple(members))

    def _test(self, attribute: Attribute, operator: str, raw: Any, at: str) -> Condition:
        if attribute.name == "msgType" and operator in ("equals", "in"):
            items = raw if isinstance(raw, list) else [raw]
            types = [item for item in items if isinstance(item, str) and item.lower() in TYPES]
            if types:
                return self._of_types(attribute, operator, items, types, at)
        if attribute.name in _ADDRESSES and operator in ("equals", "in"):
            for item in raw if isinstance(raw, list) else [raw]:
                form = addresses.canonical(item) if isinstance(item, str) else ""
                if form not in ("", item):
                    self.warn(at, f"{item} is no message's address; its canonical form is {form}")
        return read_parameters(
            *(attribute, operator, raw, at, self.report),
            *(self.lists, self.attribute, self.forced),
        )

    def _of_types(
        self, attribute: Attribute, operator: str, items: list[Any], types: list[str], at: str
    ) -> Condition:
        """Read message types under `msgType` as `actionType`."""
        wanted = _json(types[0] if len(types) == 1 else types)
        self.warn(at, f'a type of message is written {{"actionType": {{"{operator}": {wanted}}}}}')
        parts = [self._test(Attribute("actionType", Kind.FOLDED), operator, types, at)]
        if rest := [item for item in items if item not in types]:
            parts.append(self._test(attribute, operator, rest, at))
        return parts[0] if len(parts) == 1 else Some(tuple(parts))

    def _keyword(self, word: str, at: str) -> str:
        """The language's keyword for a field spelling; any other word unchanged."""
        key = FIELD_KEYWORDS.get(word, word)
        if key is not word:
            self.warn(at, f'"{word}" is written "{key}"')
        return key

    def _in_words(self, raw: Any, at: str) -> Any:
        """Convert a list that begins with `and`, `or` or `not` to a map."""
        if not isinstance(raw, list) or raw[0] not in ("and", "or", "not"):
            return raw
        key = FIELD_KEYWORDS.get(raw[0], raw[0])
        self.warn(at, f'["{raw[0]}", …] is written {{"{key}": […]}}')
        return {key: raw[1:]}

    def _group(self, key: str, value: Any, at: str) -> list[Any]:
        if value in ([], {}):
            self.report(at, f"{key} must not be empty")
            return []
        return value if isinstance(value, list) else [value]

    def attribute(self, key: str, at: str) -> Attribute | None:
        """The attribute that a key names; None, and an error unless forced, if there is none."""
        name = key[1:-1] if key.startswith("<") and key.endswith(">") else key
        if (ours := FIELD_NAMES.get(name)) is not None:
            self.warn(at, f'"{name}" is written "{ours}"')
            key = ours
        found = self._attributes.get(key)
        if found is not None:
            return found
        words = key.split()
        if len(words) > 1 and words[0] in FUNCTIONS:
            terms = tuple(_plain(word) for word in words[1:])
            unknown = [term for term in terms if kind_of(term) is None]
            name, kind = f"{words[0]} {' '.join(terms)}", Kind.NUMBER
        else:
            terms, name = (), _plain(key)
            found_kind = kind_of(name)
            unknown, kind = ([] if found_kind else [name]), found_kind or Kind.ANY
        if unknown:
            if not self.forced:
                self.report(at, f"there is no attribute {unknown[0]!r}; {_nearest(unknown[0])}")
            return None
        attribute = self._attributes[key] = Attribute(name, kind, terms)
        return attribute


class _EntryReader(ConditionReader):
    def attribute(self, key: str, at: str) -> Attribute | None:
        return Attribute(_plain(key), Kind.ANY)


def _plain(key: str) -> str:
    name = key[1:-1] if key.startswith("<") and key.endswith(">") else key
    return ALIASES.get(name, name)


def _joined(key: str, group: list[Condition]) -> Condition:
    if key == "allOf":
        return group[0] if len(group) == 1 else All(tuple(group))
    some = group[0] if len(group) == 1 else Some(tuple(group))
    return Not(some) if key == "not" else some


def _json(value: Any) -> str:
    return json_text.encode(value).decode()


def _one_of(words: tuple[str, ...]) -> str:
    return f"one of {', '.join(words)}"


def _nearest(name: str) -> str:
    from difflib import get_close_matches

    near = get_close_matches(name, ATTRIBUTES, n=3, cutoff=0.5)
    return f"did you mean {' or '.join(near)}?" if near else "see the list of attributes"
