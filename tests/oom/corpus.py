"""Accuracy on a corpus of real messages: compares fields and verdicts with those that experts wrote down.

    python -m tests.oom.corpus [CORPUS.jsonl] [--all] [FORMAT …]     # prints a line for each message that differs

A corpus is a JSONL file with one message per line: ``text``, ``expect`` (fields of its first message) or
``expect_all``, ``verdict``, ``alt_verdicts``.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

CORPUS = Path(__file__).parents[3] / "shared" / "data" / "oom" / "corpus.jsonl"


@dataclass(frozen=True)
class Score:
    """The expected and actual result for one message of the corpus."""

    name: str
    form: str
    dialect: str
    wrong: dict[str, tuple[object, object]]
    verdict: str
    expected: str
    accepted: tuple[str, ...]
    num_messages: int

    @property
    def strict(self) -> bool:
        """Returns whether the verdict is the preferred one."""
        return self.verdict == self.expected

    @property
    def loose(self) -> bool:
        """Returns whether the verdict is the preferred one or an accepted alternative."""
        return self.strict or self.verdict in self.accepted


def scores(path: Path = CORPUS) -> Iterator[Score]:
    """Yields the score of every message of a corpus."""
    from memdiag.oom.read import read_text

    for row in map(json.loads, path.read_text(encoding="utf-8").splitlines()):
        messages = read_text(row["text"]).messages
        first = messages[0] if messages else None
        got = dict(first.fields) if first else {}
        wrong = _differences(row.get("expect") or {}, got)
        for number, expected in enumerate(row.get("expect_all") or []):
            if not any(not _differences(expected, dict(message.fields)) for message in messages):
                wrong[f"message {number}"] = (expected, [dict(message.fields) for message in messages])
        yield Score(
            row["id"],
            row["format"],
            first.dialect if first else "",
            wrong,
            first.judgement.verdict if first else "",
            row["verdict"],
            tuple(row.get("alt_verdicts") or ()),
            len(messages),
        )


def _differences(expected: dict[str, object], got: dict[str, object]) -> dict[str, tuple[object, object]]:
    return {
        name: (expected.get(name), got.get(name))
        for name in {*expected, *got}
        if not _same(expected.get(name), got.get(name))
    }


def _same(one: object, other: object) -> bool:
    if isinstance(one, int | float) and isinstance(other, int | float):
        return abs(one - other) <= 1
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(_same(a, b) for a, b in zip(one, other, strict=True))
    return one == other


def main() -> None:
    """Prints the messages that differ, and the share of correct ones."""
    given = [word for word in sys.argv[1:] if not word.startswith("--")]
    path = Path(given.pop(0)) if given and given[0].endswith(".jsonl") else CORPUS
    rows = [score for score in scores(path) if not given or score.form in given]
    for score in rows:
        if score.wrong or not score.strict or "--all" in sys.argv:
            mark = "ok  " if score.strict else "alt " if score.loose else "MISS"
            print(
                f"{mark} {score.name:30} {score.dialect or 'NOT FOUND':26} {score.verdict} (expected {score.expected} "
                f"{score.accepted})"
            )
            for name, (expected, got) in sorted(score.wrong.items()):
                print(f"       {name}: expected {expected}, got {got}")
    total = len(rows) or 1
    right, strict, loose = (
        sum(values) for values in ([not s.wrong for s in rows], [s.strict for s in rows], [s.loose for s in rows])
    )
    print(
        f"{total} messages: fields right in {right}, verdict strict {strict / total:.1%}, with alternatives "
        f"{loose / total:.1%}"
    )


if __name__ == "__main__":
    main()
