"""What has to be done now and then: unload stubs that are not used, take over new versions."""

from __future__ import annotations

import asyncio

from .loader import LoadError
from .resolver import Resolver
from .stub_list import StubEntry, new_url

ROUND = 5.0  # seconds between two rounds, at most


async def keep_house(resolver: Resolver) -> None:
    """Look after the stubs until cancelled; one that takes its time delays no other."""
    settings = resolver.settings
    pause = min(ROUND, settings.idle_abroad / 4, settings.idle / 4, settings.revalidate / 4)
    now = asyncio.get_running_loop().time
    working: dict[str, asyncio.Task[None]] = {}
    try:
        while True:
            await asyncio.sleep(pause)
            for key in [key for key, task in working.items() if task.done()]:
                del working[key]
            for entry in resolver.stubs:
                if entry.key not in working:
                    work = _guarded(resolver, entry, now())
                    working[entry.key] = asyncio.create_task(work)
    finally:
        for task in working.values():
            task.cancel()


async def _guarded(resolver: Resolver, entry: StubEntry, now: float) -> None:
    try:
        await _look_after(resolver, entry, now)
    except Exception as error:
        text = f"{entry.domain}: {error!r}"
        resolver.bus.report("housekeeping.failed", text, error=error)


async def _look_after(resolver: Resolver, entry: StubEntry, now: float) -> None:
    settings = resolver.settings
    is_home = entry.key == settings.domain
    if entry.task is not None:
        return
    if entry.stub is None:
        if not entry.status and now - entry.last_used > settings.forget:
            resolver.stubs.remove(entry)
        return
    allowed = settings.idle if is_home else settings.idle_abroad
    if (
        entry.is_idle(now)
        and now - entry.last_used > allowed
        and not (is_home and resolver.is_logged_in)
    ):
        await resolver.unload(entry)
    elif (
        now - entry.checked_at > settings.revalidate and now - entry.last_used < settings.revalidate
    ):
        await _revalidate(resolver, entry, now)


async def _revalidate(resolver: Resolver, entry: StubEntry, now: float) -> None:
    """Load a new version beside the old one. One that is refused changes nothing."""
    entry.checked_at = now
    known = entry.descriptor
    version = await resolver.loader.catalogue.version(entry.domain, entry.kind)
    if known is None or not version or version == known.version:
        return
    old = known, entry.source
    try:
        async with asyncio.timeout(resolver.settings.load + resolver.settings.replace):
            entry.descriptor, entry.source = await resolver.loader.fetch(entry.domain, entry.kind)
            await resolver.replace(entry, new_url(entry.domain, entry.kind))
    except (LoadError, TimeoutError) as error:
        entry.descriptor, entry.source = old
        resolver.bus.report("version.refused", f"{entry.domain}: {error}", error=error)
