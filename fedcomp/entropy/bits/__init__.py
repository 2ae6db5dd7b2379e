"""Bits and bytes: fields that are read one after the other, rows of bits, and prefix streams."""
