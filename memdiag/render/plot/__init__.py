"""Pictures with matplotlib, one file a kind: ``render(data, look) -> Page``.

They draw what ``memdiag.views`` has worked out.
"""
