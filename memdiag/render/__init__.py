"""Report out: one file a form, with ``render(report: Report, look: Look) -> str``.

A renderer lays out what is in the Report and works nothing out about memory. Everything that comes from a file (paths, frames,
names) goes through ``memdiag.render.text.plain`` first: a name in a trace must not be able to move the cursor, colour the
terminal or forge a line of the report.
"""
