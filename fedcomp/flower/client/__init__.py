"""The node's half of fedcomp in Flower."""
