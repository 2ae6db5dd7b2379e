"""Logistic regression in scikit-learn."""
