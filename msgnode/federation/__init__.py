"""Federation: runs protostubs of foreign domains in sandboxes, and connects their nodes."""
