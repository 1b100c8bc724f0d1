"""Reports describe the replays of remedies in words."""

from __future__ import annotations

from memdiag.render.analyze.what_if import rows, subtitle


def test_the_best_comes_first_and_failures_last(samples):
    shown = [(row.saves, row.peak, row.fate, row.change) for row in rows(samples.rich())]
    assert shown == [
        ("1.00 GiB less ± 100.00 MiB", "9.00 GiB", "gets past the failed allocation", "expandable_segments:True"),
        ("none", "10.00 GiB", "no request fails", "together: default settings"),
        ("1.00 GiB more", "11.00 GiB", "2 requests fail", "max_split_size_mb:99"),
    ]
    assert "exact (9 of 9)" in subtitle(samples.rich())
