"""What has to be done now and then: end stubs that are unused or never live, take over new ones."""

from __future__ import annotations

import asyncio

from .loader import LoadError
from .resolver import Resolver
from .stub_list import StubEntry, new_url

ROUND = 5.0  # seconds between two rounds, at most


async def keep_house(resolver: Resolver) -> None:
    """Look after the stubs until cancelled; one that takes its time delays no other."""
    settings = resolver.settings
    limits = (settings.idle_abroad, settings.idle, settings.revalidate, settings.live)
    pause = min(ROUND, *(each / 4 for each in limits))
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
    if entry.is_late(now, settings.live):
        give_up(resolver, entry)
        return
    allowed = settings.idle if is_home else settings.idle_abroad
    if (
        entry.is_idle(now)
        and now - entry.last_used > allowed
        and not (is_home and resolver.is_logged_in)
    ):
        await unload(resolver, entry)
    elif (
        now - entry.checked_at > settings.revalidate and now - entry.last_used < settings.revalidate
    ):
        await _revalidate(resolver, entry, now)


def give_up(resolver: Resolver, entry: StubEntry) -> None:
    """A stub was not live in time: it is as one that cannot be loaded, and tried again like one."""
    stub = entry.stub
    text = f"The stub of {entry.domain} was not live within {resolver.settings.live:g} s."
    resolver.bus.report("stub.not-live", text)
    resolver.load_failed(entry, 504, text)
    resolver.answer_open(entry, text)
    if stub is not None:
        stub.kill(text)
        resolver.spawn(resolver.stop(stub))


async def _revalidate(resolver: Resolver, entry: StubEntry, now: float) -> None:
    """Load a new version beside the old one. One that is refused changes nothing."""
    entry.checked_at = now
    known = entry.descriptor
    version = await resolver.loader.catalogue.version(entry.domain, entry.kind)
    if known is None or not version or version == known.version:
        return
    old, url = (known, entry.source), entry.url
    try:
        async with asyncio.timeout(resolver.settings.load + resolver.settings.replace):
            newer, source = await resolver.loader.fetch(entry.domain, entry.kind)
            if newer.version == known.version:  # the catalogue does not agree with itself
                return
            entry.descriptor, entry.source = newer, source
            await replace(resolver, entry, new_url(entry.domain, entry.kind))
    except (LoadError, TimeoutError) as error:
        if entry.url != url:
            return  # it has taken over, and takes its time to connect
        entry.descriptor, entry.source = old
        resolver.bus.report("version.refused", f"{entry.domain}: {error}", error=error)


async def unload(resolver: Resolver, entry: StubEntry) -> None:
    """Disconnect a stub that is not used; the entry stays, the next message loads it again.

    What comes while it goes waits: the next one has the same URL.
    """
    stub = entry.stub
    if stub is None or entry.task is not None:
        return
    entry.stub, entry.task = None, resolver.spawn(resolver.stop(stub))
    await asyncio.wait([entry.task])
    entry.task = None
    resolver.enter(entry, "disconnected", "It was not used.")
    entry.status = ""
    entry.descriptor, entry.source = None, ""
    if entry.waiting and not resolver.is_closed:
        resolver.begin_load(entry)


async def replace(resolver: Resolver, entry: StubEntry, url: str) -> None:
    """Start the entry's (new) descriptor under another URL and let it take over.

    It does when nothing is unanswered, or after a while.

    Raises:
        LoadError: it does not start; the old stub stays.
    """
    old, old_url = entry.stub, entry.url
    descriptor = entry.descriptor
    if descriptor is None:
        return
    receive, ended = resolver.receiver(entry, url), resolver.ender(entry, url)
    stub = await resolver.loader.start(url, descriptor, entry.source, receive, ended)
    try:
        async with asyncio.timeout(resolver.settings.replace):
            while entry.open:  # noqa: ASYNC110 (answers are many; none of them is the event)
                await asyncio.sleep(0.02)
    except TimeoutError:
        pass
    if stub.is_ended or entry.task is not None or entry.stub is not old:
        await resolver.stop(stub)
        raise LoadError(503, "The stub changed while its new version waited.")
    resolver.stubs.rename(entry, url)
    if resolver.is_home(entry):
        resolver.bus.home_stub = url
    entry.stub = stub
    resolver.enter(entry, "created")
    try:
        await resolver.come_back(entry, old)
    finally:
        resolver.stubs.forget(old_url)
