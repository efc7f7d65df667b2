"""Whole nodes as an operator starts them, and what only whole ones can show.

- test_two_workers: what must hold between two workers, short; test_workers: with stops and restarts
- test_hosts, test_partitions, test_frozen_worker, test_path_workers: machines, networks, frozen
  ones
- test_slow_database, test_read_only_database, test_unanswered_commit, test_full_disk,
  test_power_cut, test_held_resources: what the database and the disk do, seen by everybody
- test_run, test_production, test_image, test_rolling_upgrade, test_redis_kinds, test_readme:
  starting
- test_policies: policies reach a running node; test_no_tokens: nothing written or shown holds one
- test_soak: everything at once for long, and nothing grows

The rules that hold here are proven at their own level first: tests/workers, tests/storage.
"""
