"""Runs inside the training process and records the allocators' events and their purpose.

This package runs inside other people's Python (3.9 or later), possibly under another name without the rest of memdiag.
So it imports only the standard library, torch after the program has imported it, and its own modules with relative
imports. No exception may reach the program: every entry from outside goes through ``guard.contained``.

``launch`` starts the program (in memdiag's own process). ``site/sitecustomize.py`` runs in every Python process below
it and waits for torch. Then ``session`` records, ``training`` marks phases and steps, ``naming`` records the identity
of tensors, ``backends`` has one module per kind of device, and ``files`` writes.
"""
