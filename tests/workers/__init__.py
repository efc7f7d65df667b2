"""Several workers of one node.

- test_window, test_linked_worker, test_lease, test_orders, test_other_workers,
  test_contested_addresses: one part each
- test_cluster, test_homes, test_interest, test_rpc, test_counter_sync, test_identity_lookup:
  several workers in one process (cluster.py) over a real Redis, or a channel layer that loses and
  refuses
- test_failover, test_on_the_way, test_redis_restart: whole workers in one process (tests/stage)

Between processes: tests/e2e/test_two_workers.py.
"""
