"""Backup, restore and move: a node's state as one archive, back from it, and to another database.

manifest    what an archive says of itself
archive     one file: written whole or not at all, read only if every digest fits
sqlite      an SQLite database, copied while it is written
postgresql  the tables of a PostgreSQL database, as of one moment
in_use      who writes to the database now
contents    what belongs into an archive
restore     from an archive to a node that can be started
move        from one database to another, table by table, compared row by row
"""
