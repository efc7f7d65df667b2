#!/usr/bin/env python
"""The command line of the node: `manage.py help` lists what it can do."""

from msgnode.command_line import main

if __name__ == "__main__":
    main()
