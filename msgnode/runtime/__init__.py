"""The runtime's side of the node: `js/` for browsers and Node.js, `python/` for Python programs."""
