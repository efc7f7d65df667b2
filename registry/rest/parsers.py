"""How /api/v1 reads bodies."""

from __future__ import annotations

from typing import Any

import msgspec
from rest_framework.exceptions import ParseError
from rest_framework.parsers import JSONParser


class SafeJSONParser(JSONParser):
    """Refuses what is nested more deeply than Python reads, and what no answer could name."""

    def parse(self, *args: Any, **kwargs: Any) -> Any:
        """The body as values. Raises ParseError."""
        try:
            found = super().parse(*args, **kwargs)
            msgspec.json.encode(found)
        except RecursionError:
            raise ParseError("The body is nested too deeply.") from None
        except UnicodeEncodeError:
            raise ParseError("The body contains half of a surrogate pair.") from None
        return found
