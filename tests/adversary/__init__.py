"""Attacks on a running node: what it answered, that others were served meanwhile, what it cost."""
