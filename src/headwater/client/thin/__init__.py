"""The thin client of the command line: what it needs, and no more. It goes when the clients have taken over."""
