"""What `policies` needs in a worker: the snapshot in force, attributes, the decision log."""
