"""All texts of memdiag: the catalogues, and the TEXTS of modules that hold their own."""

from __future__ import annotations

import ast
from importlib import import_module
from pathlib import Path

import memdiag
from memdiag import text

PACKAGE = Path(memdiag.__file__).parent
AREAS = sorted(path.stem for path in text.FOLDER.glob("*.json"))


def _with_texts():
    """Yields the name and the file of every module that holds texts."""
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.AnnAssign) and getattr(node.target, "id", "") == "TEXTS":
                yield ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts), path


MODULES = dict(_with_texts())
CATALOGUES = {
    **{area: text.catalogue(area) for area in AREAS},
    **{name: import_module(name).TEXTS for name in MODULES},
}
