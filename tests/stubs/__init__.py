"""The protostubs, their catalogue and the newcomer's page: cases 52 to 54 of
docs/reference/messages.md."""
