"""The version of memdiag, apart from the package itself: importing it brings in no public name."""

from __future__ import annotations

__version__ = "0.1.0"
