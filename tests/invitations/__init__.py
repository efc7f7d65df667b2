"""Invitations: left for a person, handed over to one runtime, accepted by guests, withdrawn.

- test_wire: what is read; test_push: what an endpoint takes (HTTP, Django's test client)
- test_delivery, test_guests, test_sending, test_withdrawal: the rooms, with a database

A guest on real workers, which die: tests/e2e/test_invitation_workers.py; between runtimes and
pages of two domains: tests/runtime.
"""
