"""Federation: the protostubs of foreign domains, run in sandboxes, and the peers they lead to."""
