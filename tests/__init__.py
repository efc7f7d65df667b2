"""Tests: the tree mirrors the source; `e2e` starts real servers."""
