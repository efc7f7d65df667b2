"""Tests of the bus: routing table, routes and pipeline."""
