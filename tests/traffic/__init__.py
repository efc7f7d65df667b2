"""The traffic record: what is written, kept and read by id; an object store is long."""
