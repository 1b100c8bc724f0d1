"""Budgets and baselines: checks whether a trace stays within them. Contains the pytest plugin."""
