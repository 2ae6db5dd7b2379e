"""Training without rounds: slow nodes hold nobody up."""
