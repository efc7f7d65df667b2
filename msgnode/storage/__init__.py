"""Writing to the database: group commits, the control outbox, alarms."""
