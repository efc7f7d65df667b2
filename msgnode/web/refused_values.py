"""Answers 400, not 500, in every API if the database refuses a value.

PostgreSQL refuses a NUL in a text and a time zone of -23:56; SQLite accepts both.
"""

from __future__ import annotations

from typing import Any

from django.db import DataError
from rest_framework.exceptions import ParseError
from rest_framework.response import Response
from rest_framework.views import exception_handler

from msgnode.core.errors import unknown_value


def handle(error: Exception, context: dict[str, Any]) -> Response | None:
    """The exception handler of APIs that have none of their own."""
    if isinstance(error, DataError):
        error = ParseError(unknown_value(str(error)).description)
    return exception_handler(error, context)
