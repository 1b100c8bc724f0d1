"""Budgets and baselines: whether a trace keeps within them. Also the plugin for pytest."""
