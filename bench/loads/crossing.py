"""The relay load between two workers of one node: senders at one, receivers at the other."""

from __future__ import annotations

from typing import Any

from bench.wire import message

from .relay import Pair, RelayLoad, fields
from .runtimes import open_runtimes


class CrossingLoad(RelayLoad):
    """`to` is the port of the worker where the receivers are."""

    _to = 0

    async def run(self, *, to: int, **load: Any) -> dict[str, Any]:  # type: ignore[override]
        self._to = to
        return await super().run(**load)

    async def _open(self, number: int, token: str = "") -> None:
        ends = []
        for side, port in (("sender", self._port), ("receiver", self._to)):
            names = [f"crossing-{side}-{each}" for each in range(len(self._pairs), number)]
            wanted = {name: [f"hyperty://localhost/{name}"] for name in names}
            ends.append(await open_runtimes(port, wanted))
        self._pairs += [Pair(*each) for each in zip(*ends, strict=True)]

    def _frame(self, number: int, size: int, identity: dict[str, Any] | None) -> bytes:
        whole = fields(number, size)
        for key, side in (("from_", "sender"), ("to", "receiver")):
            whole[key] = f"hyperty://localhost/crossing-{side}-{number}"
        return message(**whole)
