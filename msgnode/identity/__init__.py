"""Who speaks: issuers, their keys, and the verification of what runtimes say about themselves."""
