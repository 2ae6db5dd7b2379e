"""The server's half of fedcomp in Flower."""
