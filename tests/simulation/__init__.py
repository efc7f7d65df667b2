"""Several workers in a deterministic simulation: the product's own code, whole workers of nodes.

- world.py: true time, the machines with their event loops and clocks, threads, wires
- redis_server.py, database.py: the engines, with their faults; test_engines.py asks the simulated
  Redis and the real one the same
- prepare.py: makes a process one in which only simulated time passes
- workers.py, runtimes.py, devices.py, broker.py: the processes of a node, and who connects to them
- domains.py, sandboxes.py: the network between the nodes of several domains, and their stubs
- oracle.py: what must hold in every run
- scenario.py: what a seed breaks, and when; kept.py: runs that have failed once
- mutants.py: deliberate bugs that have to be found
- test_simulation.py: the runs of `make test`; `make simulate SEEDS=1000` runs more

What a real Redis and PostgreSQL do with it is tested between processes: tests/e2e/.
"""
