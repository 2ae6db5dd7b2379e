"""SCAFFOLD: control variates that correct the drift of nodes with different data."""
