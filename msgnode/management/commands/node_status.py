"""Show the state of the node: workers, sessions, components, standing alarms."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgnode.console.command_base import Tool, not_as_it_should_be
from msgnode.console.key_figures import node_status


class Command(Tool):
    help = "Show the state of the node. Exit status 1 if no worker has reported for 15 seconds."
    example = "  manage.py node_status\n  manage.py node_status --json | jq .sessions.open"

    def handle(self, *_args: Any, **options: Any) -> None:
        status = node_status()
        self.say(status, _lines(status))
        if not status["workers"]:
            raise not_as_it_should_be("No worker of the node has reported for 15 seconds.")


def _lines(status: dict[str, Any]) -> Iterator[str]:
    yield f"workers        {', '.join(status['workers']) or 'none'}"
    admission = status["admission"]
    yield (f"{'OPEN' if admission['is_open'] else 'admission':<14} {admission['text']}")
    for line in status["joined"]:
        links = line["links"]
        up = sum(link["state"] == "up" for link in links)
        left = line["lease_seconds"]
        lease = f"lease runs for {left} s" if left > 0 else f"lease ended {-left} s ago"
        yield (
            f"worker         {line['worker']:<24} {line['state']:<14} "
            f"{line['sessions']:,} sessions, {lease}, {up} of {len(links)} links up, "
            f"{sum(link['waiting_bytes'] for link in links):,} bytes wait for others, "
            f"{sum(link['gaps'] for link in links):,} losses noticed, "
            f"{sum(link['lost'] for link in links):,} gaps signalled"
        )
    live = status["sessions"]
    yield f"sessions       {live['open']:,} open, {live['detached']:,} detached"
    for name in ("allocations", "subscriptions", "pool_addresses", "bans"):
        yield f"{name.replace('_', ' '):<14} {status[name]:,}"
    for line in status["components"]:
        yield (
            f"{line['kind']:<14} {line['name']:<24} {line['state']:<14} "
            f"answered {line['answered']:,}, failed {line['failed']:,}"
        )
    for alarm in status["alarms"]:
        yield (f"ALARM          {alarm['kind']} ({alarm['count']}×): {alarm['text']}")
