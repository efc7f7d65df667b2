"""A worker's network to the others, before it has a session: links, directory, who there is.

The packages of this worker get what they need of it when they are created. What depends on them
(sessions that move, announcements of sessions) is created last: cluster.py.
"""

from __future__ import annotations

from collections.abc import Collection

from msgnode.bus.table import RoutingTable
from msgnode.redis.directory import Directory

from .announcements import Announcements, Watchers
from .directory_entries import DirectoryPresence
from .homes import Homes
from .interest import Interest, InterestRenewal
from .own_names import OwnNames
from .remote_sessions import RemoteSessions
from .replication import TableReplicator
from .rpc import IdentityLookup, WorkerRpc
from .transport import LinkTransport


class WorkerNetwork:
    """One instance per worker of a node that has several.

    Args:
        transport: the links to the others; a link begins with the snapshot of `watchers`.
        watchers: what the others watch here.
        directory: where workers are entered at names.
        table: the routing table of this worker.
    """

    def __init__(
        self,
        transport: LinkTransport,
        watchers: Watchers,
        directory: Directory,
        table: RoutingTable,
    ) -> None:
        self.transport = transport
        self.watchers = watchers
        self.directory = directory
        self.others = OtherWorkers(transport.me.epoch, transport.others)
        self.presence = DirectoryPresence(transport.timeout)
        self.remotes = RemoteSessions(table)
        self.announcements = Announcements(watchers, transport)
        self.names = OwnNames(
            directory,
            table,
            transport,
            watchers,
            self.announcements,
            self.remotes,
            self.others.is_retired,
            self.others.is_dead,
        )
        self.interest = Interest(directory, table, transport, self.names, self.remotes)
        self.rpc = WorkerRpc(transport)
        self.identities = IdentityLookup(transport, self.rpc)
        self.homes = Homes(
            directory,
            transport,
            self.names,
            self.interest,
            self.knows_all,
            self.others.is_retired,
        )
        self.renewal = InterestRenewal(
            self.interest, self.names, self.remotes, transport, self.homes.look_for
        )
        self.replicator = TableReplicator(
            table, transport, self.names, self.announcements, self.remotes.contested
        )

    @property
    def meets_others(self) -> bool:
        """Whether the other workers can be reached: the channel layer and the directory."""
        return self.transport.hears_itself and self.presence.is_filled

    def knows_all(self) -> bool:
        """Whether all workers that accept sessions are up, so that who is not known is nobody."""
        return self.meets_others and self.transport.knows(self.others.ready)


class OtherWorkers:
    """The other workers according to the database; one instance per worker.

    Whoever reads the database keeps it up to date.

    Attributes:
        registered: the epochs of the registered workers.
        ready: those of them that accept sessions.
        dead: workers that have ended and whose sessions are being taken over.
    """

    def __init__(self, own_epoch: str, others: Collection[str]) -> None:
        self.registered: set[str] = set()
        self.ready: set[str] = set()
        self.dead: set[str] = set()
        self._own_epoch = own_epoch
        self._others = others  # known at the moment

    def is_retired(self, epoch: str) -> bool:
        """Whether a worker has ended and its sessions were taken over."""
        # One that comes is heard of before it takes sessions.
        return not (
            epoch == self._own_epoch
            or epoch in self._others
            or epoch in self.registered
            or epoch in self.dead
        )

    def is_dead(self, epoch: str) -> bool:
        """Whether a worker has ended and its sessions are being taken over."""
        return epoch in self.dead
