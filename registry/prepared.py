"""Queries compiled once: the SQL of a search depends on which keys it has, not on their values.

Django builds and compiles a query in several times the time in which the database answers it by an
index. Here the SQL of each combination of keys is kept, with the places of their values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from django.db import DEFAULT_DB_ALIAS, connections
from django.db.models import QuerySet

_MARK = "\0"

Build = Callable[[Mapping[str, str]], QuerySet[Any]]  # of the rows for values of keys


class PreparedQuery:
    """One compiled query.

    Args:
        build: makes the query from the value of each key. It may put something before a value,
            and must not look at it.
        keys: the names of its keys.
    """

    def __init__(self, build: Build, keys: Iterable[str]) -> None:
        queryset = build({key: f"{_MARK}{key}" for key in keys})
        compiler = queryset.query.get_compiler(DEFAULT_DB_ALIAS)
        self._sql, params = compiler.as_sql()
        self._params = [_place(param) for param in params]

    def rows(self, values: Mapping[str, str]) -> list[Any]:
        """The rows for these values of its keys, as the database gives them."""
        params = [fixed if key is None else f"{fixed}{values[key]}" for fixed, key in self._params]
        with connections[DEFAULT_DB_ALIAS].cursor() as cursor:
            cursor.execute(self._sql, params)
            return cursor.fetchall()


def _place(param: Any) -> tuple[Any, str | None]:
    """What is fixed of a parameter, and the key whose value follows it."""
    if isinstance(param, str) and _MARK in param:
        fixed, _, key = param.partition(_MARK)
        return fixed, key
    return param, None
