"""Backup, restore and move: a node's state as an archive, back from it, and to another database.

manifest    the description of an archive, inside it
archive     the file: complete or absent, read only if every digest matches
sqlite      an SQLite database, copied while it is in use
postgresql  the tables of a PostgreSQL database, as of one moment
in_use      who writes to the database now
contents    what an archive contains
restore     from an archive to a node that can be started
move        from one database to another, table by table, compared row by row
"""
