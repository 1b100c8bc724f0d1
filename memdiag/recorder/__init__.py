"""Rides in the training process: records what the allocators do, and what it is for.

This package runs inside other people's Python (3.9 or later) and may be loaded there without the rest of memdiag, under
another name. So it imports nothing but the standard library, torch where the program itself has imported it, and its
own modules, and those relatively. Nothing here may raise into the program: every entry from outside goes through
``guard.contained``.

``launch`` starts the program (in memdiag's own process); ``site/sitecustomize.py`` runs in every Python process below
it and waits for torch; ``session`` then records; ``training`` marks phases and steps, ``naming`` remembers what tensors
are, ``backends`` know one device each, ``files`` writes.
"""
