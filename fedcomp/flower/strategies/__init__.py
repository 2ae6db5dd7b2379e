"""The server strategies of the compression papers, and how a strategy declares its use of replies and its state."""
