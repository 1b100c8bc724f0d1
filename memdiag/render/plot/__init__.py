"""Plots with matplotlib, one file per kind: ``render(data, look) -> Page``.

They draw the data of ``memdiag.views``.
"""
