"""What must hold in every run, whatever was broken meanwhile.

- A message that was accepted arrives once, in order, or its loss is told (`gap`) to its receiver.
- A request is answered once. 404 is said only of an address that nobody holds.
- A session is with one worker, an address has one holder. A runtime keeps its session, but where
  it comes to a worker that cannot ask the directory.
- A worker whose epoch is retired does not serve, and writes nothing that a session has asked for.
- A message to another domain arrives so, too, and what its event may have missed there is told;
  but two nodes that have the stubs of each other have two ways, and what passes on both is in no
  order.
  What was answered 100, because it is stored, comes, perhaps twice.
  One worker of each domain serves the other one. While an operator lets nothing pass, nothing does.
- A network server is posted the events of what it observes, each once, in order, or is told. So is
  a phone, which sleeps until it is woken, and both keep their sessions.
- A ban, and an operator's end of a session, are in force at every worker in a few seconds.
- A runtime that does not read for a moment keeps its socket: who sends to it waits.
- When nothing has been broken for a minute, everybody is served: each runtime reaches each other
  one, events arrive, and what nobody holds is 404.
- Then nothing waits anywhere, the workers have counted the same, and Redis has the keys of what is
  there and no more.

What the worker that serves another domain had for it is lost with that worker: requests that were
under way are not answered then. Nor are those that were under way on the socket of a stub when that
was lost: nobody knows which, and they are waited for longer than a run takes.

A message counts as accepted if its socket stayed open long enough, and its worker was not killed
soon after it: what a killed process had not sent yet nobody can tell.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgnode.federation.states import LIVE

from .runtimes import COUNTED, DECIDED, FOREVER, Crowd, Runtime, Sent
from .workers import Site
from .world import Thread

CARRIED = 10.0
"""Seconds after which a frame on a socket that is still open has been carried."""
SENT_ON = 20.0
"""Seconds after which a worker has sent on what it has carried, or told that it could not."""

_EPOCHS = "SELECT epoch FROM msgnode_worker"


def begin(crowd: Crowd) -> None:
    """Look from now on at what is written, and at what may never be."""

    def written(thread: Thread) -> None:
        for worker in crowd.workers:
            if worker.machine is thread.machine and worker.node is not None:
                epoch = worker.node.parts.epoch
                if epoch not in _registered(worker.site):
                    crowd.problem(f"{worker.name} has written, and its epoch is retired")

    for site in crowd.sites:
        site.database.on_written = written
    watch(crowd)


def watch(crowd: Crowd) -> None:
    """From now on, look twice a second at what may never be, not even for a moment."""
    registered = {epoch for site in crowd.sites for epoch in _registered(site)}
    since = crowd.world.now - DECIDED
    serve: dict[tuple[str, int], str] = {}
    for worker in crowd.workers:
        if not worker.reaches_redis:
            worker.cut_off_at = crowd.world.now
        if not worker.is_serving or not worker.holds_lease:
            continue
        parts: Any = worker.node and worker.node.parts
        if parts.epoch not in registered:
            crowd.problem(f"{worker.name} serves, and its epoch is retired")
        for peer in worker.peers:
            if (other := serve.setdefault((worker.site.domain, peer), worker.name)) != worker.name:
                crowd.problem(f"{worker.name} and {other} serve the same domain")
        if worker.thawed_at < since:
            there = parts.sessions.sessions
            urls = {each.runtime_url for each in there.values()}
            for each in crowd.runtimes:
                if 0.0 < each.banned_at < since and each.url in urls:
                    crowd.problem(f"{each} is banned, and has a session at {worker.name}")
            for id_ in there.keys() & crowd.ended.keys():
                if crowd.ended[id_] < since:
                    crowd.problem(f"{id_} was ended by an operator, and is at {worker.name}")
    crowd.world.after(0.5, lambda: watch(crowd))


def _registered(site: Site) -> list[str]:
    return [epoch for (epoch,) in site.database.raw.execute(_EPOCHS)]


def judge(crowd: Crowd) -> list[str]:
    """All that is wrong with a run that has ended."""
    found = list(crowd.problems)
    for sent in crowd.sent:
        if sent.is_stored:
            found += _stored(sent)
        elif not _is_accepted(sent):
            continue
        elif sent.is_request:
            found += _request(sent)
        else:
            found += _event(sent)
    return found


def _is_accepted(sent: Sent) -> bool:
    socket = sent.socket
    if sent.at < socket.proven:
        return not (socket.was_killed and socket.closed_at - sent.at < SENT_ON)
    if socket.is_open:
        return True
    patience = SENT_ON if socket.was_killed else CARRIED
    return socket.closed_at - sent.at > patience


def _missed(runtime: Runtime, sent: Sent) -> bool:
    """Whether a runtime was told that it may miss the message."""
    return any(at >= sent.at for at in runtime.gaps)


def _request(sent: Sent) -> list[str]:
    if sent.answers or sent.response_lost or sent.by.session != sent.session:
        return []
    if sent.holder is None or sent.holder[0].session != sent.holder[1]:
        return []
    holder = sent.holder[0]
    if _missed(holder, sent) or any(at >= sent.at for at in sent.by.gaps):
        return []
    lost_at = max(sent.by.site.forgot_at, holder.site.forgot_at, holder.site.stub_ended_at)
    if sent.is_abroad and lost_at >= sent.at:  # no node knows what a stub had read and not posted
        return []
    got = "got it" if sent.got else "never got it"
    at = sent.at - 1000.0
    return [f"{at:8.3f} {sent.by} was never answered for {sent.to}; {holder} {got}"]


def _stored(sent: Sent) -> list[str]:
    if not sent.stored_at or sent.got or sent.answers or sent.holder is None:
        return []
    holder, session = sent.holder
    if holder.session != session or _missed(holder, sent):
        return []
    return [f"{sent.at - 1000.0:8.3f} what {sent.by} had stored for {holder} has never come"]


def _event(sent: Sent) -> list[str]:
    got = {repr(who) for who, _ in sent.got}
    at = sent.at - 1000.0
    return [
        f"{at:8.3f} {listener} never got the event {sent.number} of {sent.by}, and was not told"
        for listener, session in sent.listeners
        if listener.session == session and repr(listener) not in got and not _missed(listener, sent)
    ]


def run_until(crowd: Crowd, is_done: Callable[[], bool], least: float, most: float) -> None:
    """Let time pass until something is so: at least, and at most, so many seconds."""
    world = crowd.world
    limit = world.now + most
    world.run(least)
    while world.now < limit and not is_done():
        world.run(min(0.5, limit - world.now))


def is_healed(crowd: Crowd) -> bool:
    """Whether all is well, and a node has noticed of each socket that the other end is gone."""
    now = crowd.world.now
    network = crowd.sites[0].network
    if network is not None and network.has_unaware:
        return False
    is_in = all(each.is_in and each.address and each.unnoticed < now for each in crowd.runtimes)
    is_in = is_in and all(each.is_ready for each in crowd.devices)
    return is_in and not is_settled(crowd)


# --- when all is quiet ----------------------------------------------------------------------------
def serves_all(crowd: Crowd) -> list[str]:
    """After a minute without faults: let everybody reach everybody."""
    found = [f"{each} is not served" for each in crowd.runtimes if not each.is_in]
    found += [f"{each} has no {each.outlet}" for each in crowd.devices if not each.is_ready]
    found += [f"{each} holds nothing" for each in crowd.runtimes if each.is_in and not each.address]
    there = [each for each in crowd.runtimes if each.is_in and each.address]
    asked = [(one, one.request(other.address)) for one in there for other in there]
    nobody = [
        each.request(f"hyperty://{site.domain}/nobody-{each.number}")
        for each in there
        for site in crowd.sites
    ]
    events = [each.publish() for each in there]

    def has_come() -> bool:
        requests = [sent for _, sent in asked] + nobody
        return all(each.answers for each in requests) and not any(map(_event, events))

    run_until(crowd, has_come, 2.0, CARRIED)
    found += [
        f"{one} is answered {sent.answers} at {sent.to} when all is well"
        for one, sent in asked
        if sent.answers != [200]
    ]
    found += [
        f"{sent.by} is answered {sent.answers} for an address of nobody"
        for sent in nobody
        if sent.answers != [404]
    ]
    return found


def is_settled(crowd: Crowd) -> list[str]:
    """What the workers and the engines have, when all is quiet."""
    found = []
    for site in crowd.sites:
        found += _is_settled(crowd, site)
        links = [link for worker in site.workers for link in worker.peers.values()]
        if len(links) != len(crowd.sites) - 1:
            found.append(f"{site.domain} has {len(links)} links to other domains")
        found += [
            f"{site.domain} has {len(link.exchange.queue)} for {link.peer.domain}, {link.state}"
            f" {link.last_error}"
            for link in links
            if link.state != LIVE or link.exchange.queue
        ]
    return found


def _is_settled(crowd: Crowd, site: Site) -> list[str]:
    found = []
    owners: dict[str, list[str]] = {}
    sessions: dict[str, list[str]] = {}
    for worker in site.workers:
        if worker.node is None or worker.machine is None:
            found.append(f"{worker.name} does not run")
            continue
        parts: Any = worker.node.parts
        for id_ in parts.sessions.sessions:
            sessions.setdefault(id_, []).append(worker.name)
        for address, owner in parts.table.owners.items():
            if owner.is_here:
                owners.setdefault(address, []).append(worker.name)
        for other in parts.cluster.transport.others.values():
            if not other.is_up or not other.is_known:
                found.append(f"{worker.name} does not know {other.name}")
            if other.out.bytes > 10_000:
                found.append(f"{worker.name} keeps {other.out.bytes} B for {other.name}")
        if parts.writer.backlog > 5:
            found.append(f"{worker.name} has {parts.writer.backlog} changes unwritten")
    found += [f"{id_} is at {at}" for id_, at in sessions.items() if len(at) > 1]
    found += [f"{address} is held at {at}" for address, at in owners.items() if len(at) > 1]
    counts = {
        worker.name: worker.counter.count(COUNTED, FOREVER)
        for worker in site.workers
        if worker.node is not None
    }
    if len({*counts.values()}) > 1 or max(counts.values(), default=0) > site.counted:
        found.append(f"of {site.counted} frames the workers have counted {counts}")
    redis = site.redis
    streams = [key for key, value in redis.values.items() if isinstance(value, list)]
    names = len(crowd.holders) * 3 + len(crowd.runtimes) * 3 + 50
    if len(redis.values) > names * 2 + 40:
        found.append(f"Redis has {len(redis.values)} keys")
    if len(streams) > 4 * len(site.workers) + 12:
        found.append(f"Redis has {len(streams)} streams")
    return found
