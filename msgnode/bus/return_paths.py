"""Which of several sessions of one runtime URL asked a request: the way back of its answer. Pure.

Kept by the worker of the asker and, because it comes beside the request, by the worker of whoever
answers; it goes along when the one who answers changes its worker. Bounded: the oldest is forgotten
first, and then the newest session of the runtime gets the answer.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

MAX_RETURNS = 10_000


class ReturnPath(NamedTuple):
    """The session `asker` of the runtime `runtime_url` asked the request `id_key` as `sender`."""

    sender: str
    id_key: str
    asker: str
    runtime_url: str


class ReturnPaths:
    """One instance per worker."""

    def __init__(self) -> None:
        self._paths: OrderedDict[tuple[str, str], tuple[ReturnPath, str]] = OrderedDict()
        self._of: dict[str, dict[tuple[str, str], None]] = {}  # who answers -> keys of the paths

    def __len__(self) -> int:
        return len(self._paths)

    def remember(self, path: ReturnPath, answerer: str = "") -> None:
        """The request of this path is on its way; `answerer` is the one session it goes to."""
        key = path.sender, path.id_key
        self._forget(key)
        self._paths[key] = path, answerer
        if answerer:
            self._of.setdefault(answerer, {})[key] = None
        if len(self._paths) > MAX_RETURNS:
            self._forget(next(iter(self._paths)))

    def find(self, to: str, id_key: str) -> ReturnPath | None:
        """The path of a response.

        It stays: a provisional answer is followed by another (docs/reference/messages.md,
        section 1.5).
        """
        found = self._paths.get((to, id_key)) if self._paths else None
        return found[0] if found is not None else None

    def of(self, answerer: str) -> list[ReturnPath]:
        """What this session may still answer."""
        return [self._paths[key][0] for key in self._of.get(answerer, ())]

    def _forget(self, key: tuple[str, str]) -> None:
        _, answerer = self._paths.pop(key, (None, ""))
        keys = self._of.get(answerer)
        if keys is not None:
            keys.pop(key, None)
            if not keys:
                del self._of[answerer]
