"""Backup, restore, and the move to PostgreSQL.

- test_archive: what an archive is, whatever was done to it; files alone
- test_restore: restoring in the test's process, with a database of SQLite
- test_backup, test_postgresql, test_postgresql_faults: the commands as an operator gives them, to
  nodes, servers and disks that are killed, full or refuse
"""
