"""A link shaper: limits, delays and counts the traffic of one TCP connection on loopback."""
