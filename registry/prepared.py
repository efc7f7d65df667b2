"""Queries compiled once, for the values of many searches at once.

The SQL of a search depends on which keys it has, not on their values; Django builds and compiles it
in several times the time in which the database answers it by an index. And each statement waits for
the interpreter, twice. So the SQL of each combination of keys is kept, with the places of its
values, and searches that wait together share a statement: its parameter is a JSON array with the
values of each, its rows are the JSON arrays of what each has found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec
from django.db import DEFAULT_DB_ALIAS, connections
from django.db.models import QuerySet

_MARK = "\0"
FOUND = "found"
"""Name of the one column that the query has: the JSON of a row."""

Build = Callable[[Mapping[str, str]], QuerySet[Any]]  # of the rows for values of keys

_encode = msgspec.json.Encoder().encode


class PreparedQuery:
    """One compiled query.

    Args:
        build: makes the query from the value of each key. It may put something before a value,
            and must not look at it.
        keys: the names of its keys.
        vendor: the kind of database.
    """

    def __init__(self, build: Build, keys: Iterable[str], vendor: str) -> None:
        queryset = build({key: f"{_MARK}{key}" for key in keys})
        compiler = queryset.query.get_compiler(DEFAULT_DB_ALIAS)
        of_one, params = compiler.as_sql()
        self._params = [_place(param) for param in params]
        is_sqlite = vendor == "sqlite"
        value = "json_extract(one.value, '$[{}]')" if is_sqlite else "(one.value ->> {})"
        of_one %= tuple(value.format(number) for number in range(len(params)))
        found = (
            f"json_group_array(json({FOUND}))" if is_sqlite else f"json_agg({FOUND}::json)::text"
        )
        each = "json_each(%s)" if is_sqlite else "jsonb_array_elements(%s) WITH ORDINALITY"
        columns = "" if is_sqlite else "(value, key)"
        self.sql = (
            f"SELECT (SELECT {found} FROM ({of_one.replace('%', '%%')}) AS matches)"  # noqa: S608
            f" FROM {each} AS one{columns} ORDER BY one.key"
        )
        """Its one parameter is what `parameter` makes."""

    def parameter(self, searches: Sequence[Mapping[str, str]]) -> str:
        """The parameter for the values of the keys of each search."""
        return _encode(
            [
                [fixed if key is None else f"{fixed}{values[key]}" for fixed, key in self._params]
                for values in searches
            ]
        ).decode()

    def found(self, searches: Sequence[Mapping[str, str]]) -> list[str]:
        """For the values of the keys of each search: the JSON array of its rows."""
        with connections[DEFAULT_DB_ALIAS].cursor() as cursor:
            cursor.execute(self.sql, [self.parameter(searches)])
            return [text or "[]" for (text,) in cursor.fetchall()]


def _place(param: Any) -> tuple[Any, str | None]:
    """What is fixed of a parameter, and the key whose value follows it."""
    if isinstance(param, str) and _MARK in param:
        fixed, _, key = param.partition(_MARK)
        return fixed, key
    return param, None
