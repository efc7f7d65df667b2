"""Pages of the console that move by themselves: what is shown, to whom, and over which socket."""
