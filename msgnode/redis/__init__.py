"""Redis, by which workers meet: a pipelined client, and Channels' layer on streams."""
