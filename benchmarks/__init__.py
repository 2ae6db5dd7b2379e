"""Speed and size of codecs, as paired multiples of a memcpy: the one unit that holds on a shared machine."""
