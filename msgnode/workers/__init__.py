"""Several workers: how they meet, move sessions, replicate routes and replace dead workers."""
