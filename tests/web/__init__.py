"""What pages share: proxies, headers, limits, threads, explanations, a database that is away."""
