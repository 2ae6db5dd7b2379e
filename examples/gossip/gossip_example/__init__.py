"""Learning without a server."""
