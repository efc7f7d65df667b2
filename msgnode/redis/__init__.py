"""Redis, which connects workers: a pipelined client, and a Channels layer on streams."""
