"""Queries that are compiled once and executed for many searches at once.

The SQL of a search depends on which keys it has, not on their values; building and compiling it in
Django takes several times as long as the database needs to answer it by an index. And each
statement waits for the GIL twice. So the SQL of each combination of keys is kept, with the
positions of its values, and waiting searches share a statement: its parameter is a JSON array with
the values of each, its rows are JSON arrays of what each has found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec
from django.db import DEFAULT_DB_ALIAS, connections
from django.db.models import QuerySet

_MARK = "\0"
FOUND = "found"
"""The name of the query's only column: the JSON of a row."""

Build = Callable[[Mapping[str, str]], QuerySet[Any]]  # of the rows for values of keys

_encode = msgspec.json.Encoder().encode


class PreparedQuery:
    """One compiled query.

    Args: build: makes the query from the value of each key. It may put something before a value,
        and must not depend on it. keys: the names of its keys. vendor: the kind of database.
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
        """The SQL; its only parameter is made by `parameter`."""

    def parameter(self, searches: Sequence[Mapping[str, str]]) -> str:
        """The parameter for some searches, given the values of their keys."""
        return _encode(
            [
                [fixed if key is None else f"{fixed}{values[key]}" for fixed, key in self._params]
                for values in searches
            ]
        ).decode()

    def found(self, searches: Sequence[Mapping[str, str]]) -> list[str]:
        """The results of some searches: for each the JSON array of its rows."""
        with connections[DEFAULT_DB_ALIAS].cursor() as cursor:
            cursor.execute(self.sql, [self.parameter(searches)])
            return [text or "[]" for (text,) in cursor.fetchall()]


def _place(param: Any) -> tuple[Any, str | None]:
    """The fixed part of a parameter, and the key whose value follows it."""
    if isinstance(param, str) and _MARK in param:
        fixed, _, key = param.partition(_MARK)
        return fixed, key
    return param, None
