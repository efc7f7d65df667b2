"""How /api/v1 reads bodies."""

from __future__ import annotations

from typing import Any

from rest_framework.exceptions import ParseError
from rest_framework.parsers import JSONParser


class SafeJSONParser(JSONParser):
    """Refuses what is nested more deeply than Python reads, too."""

    def parse(self, *args: Any, **kwargs: Any) -> Any:
        """The body as values. Raises ParseError."""
        try:
            return super().parse(*args, **kwargs)
        except RecursionError:
            raise ParseError("The body is nested too deeply.") from None
