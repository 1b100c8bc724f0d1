"""Pictures with matplotlib, one file a kind: ``draw(data, look) -> Page``. They draw what ``memdiag.views`` has worked out."""
