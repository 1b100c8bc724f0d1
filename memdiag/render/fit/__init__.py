"""The result of ``memdiag fit`` for a terminal, as JSON, Markdown, CSV and a web page."""
