"""Ports that tests give to servers: no two processes of a test run give the same."""

from __future__ import annotations

from tests.ports import BUS, CLUSTER_PORTS, PORTS, free_cluster_port, free_port, share


def test_the_processes_of_a_test_run_share_no_port() -> None:
    of_each = [
        share(PORTS, {"PYTEST_XDIST_WORKER": f"gw{number}", "PYTEST_XDIST_WORKER_COUNT": "3"})
        for number in range(3)
    ]
    ports = [port for each in of_each for port in each]
    assert len(set(ports)) == len(ports) > len(PORTS) - 3
    assert set(ports) <= set(PORTS)
    assert share(PORTS, {}) == PORTS


def test_no_server_of_a_cluster_takes_the_port_of_another_kind() -> None:
    assert {port + BUS for port in CLUSTER_PORTS}.isdisjoint([*CLUSTER_PORTS, *PORTS])
    assert free_cluster_port() in CLUSTER_PORTS


def test_no_port_is_given_twice() -> None:
    pairs = [free_port(beside=1) for _ in range(100)]
    given = [port for first in pairs for port in (first, first + 1)]
    assert len({*given, free_port()}) == 201
