"""What the site shows beside docs/: the reports, the changelog, how to contribute.

Links out of docs/ lead to those, or become plain text.

A hook of mkdocs, named in mkdocs.yml.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
# A link or a picture of markdown: text, target, anchor.
LINK = re.compile(r"(?P<lead>!?\[(?P<text>[^\]]*)\]\()(?P<target>[^)#\s:]+)(?P<anchor>#[^)\s]*)?\)")


def shown() -> dict[str, Path]:
    """Returns the files outside docs/ that are part of the site, by their place, which is that in the repository."""
    reports = [path for path in sorted((ROOT / "reports").iterdir()) if path.suffix in {".md", ".svg", ".png"}]
    pages = [ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md", *reports]
    return {path.relative_to(ROOT).as_posix(): path for path in pages}


def on_files(files: Files, config: Any) -> Files:
    """Adds them; mkdocs calls this once it has found the others."""
    for place, path in shown().items():
        files.append(File.generated(config, place, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Any, files: Files, **_: Any) -> str:
    """Mends the links of a page: mkdocs calls this before it renders it."""
    here = posixpath.dirname(page.file.src_uri)
    outside = page.file.src_uri in shown()

    def mended(found: re.Match[str]) -> str:
        # Where the link leads in the repository, and where that is in the site: docs/ is its root.
        base = here if outside else posixpath.join("docs", here)
        target = posixpath.normpath(posixpath.join(base, found["target"]))
        inside = target.startswith("docs/")
        for candidate in (target, posixpath.join(target, "README.md")):
            place = candidate.removeprefix("docs/")
            if (inside or candidate in shown()) and files.get_file_from_path(place) is not None:
                return f"{found['lead']}{posixpath.relpath(place, here or '.')}{found['anchor'] or ''})"
        return f"`{found['text']}`" if "`" not in found["text"] else found["text"]

    return LINK.sub(mended, markdown)
