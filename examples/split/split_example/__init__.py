"""Split learning: lower layers on the nodes, upper ones on the server."""
