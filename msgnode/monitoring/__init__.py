"""Monitoring of a worker: metrics, component status, the live tail, traces, logs."""
