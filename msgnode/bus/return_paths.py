"""Return paths: which of several sessions of one runtime URL sent a request. Pure.

The requester's worker keeps the path; so does the answerer's worker, which receives it with the
request and passes it on if the answerer moves to another worker. Bounded: the oldest path is
dropped first, and its answer goes to the newest session of the runtime.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

MAX_RETURNS = 10_000


class ReturnPath(NamedTuple):
    """The session `asker` of the runtime `runtime_url` sent the request `id_key` as `sender`."""

    sender: str
    id_key: str
    asker: str
    runtime_url: str


class ReturnPaths:
    """One instance per worker."""

    def __init__(self) -> None:
        self._paths: OrderedDict[tuple[str, str], tuple[ReturnPath, str]] = OrderedDict()
        self._of: dict[str, dict[tuple[str, str], None]] = {}  # answerer -> keys of its paths

    def __len__(self) -> int:
        return len(self._paths)

    def remember(self, path: ReturnPath, answerer: str = "") -> None:
        """Keep the path of a request; `answerer` is the session it goes to, if it is only one."""
        key = path.sender, path.id_key
        self._forget(key)
        self._paths[key] = path, answerer
        if answerer:
            self._of.setdefault(answerer, {})[key] = None
        if len(self._paths) > MAX_RETURNS:
            self._forget(next(iter(self._paths)))

    def find(self, to: str, id_key: str) -> ReturnPath | None:
        """The path of a response.

        It is kept, because a provisional answer is followed by another (docs/reference/messages.md,
        section 1.5).
        """
        found = self._paths.get((to, id_key)) if self._paths else None
        return found[0] if found is not None else None

    def of(self, answerer: str) -> list[ReturnPath]:
        """The paths of the requests that this session may still answer."""
        return [self._paths[key][0] for key in self._of.get(answerer, ())]

    def _forget(self, key: tuple[str, str]) -> None:
        _, answerer = self._paths.pop(key, (None, ""))
        keys = self._of.get(answerer)
        if keys is not None:
            keys.pop(key, None)
            if not keys:
                del self._of[answerer]
