"""Differential privacy: nodes clip their updates, and the server adds noise."""
