"""Body formats, one per codec id."""
