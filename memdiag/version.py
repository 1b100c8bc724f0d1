"""The version of memdiag, in a module that imports nothing else."""

from __future__ import annotations

__version__ = "0.1.0"
