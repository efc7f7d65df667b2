"""The traffic record: one row of metadata per recipient of a message, kept in Parquet files."""
