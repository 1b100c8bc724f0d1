"""What a command found, as text: a folder for each command, and in it a file for each form (``render/oom/md.py``).

Each form has ``render(report, look: Look) -> str``. Pieces that several commands share are in ``support``.

A renderer lays out what is in the Report and works nothing out about memory. Everything that comes from a file (paths, frames,
names) goes through ``memdiag.render.support.text.plain`` first: a name in a trace must not be able to move the cursor, colour the
terminal or forge a line of the report.
"""
