"""The command line: a local supervisor of the four services, and a terminal chat client."""
