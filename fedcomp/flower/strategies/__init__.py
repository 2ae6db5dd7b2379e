"""Server strategies from the compression papers."""
