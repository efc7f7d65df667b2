"""Invitations to caller-hosted conversations, which wait for a user at a push endpoint."""
