"""Sessions and their sockets: who may open, what waits, what ends.

- test_rules, test_admission, test_bans: decisions (pure)
- test_states: a state machine against the tables of states
- test_outbox, test_budgets, test_turn_queue: what waits and what it may take
- test_handshake_*, test_connection, test_refusals, test_hang_ups: with fakes of links

Over sockets: cases 1 to 17 in tests/conformance/test_sessions.py.
"""
