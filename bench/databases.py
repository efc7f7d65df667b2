"""Nodes on each of the databases that a measurement compares."""

from __future__ import annotations

from contextlib import ExitStack

from bench.figures import PartResult
from bench.plan import Plan
from bench.postgres import PostgreSQL
from bench.processes import Server
from bench.servers import NODE


def nodes(plan: Plan, stack: ExitStack, result: PartResult) -> dict[str, Server]:
    """A node on SQLite, and one on PostgreSQL; the result notes why there is none.

    Args:
        plan: of the run; a quick one has no PostgreSQL.
        stack: ends what was started.
        result: of the part.

    Returns:
        Servers by the name of their database.
    """
    servers = {"SQLite": stack.enter_context(plan.servers.make(NODE))}
    postgres = None if plan.quick else PostgreSQL.found(plan.servers.directory)
    if postgres is None:
        why = "in a quick run" if plan.quick else "no server was found"
        result.notes.append(f"PostgreSQL was not measured: {why}.")
    else:
        stack.enter_context(postgres)
        servers["PostgreSQL"] = stack.enter_context(plan.servers.make(NODE, postgres.url))
    return servers
