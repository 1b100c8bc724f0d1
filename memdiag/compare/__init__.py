"""Comparison of two or more traces: growth, differences, and their causes."""
