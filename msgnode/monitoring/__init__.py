"""What a worker reports: metrics, component status, the live tail, logs."""
