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
