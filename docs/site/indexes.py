"""The indexes of findings and notes, in English and in Chinese, from the pages of docs/findings.

A hook of mkdocs, named in mkdocs.yml. Each index takes the place of a comment in its page, so that a new finding needs
no line in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FINDINGS = Path(__file__).parents[1] / "findings"
MARK = "<!-- findings -->"
TITLE = re.compile(r"# (?P<code>MD\d{3}): (?P<title>.+)\n<!-- zh: (?P<chinese>.+) -->\n")
# The first code of each group, and its headings.
GROUPS = (
    ("MD101", "Live memory", "训练的内存占用"),
    ("MD141", "Libraries and private pools", "库与私有内存池"),
    ("MD151", "Host memory", "主机内存"),
    ("MD201", "Fragmentation", "碎片化与空闲内存"),
    ("MD301", "Growth", "增长"),
    ("MD401", "Churn", "重试与反复预留"),
    ("MD501", "Streams", "流"),
    ("MD601", "Settings", "分配器设置"),
    ("MD701", "Out-of-memory messages (`memdiag oom`)", "内存不足的报错"),
    ("MD801", "Source code (`memdiag lint`)", "源代码中的习惯"),
    ("MD901", "Notes: what limits the diagnosis", "限制诊断的说明"),
    ("MD951", "The recording: record again", "关于记录的诊断结果"),
)


def pages() -> Iterator[re.Match[str]]:
    """Yields the code, title and Chinese words of each page, by code."""
    for path in sorted(FINDINGS.glob("MD*.md")):
        found = TITLE.match(path.read_text(encoding="utf-8"))
        if found is None:
            raise ValueError(f"{path}: no title with a Chinese title and summary below it")
        yield found


def index(*, chinese: bool) -> str:
    """Returns a heading for each group, and its findings: a table in English, a list in Chinese."""
    lines: list[str] = []
    groups = list(GROUPS)
    for page in pages():
        if groups and page["code"] >= groups[0][0]:
            _, english_heading, chinese_heading = groups.pop(0)
            lines += ["", f"## {chinese_heading if chinese else english_heading}", ""]
            lines += [] if chinese else ["| code | meaning |", "|---|---|"]
        lines.append(
            f"* [{page['code']}](../findings/{page['code']}.md)\uff1a{page['chinese']}"
            if chinese
            else f"| [{page['code']}]({page['code']}.md) | {page['title']} |"
        )
    return "\n".join(lines).strip()


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Fills in the index of a page: mkdocs calls this before it renders it."""
    if MARK not in markdown:
        return markdown
    return markdown.replace(MARK, index(chinese=page.file.src_uri.startswith("zh/")))
