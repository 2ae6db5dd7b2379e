"""Bits and bytes: fixed-width fields, varints, unary counts and prefix streams."""
