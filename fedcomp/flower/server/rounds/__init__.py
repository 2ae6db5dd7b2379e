"""The way in of a round: replies are checked, counted, made alike and aggregated."""
