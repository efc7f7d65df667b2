"""Allocations: sessions ask for an address and are answered after the commit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bench.wire import message

from .requests import RequestLoad
from .runtimes import ALLOCATION, runtime_url


class AllocationLoad(RequestLoad):
    name = "allocator"

    def request(self, name: str, number: int) -> dict[str, Any]:
        return {
            "id": number,
            "type": "create",
            "from_": f"{runtime_url(name)}/registry",
            "to": ALLOCATION,
            "body": {"scheme": "comm", "value": {"number": 1}},
        }

    def frames(self, name: str) -> Callable[[int], bytes]:
        frame = message(**self.request(name, 1))
        return lambda number: frame
