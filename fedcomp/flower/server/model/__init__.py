"""The model between two rounds: as records, and as files."""
