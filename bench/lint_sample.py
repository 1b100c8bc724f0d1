"""A random sample of what ``memdiag lint`` finds, to be judged by hand: reports/lint.md.

    python bench/lint_sample.py --seed 7 --count 100 SITE_PACKAGES/megatron SITE_PACKAGES/transformers …

Rare habits are drawn before frequent ones, so that each has its share: at most ``count / 6`` of one.
"""

from __future__ import annotations

import argparse
import random
import time
from collections import Counter, defaultdict
from pathlib import Path

from memdiag.lint.files import lint
from memdiag.results.finding import Finding


def main() -> None:
    """Prints the counts and the sample as tables of markdown."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("paths", nargs="+", type=Path)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--count", type=int, default=100)
    given = options.parse_args()
    began = time.perf_counter()
    report = lint(given.paths, processes=2)
    taken = time.perf_counter() - began
    print(
        f"{report.num_files:,} files in {taken:.0f} s, {len(report.findings)} places, {len(report.notes)} files not "
        "read"
    )
    counts = Counter((finding.code, finding.severity) for finding in report.findings)
    print("\n| code | severity | places |\n|---|---|--:|")
    print("\n".join(f"| {code} | {severity} | {count} |" for (code, severity), count in sorted(counts.items())))
    print("\n| code | place | line |\n|---|---|---|")
    roots = [str(path.resolve().parent) + "/" for path in given.paths]
    chance = random.Random(given.seed)  # noqa: S311 - a sample, not a secret
    for finding in _sample(report.findings, given.count, chance):
        where = str(Path(finding.evidence[0].where).resolve())
        for root in roots:
            where = where.removeprefix(root)
        print(
            f"| {finding.code} | `{where}` | "
            f"`{str(finding.evidence[0].value)[:90].replace('|', '¦').replace('`', chr(39))}` |"
        )


def _sample(findings: tuple[Finding, ...], count: int, chance: random.Random) -> list[Finding]:
    by_code: dict[str, list[Finding]] = defaultdict(list)
    for finding in findings:
        by_code[finding.code].append(finding)
    chosen: list[Finding] = []
    left: list[Finding] = []
    for code in sorted(by_code, key=lambda code: len(by_code[code])):
        drawn = chance.sample(by_code[code], len(by_code[code]))
        chosen += drawn[: count // 6]
        left += drawn[count // 6 :]
    chosen += chance.sample(left, max(min(count - len(chosen), len(left)), 0))
    return sorted(chosen[:count], key=lambda finding: (finding.code, finding.evidence[0].where))


if __name__ == "__main__":
    main()
