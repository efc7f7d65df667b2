"""HTTP requests of the node to others: where one may go, TLS, limits, retries."""
