"""Group commits, the control outbox, fences, migrations, databases that fail.

With SQLite, and with PostgreSQL where it behaves otherwise. What is seen of it from outside is in
tests/e2e.
"""
