"""What joins workers to the database and to each other: group commits, the control outbox."""
