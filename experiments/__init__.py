"""Studies: ``fedcomp study STUDY.toml`` runs a grid of methods and settings, and writes figures of it."""
