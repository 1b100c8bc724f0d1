"""The ways to attach to a running process, one per file, in the order in which they are tried.

A mechanism has ``NAME``, ``can_enter(target) -> bool`` (whether it applies to this process) and
``enter(target, door)``, which makes the process connect to the door, or connects the door to it. ``enter`` raises
``MemdiagError`` if the way is closed.
"""
