"""Caller-hosted conversations: invitations that wait for a user at his push endpoint."""
