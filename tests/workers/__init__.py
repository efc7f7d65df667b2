"""Tests of the group writer and the control outbox."""
