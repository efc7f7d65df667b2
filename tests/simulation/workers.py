"""The processes of the simulation: whole workers of nodes, which end, freeze and begin again."""

from __future__ import annotations

from typing import Any

from django.conf import settings

from msgnode.node import Node

from .database import Database
from .redis_server import RedisServer
from .world import Machine, World

RESTART = (0.5, 3.0)
"""Seconds until a supervisor, or the process itself, has started it again."""


class Site:
    """What the workers of a node share.

    Attributes:
        network: to the nodes of other domains, None if there are none.
        stubs: the processes of stubs that its workers have started.
        device: one without a WebSocket, None if there is none.
        counted: frames that its workers have read from runtimes.
        forgot_at: when something was lost last that its workers had for another domain.
        stub_ended_at: when a stub of its own ended last, with what it had read of another domain.
        closed_at: since when an operator lets nothing pass to other domains, 0.0 if something may.
    """

    def __init__(self, world: World, domain: str, number: int = 0) -> None:
        self.world, self.domain = world, domain
        self.redis = RedisServer(world)
        self.database = Database(world)
        self.workers: list[WorkerProcess] = []
        self.network: Any = None
        self.stubs: list[Any] = []
        self.device: Any = None
        self.counted = 0
        self.forgot_at = self.stub_ended_at = self.closed_at = 0.0
        self._pids = 100 + 1_000 * number

    def next_pid(self) -> int:
        self._pids += 1
        return self._pids


class WorkerProcess:
    """A worker under a supervisor.

    Attributes:
        machine: its process, None while it does not run.
        node: the worker in it, None until it is made.
        links: the sockets of runtimes at it.
        thawed_at, cut_off_at: when it was thawed last, and when it could not reach Redis.
    """

    def __init__(self, site: Site, name: str, host: str) -> None:
        self.site, self.name, self.host = site, name, host
        self.machine: Machine | None = None
        self.node: Node | None = None
        self.is_wanted = True
        self.links: list[Any] = []
        self.lives = 0
        self.thawed_at = self.cut_off_at = 0.0
        chance = site.world.random
        self._skew = chance.uniform(0, 10_000)
        self._rate = chance.uniform(0.999, 1.001)
        site.workers.append(self)

    # --- what an operator and a machine do to it --------------------------------------------------

    def start(self, pid: int = 0) -> None:
        """Start it; under a process id if it is the same process that begins again."""
        if self.machine is not None:
            return
        self.lives += 1
        machine = Machine(
            self.site.world, pid or self.site.next_pid(), self.host, self._skew, self._rate
        )
        machine.network, machine.site = self.site.redis.connect, self.site
        self.machine, self.node = machine, None
        with machine:
            machine.create_task(self._run(machine))

    def kill(self) -> None:
        """End it as SIGKILL does."""
        machine = self.machine
        if machine is None:
            return
        self._end(machine)
        for each in tuple(self.site.redis.connections):
            if each.client.machine is machine:
                each.left()

    def kill_and_restart(self) -> None:
        """End it so, and have its supervisor start it again."""
        world = self.site.world
        self.kill()
        world.after(world.random.uniform(*RESTART), self.start)

    def freeze(self) -> None:
        if self.machine is not None:
            self.machine.is_frozen = True

    def thaw(self) -> None:
        if self.machine is not None and self.machine.is_frozen:
            self.machine.is_frozen = False
            self.thawed_at = self.site.world.now

    def stop(self) -> None:
        """Stop it as SIGTERM does, and start it again later."""
        machine, node = self.machine, self.node
        if machine is not None and node is not None and node.is_ready:
            machine.call_soon(lambda: machine.create_task(self._stop(machine, node)))

    @property
    def is_serving(self) -> bool:
        """Whether it accepts sockets."""
        return self.node is not None and self.node.is_ready and self.machine is not None

    @property
    def holds_lease(self) -> bool:
        """Whether it would serve now, by its own clock."""
        machine, node = self.machine, self.node
        if machine is None or node is None or machine.is_frozen:
            return False
        with machine:
            return node.parts.lease.is_held

    @property
    def reaches_redis(self) -> bool:
        redis = self.site.redis
        wires = redis.wires_of(self.machine) if self.machine is not None else ()
        return redis.is_up and not redis.is_frozen and not any(each.is_cut for each in wires)

    @property
    def peers(self) -> dict[int, Any]:
        """The links to other domains that it serves."""
        parts: Any = self.node and self.node.parts
        return parts.node_links._find.__self__.links if parts and parts.node_links else {}

    @property
    def counter(self) -> Any:
        """Counters that all workers share."""
        assert self.node is not None
        cluster: Any = self.node.parts.cluster
        return cluster.counts._shared["policies"]

    # --- the process ------------------------------------------------------------------------------

    async def _run(self, machine: Machine) -> None:
        settings.DOMAIN = self.site.domain
        settings.FEDERATION = "off" if self.site.network is None else "listed"
        settings.MQTT["URL"] = getattr(self.site.device, "broker_url", "")
        settings.DEVICE_HTTP = settings.DEVICE_WEBHOOKS = self.site.device is not None
        settings.PUSH_CONTACT = "mailto:operator@example.org" if self.site.device else ""
        node = Node()
        lost = machine.create_future()
        node.parts.lease.on_lost.append(lambda why: lost.done() or lost.set_result(why))
        self.node = node
        self.site.world.note(f"{self.name} starts")
        try:
            await node.start()
        except Exception as error:
            self.site.world.note(f"{self.name} could not start", error)
            try:
                await node.give_up()
            finally:
                self._restart(machine, 0)
            return
        why = await lost
        self.site.world.note(f"{self.name} is fenced: {why}")
        await node.fence(why)
        self._restart(machine, machine.pid)

    async def _stop(self, machine: Machine, node: Node) -> None:
        await node.stop()
        self._restart(machine, 0)

    def _restart(self, machine: Machine, pid: int) -> None:
        if self.machine is not machine:
            return
        world = self.site.world
        self._end(machine)
        world.after(world.random.uniform(*RESTART), lambda: self.start(pid))

    def _end(self, machine: Machine) -> None:
        machine.kill()
        for stub in tuple(self.site.stubs):
            if stub.machine is machine:
                stub.kill()
        if self.peers:
            self.site.forgot_at = self.site.world.now
        self.machine = self.node = None
        links, self.links = self.links, []
        for each in links:
            each.process_ended()
