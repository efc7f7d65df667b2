"""Tests of the subscription manager."""
