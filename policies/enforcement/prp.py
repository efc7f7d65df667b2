"""The retrieval point: loads the published sets for the workers.

Blocks on the database: call it in a thread, never on the event loop. A worker that cannot reach the
database keeps its snapshot.
"""

from __future__ import annotations

import gc

from policies.models import Version

from .snapshot import EMPTY_SNAPSHOT, PolicySnapshot, make_snapshot


def active_sets(known: int = -1) -> PolicySnapshot | None:
    """The snapshot of the highest version, None if that is the one already `known`."""
    newest = Version.objects.order_by("-number").values_list("number", flat=True).first()
    if newest is None:
        return None if known == 0 else EMPTY_SNAPSHOT
    if newest == known:
        return None
    return compiled(Version.objects.get(number=newest))


def compiled(version: Version) -> PolicySnapshot:
    """Compile a version."""
    was_on = gc.isenabled()
    gc.disable()  # a garbage collection per few thousand objects would double the time
    try:
        return make_snapshot(version.document, version.lists, version.number)
    finally:
        if was_on:
            gc.enable()
