"""The compressors of the two links: whether they fit a strategy, and the automatic choice."""
