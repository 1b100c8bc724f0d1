"""The safety margin of ``memdiag fit`` follows from the comparison with real cards."""

import json
import tomllib

from truth import report

from memdiag.fit.accuracy import MARGIN, WORST_LOW_PERCENT


def test_the_margin_covers_the_worst_figure_of_programs_without_convolutions(root):
    results = json.loads((root / "reports" / "phantom-truth.json").read_text(encoding="utf-8"))
    table = tomllib.loads((root / "bench" / "truth" / "families.toml").read_text(encoding="utf-8"))
    convolving = {name for name, family in table["family"].items() if "resnet" in family["title"].lower()}
    low = [
        -100 * (row["bytes"] / report.UNITS[row["unit"]] / float(row["published"]) - 1)
        for name, rows in results.items()
        for row in rows.values()
        if name not in convolving and row["bytes"] and report.grade(row) != "equal"
    ]
    assert round(max(low), 1) == WORST_LOW_PERCENT
    assert 100 * MARGIN >= WORST_LOW_PERCENT
