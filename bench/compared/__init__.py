"""Two versions of a node of several workers, taking turns: this one, and one before."""
