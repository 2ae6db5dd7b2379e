"""How a partition spreads the data over the clients, before anything is trained."""
