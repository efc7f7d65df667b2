"""Group commits and the control outbox."""
