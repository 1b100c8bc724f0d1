"""The results of many ranks form one report: verdict, distribution, merged findings, heat map and unreadable files."""

from __future__ import annotations

import pytest

from memdiag.fleet.files import File
from memdiag.fleet.rollup import bins_of, roll_up
from memdiag.fleet.settings import checked, chosen

GB, MB = 1 << 30, 1 << 20
LAYERS, ACT = ("parameter", "layers"), ("activation", "decoder")


def finding(code="MD101", place="train.py:3 forward", weight=5, severity="warning", title=""):
    return {
        "code": code,
        "place": place,
        "weight_bytes": weight,
        "severity": severity,
        "title": title or f"{weight} bytes",
        "fixes": [],
    }


@pytest.fixture
def report_of(facts_of):
    def make(*ranks, **options):
        """Returns a report; each rank is None (unreadable) or has changes of the default facts (``size`` in MB)."""
        results = []
        for rank in ranks:
            if rank is None:
                results.append({"error": {"message": "damaged", "hint": "record again"}})
                continue
            more = {key: value for key, value in rank.items() if key != "size"}
            results.append({"facts": facts_of({LAYERS: (4000, 40), ACT: (rank.get("size", 1000), 100)}, **more)})
        return roll_up(
            [File(f"/x/rank{number}.pkl", f"rank{number}.pkl") for number in range(len(ranks))], results, **options
        )

    return make


def test_nobody_ran_out(report_of):
    report = report_of({}, {}, {"size": 1010}, {})
    assert report.verdict[0] == "4 ranks, none ran out of memory; rank 2 needs most memory, 4.89 GiB."
    assert (
        report.verdict[1]
        == "Of 64.00 GiB, 59.11 GiB is then left, less than on any other rank; the median is 59.12 GiB."
    )
    assert report.verdict[2] == "All ranks need the same amount of memory."


def test_what_files_do_not_tell_is_not_said(report_of):
    """The verdict makes no statement about data that the files lack.

    A file with only the last state has no failed requests and no peak; a file without driver calls has no failed
    requests.
    """
    state = {"has_history": False, "num_retries": None, "size": 2000}
    report = report_of({}, state)
    assert (
        report.verdict[0] == "2 ranks, no rank is known to have run out of memory; "
        "rank 1 held most memory when its file was saved, 5.86 GiB."
    )
    assert any(note.startswith("the files of rank 1 have no history: ") for note in report.notes)
    alone = report_of({"num_retries": None})
    assert alone.verdict[0] == "1 rank, whether it ran out of memory is unknown; rank 0 needs most memory, 4.88 GiB."
    assert not alone.notes


def test_notes_of_single_traces_are_said_once(report_of):
    late = [["MD907", "the trace begins with 3 tensors already there"]]
    report = report_of(*({"notes": late},) * 3)
    assert report.notes == ("MD907, all 3 ranks: the trace begins with 3 tensors already there",)
    other = [["MD907", "the trace begins with 9 tensors already there"], ["MD920", "inferred: steps"]]
    report = report_of({}, {"notes": late}, {"notes": other}, {"notes": other[:1]})
    assert report.notes == (
        "MD907, 3 of 4 ranks (1-3), here rank 1: the trace begins with 3 tensors already there",
        "MD920, rank 2: inferred: steps",
    )
    assert report_of({"notes": late}).notes == ("MD907: the trace begins with 3 tensors already there",)
    assert len(report_of({"has_history": False, "notes": [["MD906", "no trace"]]}).notes) == 1


def test_the_card_may_be_another_one(report_of):
    assert report_of({}, {}, capacity=5 * GB).ranks[0].headroom_bytes == 5 * GB - 5000 * MB


def test_who_ran_out_comes_first(report_of):
    failed = {
        "requested_bytes": 3 * GB,
        "device_free_bytes": GB,
        "reserved_bytes": 60 * GB,
        "allocated_bytes": 1,
        "step": 1,
        "phase": "forward",
    }
    report = report_of({}, {"failed": failed}, {}, None)
    assert report.verdict[0] == "1 of 3 ranks ran out of memory; it is rank 1, which failed at a request for 3.00 GiB."
    assert report.verdict[1].startswith("Among the others, rank 0 has the smallest headroom, 59.12 GiB of 64.00 GiB")
    assert report.ranks[1].headroom_bytes == -2 * GB
    assert report.verdict[-1] == "1 file could not be read."
    assert [(broken.rank, broken.message) for broken in report.unreadable] == [(3, "damaged")]


def test_every_one_ran_out(report_of):
    failed = {
        "requested_bytes": 5,
        "device_free_bytes": None,
        "reserved_bytes": None,
        "allocated_bytes": 1,
        "step": None,
        "phase": None,
    }
    assert (
        report_of({"failed": failed}, {"failed": failed})
        .verdict[0]
        .startswith("All 2 ranks ran out of memory; the worst")
    )


