"""The command line: a local supervisor for the four services, and a chat in the terminal."""
