"""Devices over HTTP: sessions without a socket, webhooks, push; mqtt/ has those behind a broker.

- test_events, test_idempotency: the buffer of a device and its keys, as units and a state machine
- test_api, test_outlets: the API and the outlets in the test's process (in_process.py), one worker
  and two
- test_rest, test_webhook, test_push: the numbered cases of docs/connectors.md with a real node and
  what `curl` would send
- test_workers, test_outlet_recovery: two real workers that stop, die and freeze
"""
