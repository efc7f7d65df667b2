"""Machines of a test: network namespaces, each with a cable of its own to a bridge on this one."""

from __future__ import annotations

import secrets
import subprocess
from contextlib import suppress
from typing import Self

import pytest


def ip(*words: str) -> None:
    """The command `ip`."""
    subprocess.run(["ip", *words], check=True, capture_output=True, timeout=20)


def tc(*words: str) -> None:
    """The command `tc`."""
    subprocess.run(["tc", *words], check=True, capture_output=True, timeout=20)


class Host:
    """A machine with a name of its own, by which others do not take its processes for theirs."""

    def __init__(self, name: str, address: str) -> None:
        self.name = name
        self.address = address
        set_name = f'hostname {name}; exec "$0" "$@"'
        self.inside = ("ip", "netns", "exec", name, "unshare", "--uts", "sh", "-c", set_name)

    def unplug(self) -> None:
        """Pull the cable: nobody is told anything."""
        ip("link", "set", f"{self.name}c", "down")

    def plug(self) -> None:
        """Put it back."""
        ip("link", "set", f"{self.name}c", "up")

    def mute(self, to: str) -> None:
        """Nothing that it says to an address arrives; what is said to it does."""
        ip("-n", self.name, "route", "add", "blackhole", f"{to}/32")

    def unmute(self, to: str) -> None:
        """It is heard again."""
        ip("-n", self.name, "route", "del", "blackhole", f"{to}/32")

    def deafen(self) -> None:
        """Nothing that this machine says to it arrives; what it says does."""
        ip("route", "add", "blackhole", f"{self.address}/32")

    def undeafen(self) -> None:
        """It hears again."""
        ip("route", "del", "blackhole", f"{self.address}/32")

    def slow(self, rate: str) -> None:
        """Its cable carries no more than that in either direction, and makes wait what is more."""
        for where, device in ((("-n", self.name), "eth0"), ((), f"{self.name}c")):
            bucket = ("tbf", "rate", rate, "burst", "8kb", "latency", "2s")
            try:
                tc(*where, "qdisc", "replace", "dev", device, "root", *bucket)
            except (OSError, subprocess.CalledProcessError) as error:
                pytest.skip(f"no token buckets here: {error}")


class Network:
    """A bridge, whose address is this machine's, and two hosts or more; while the block runs."""

    def __init__(self, number: int) -> None:
        mark = secrets.token_hex(2)
        net = f"10.{200 + secrets.randbelow(50)}.{secrets.randbelow(250)}"
        self.address = f"{net}.1"
        self.hosts = [Host(f"mn{mark}{at}", f"{net}.{at + 2}") for at in range(number)]
        self._bridge = f"mn{mark}b"

    def __enter__(self) -> Self:
        try:
            ip("link", "add", self._bridge, "type", "bridge")
            ip("addr", "add", f"{self.address}/24", "dev", self._bridge)
            ip("link", "set", self._bridge, "up")
            for host in self.hosts:
                self._add(host)
        except (OSError, subprocess.CalledProcessError) as error:
            self.__exit__()
            pytest.skip(f"no network namespaces here: {error}")
        return self

    def __exit__(self, *_: object) -> None:
        for words in (
            *(("route", "del", "blackhole", f"{host.address}/32") for host in self.hosts),
            *(("netns", "del", host.name) for host in self.hosts),
            ("link", "del", self._bridge),
        ):
            with suppress(OSError, subprocess.SubprocessError):
                ip(*words)

    def _add(self, host: Host) -> None:
        cable = f"{host.name}c"
        ip("netns", "add", host.name)
        ip("link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", host.name)
        ip("link", "set", cable, "master", self._bridge, "up")
        ip("-n", host.name, "link", "set", "lo", "up")
        ip("-n", host.name, "addr", "add", f"{host.address}/24", "dev", "eth0")
        ip("-n", host.name, "link", "set", "eth0", "up")
