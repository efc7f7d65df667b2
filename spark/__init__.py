"""Reports on the traffic record, computed by PySpark."""