def test_nothing_could_be_read(report_of):
    report = report_of(None, None)
    assert report.verdict == ("No file could be read.",)
    assert (report.ranks, report.groups, report.heatmap, chosen(report)) == ((), (), None, [])


def test_findings_with_one_code_and_place_are_one(report_of):
    report = report_of(
        {"findings": [finding(weight=5), finding(code="MD201", weight=1, severity="critical")]},
        {"findings": [finding(weight=9, title="worst"), finding(place="other.py:1 f", weight=50)]},
        {"findings": [finding(weight=7)]},
    )
    assert [(each.code, each.ranks, each.low_bytes, each.high_bytes) for each in report.findings] == [
        ("MD201", (0,), 1, 1),
        ("MD101", (1,), 50, 50),
        ("MD101", (0, 1, 2), 5, 9),
    ]
    assert (report.findings[2].title, report.findings[2].rank) == ("worst", 1)


def test_bins_hold_all_ranks():
    peaks = {rank: 10 * GB + rank * 300 * MB for rank in range(40)}
    bins = bins_of(peaks)
    assert 2 <= len(bins) <= 10
    assert sorted(rank for each in bins for rank in each.ranks) == list(range(40))
    assert all(each.low_bytes <= peaks[rank] < each.high_bytes for each in bins for rank in each.ranks)
    assert len({each.high_bytes - each.low_bytes for each in bins}) == 1
    assert len(bins_of({0: 5, 1: 5})) == 1
    assert bins_of({}) == ()


def test_missing_ranks_and_other_settings_are_noted(report_of):
    report = report_of(
        {"world": 4, "conf": "a"}, {"world": 4, "conf": "a"}, {"world": 4, "conf": None, "backend": "npu"}
    )
    said = " | ".join(report.notes)
    assert "the job had 4 ranks; 1 of them are missing here (3)" in said
    assert "allocator settings differ: a: ranks 0-1; unknown: ranks 2" in said
    assert "backend differs: cuda: ranks 0-1; npu: ranks 2" in said


def test_heat_by_step_joins_columns_of_other_widths(report_of):
    report = report_of(
        {"step_width": 1, "steps": [[0, 5, 1], [1, 9, 1], [2, 3, 1]]},
        {"step_width": 2, "steps": [[0, 7, 1], [2, 8, 1]]},
    )
    assert report.heatmap.axis == "step"
    assert report.heatmap.columns == ("0-1", "2-3")
    assert report.heatmap.rows == ((9, 3), (7, 8))


def test_heat_without_steps_is_by_part_of_the_trace(report_of):
    report = report_of({"steps": [], "curve": [1, 2, 3]}, {"steps": [], "curve": [4]})
    assert (report.heatmap.axis, report.heatmap.rows) == ("trace", ((1, 2, 3), (4, 4, 4)))
    short, long = {"steps": [], "curve": [1, 2]}, {"steps": [], "curve": [1, 2, 3, 4, 5]}
    assert report_of(short, long).heatmap.rows == ((1, 1, 1, 2, 2), (1, 2, 3, 4, 5)), (
        "a part of a trace is as wide as that of another"
    )
    assert report_of({"steps": [], "curve": []}).heatmap is None
    # "curve" has reserved bytes in the first rank, but allocated bytes in the second, whose reserved bytes are unknown
    one, other = (
        {"steps": [], "curve": [5, 6]},
        {"steps": [], "curve": [1, 2], "peak_reserved_bytes": None},
    )
    assert report_of(one, other).heatmap.rows == ((5, 6), (None, None)), "allocated bytes are not reserved ones"
    assert report_of(other, other).heatmap.rows == ((1, 2), (1, 2))


def test_a_search_is_made_on_the_worst_and_the_middles(report_of):
    report = report_of({}, {}, {"size": 3000}, {}, {})
    assert chosen(report)[0] == 2
    assert set(chosen(report)) == {2, report.groups[0].median_rank}


def test_what_a_line_does_to_all_ranks():
    def told(before, after, fails=(False, False)):
        return {
            "facts": {
                "before": {"peak_bytes": before, "fails": fails[0]},
                "after": {"peak_bytes": after, "fails": fails[1]},
                "error_bytes": 2,
            }
        }

    found = checked(
        [(0, told(10, 8)), (1, told(12, 20)), (2, told(9, 10)), (3, told(30, 9, (True, False))), (4, {"error": {}})]
    )
    assert (
        found.num_ranks,
        found.failing_ranks_before,
        found.failing_ranks_after,
        found.worse_ranks,
        found.not_replayed_ranks,
    ) == (
        4,
        (3,),
        (),
        (1,),
        (4,),
    )
    assert (found.peak_before_bytes, found.peak_after_bytes, found.peak_rank_after) == (30, 20, 1)
