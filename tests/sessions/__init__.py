"""Tests of sessions and their sockets."""
