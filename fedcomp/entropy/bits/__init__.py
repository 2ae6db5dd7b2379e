"""Bits and bytes: fields that are read in order, rows of bits, and prefix streams."""
