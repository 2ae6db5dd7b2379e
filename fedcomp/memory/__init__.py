"""What a sender remembers between rounds, one idea per file."""
