"""Static files of the tests' own process: looked through once, not once for each test client."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from django.http import HttpRequest, HttpResponse
from whitenoise.middleware import WhiteNoiseMiddleware


class LookedThroughOnce(WhiteNoiseMiddleware):
    """What it finds in hundreds of files depends on settings that no test changes."""

    _found: ClassVar[dict[str, Any]] = {}

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        if not self._found:
            super().__init__(get_response)
            self._found.update(self.__dict__)
        self.__dict__.update(self._found, get_response=get_response)
