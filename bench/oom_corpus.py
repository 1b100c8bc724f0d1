"""Scores ``memdiag oom`` on a corpus of real messages, form by form, and says why each miss was missed.

    python bench/oom_corpus.py [CORPUS.jsonl] [--report reports/oom-corpus.md]

A corpus has one message per line, as tests/oom/corpus.py describes. Without an argument, the large collection next to
the repository is used. The report names messages, but holds none of their text.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from memdiag.oom.read import read_text  # noqa: E402
from memdiag.results.oom import Judgement  # noqa: E402
from tests.oom.corpus import CORPUS, Score, scores  # noqa: E402  # found by the line above

REPORT = ROOT / "reports" / "oom-corpus.md"


def main() -> None:
    """Scores, prints the summary and writes the report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", nargs="?", type=Path, default=CORPUS, help="messages, one a line (JSON)")
    parser.add_argument("--report", type=Path, default=REPORT, help="where to write it")
    options = parser.parse_args()
    if not options.corpus.exists():
        sys.exit(f"error: no corpus at {options.corpus}\nhint: name one")
    rows = list(scores(options.corpus))
    texts = {row["id"]: row["text"] for row in map(json.loads, options.corpus.read_text(encoding="utf-8").splitlines())}
    options.report.write_text("\n".join(report(rows, texts)) + "\n", encoding="utf-8")
    print(summary(rows))


def summary(rows: list[Score]) -> str:
    """Returns the score in a sentence."""
    total = len(rows) or 1
    right, strict, loose = (
        sum(values) for values in ([not r.wrong for r in rows], [r.strict for r in rows], [r.loose for r in rows])
    )
    return (
        f"{len(rows)} messages: every field right in {right} ({right / total:.1%}), verdict as expected in {strict} "
        f"({strict / total:.1%}), or one that is accepted in {loose} ({loose / total:.1%})."
    )


def report(rows: list[Score], texts: dict[str, str]) -> list[str]:
    """Returns the lines of the report."""
    lines = [
        "# Real out-of-memory messages",
        "",
        (
            "Made by bench/oom_corpus.py from a corpus of messages from public threads. People recorded the numbers in "
            "each message, its cause,"
        ),
        (
            "and other acceptable causes. The thresholds of the verdict were set with this corpus. So the score shows "
            "that the rules are"
        ),
        "consistent; it does not predict the score on new messages.",
        "",
        summary(rows),
        "",
        "| form | messages | fields right | verdict as expected | or accepted |",
        "|---|---:|---:|---:|---:|",
    ]
    forms: dict[str, list[Score]] = defaultdict(list)
    for row in rows:
        forms[row.form].append(row)
    for form, members in sorted(forms.items()):
        counts = [sum(not r.wrong for r in members), sum(r.strict for r in members), sum(r.loose for r in members)]
        lines.append(f"| {form} | {len(members)} | {' | '.join(str(count) for count in counts)} |")
    misses = [row for row in rows if row.wrong or not row.strict]
    lines += ["", "## Misses", ""]
    if not misses:
        lines.append("None.")
    for row in misses:
        lines += [f"### {row.name}", "", *_why(row, texts[row.name]), ""]
    return lines


def _why(row: Score, text: str) -> list[str]:
    """Returns the expected and the actual reading of a message, and the reasons of its classification."""
    lines = [f"* `{name}`: expected {expected}, read {got}." for name, (expected, got) in sorted(row.wrong.items())]
    if not row.strict:
        accepted = f" (accepted: {', '.join(row.accepted)})" if row.accepted else ""
        lines.append(f"* Verdict {row.verdict or 'none: not found'}; expected {row.expected}{accepted}.")
        messages = read_text(text).messages
        judgement = messages[0].judgement if messages else Judgement("unknown", "low", (), ("No message was found.",))
        lines += [f"* Decided on: {reason}" for reason in judgement.reasons]
    return lines


if __name__ == "__main__":
    main()
