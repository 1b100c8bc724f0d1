"""The parts of remedies that run in the user's program, one file each.

A file imports torch only, and has one public function, named like the file: it applies the remedy.
``memdiag fix`` loads them into the program when it runs it (``memdiag/recorder/fixing.py``), and copies them to
``memdiag_fix.py`` with ``--write``. None of them changes the program's files.
"""
