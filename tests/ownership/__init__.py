"""Nothing of others: what belongs to somebody, tried by a stranger over real sockets."""
