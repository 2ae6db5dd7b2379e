"""Studies: ``python -m experiments STUDY.toml`` runs a grid of methods and settings, and writes figures of it."""
