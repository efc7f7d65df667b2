"""Quality of service: reservations, TURN credentials, what is counted.

Case numbers are those of docs/reference/qos.md.
- rules with a database: test_bookings, test_ledger, test_sweep, test_turn_state, test_figures
- test_cli, test_remote_broker: servers of the test's own that lie or hang
- test_connector, test_embedded_broker: the component on a node, the broker behind it
- coturn and Redis, long: test_coturn, test_faults, test_call (a browser), test_secrecy
"""
