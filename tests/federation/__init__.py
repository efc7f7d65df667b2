"""Other domains: their stubs in sandboxes, what is sent to them, and their runtimes as visitors.

Case numbers are those of docs/reference/federation.md.
- units with a clock of the test: queue, exchange, subscriptions, alarms, idleness, proofs, visits,
  crossing, figures, rows of what waits
- a real sandbox (Deno) and a peer that is played (links.py, returning.py): test_sandbox,
  test_peer_link, test_slow_peer, test_stub_*
- the link between nodes of this software: test_link_protocol and test_link_keys, pure; two
  ends in one process (test_node_links, test_link_trial); real nodes, long: test_two_linked, with
  balancers between them (clusters.py) test_link_chaos
- two real nodes (nodes.py), long: test_two_*, test_observers, test_new_session, test_mutual_peers;
  two workers: test_takeover, test_visitors; many peers and faults: test_fifty_peers, test_chaos
- nodes of the field are played by field_nodes.py
"""
