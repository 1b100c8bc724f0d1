"""The report of a comparison has the expected statements for fully known traces."""

from __future__ import annotations

import json

import pytest

from memdiag.compare.facts import options_of, run_of
from memdiag.compare.report import compare
from memdiag.compare.side import ComparedTrace, choose_device, sides
from memdiag.errors import MemdiagError
from memdiag.sources import load

MIB = 1 << 20


def compared(*paths, **options):
    traces = [load(path) for path in paths]
    chosen = [
        ComparedTrace(letter, trace, choose_device(trace, None), run_of(path))
        for letter, trace, path in zip("ABCD", traces, paths, strict=False)
    ]
    return compare(chosen, **options)


def test_the_verdict_names_the_place_and_what_is_moved_is_found_again(snapshot):
    before = snapshot("a/x.pkl", [("train.py", 12, "make", 20, 2), ("train.py", 38, "mlp", 10, 3)])
    after = snapshot("b/x.pkl", [("train.py", 12, "make", 20, 2), ("train.py", 41, "mlp", 10, 6)], folder="/srv/of/bob")
    found = compared(before, after)
    assert found.verdicts[0] == (
        "B needs 30.00 MiB more at its peak than A (70.00 MiB → 100.00 MiB, +42.9%): "
        "30.00 MiB of it are tensors of train.py:38 mlp (3 tensors → 6)."
    )
    mlp, make = found.sites
    assert (mlp.label, mlp.matched, [amount.bytes // MIB for amount in mlp.amounts]) == (
        "train.py:38 mlp",
        ("base", "moved"),
        [30, 60],
    )
    assert (make.matched, [amount.num_tensors for amount in make.amounts]) == (("base", "path"), [2, 2])
    assert mlp.places[1].path == "/srv/of/bob/train.py"


def test_what_every_trace_holds_adds_up_to_what_it_has_reserved(goldens):
    paths = [
        goldens / name / "snapshot.pickle"
        for name in ("cuda-2.13.0-train", "cuda-2.13.0-expandable", "npu-2.13.0-train")
    ]
    found = compared(*[path for path in paths if path.exists()])
    assert len(found.sides) == 3
    for number, side in enumerate(found.sides):
        held = sum(row.amounts[number].bytes for row in found.sites)
        assert held == side.usage.active_bytes
        assert (
            held + side.split.stranded_bytes + side.split.foreign_bytes + side.split.cache_bytes
            == side.usage.reserved_bytes
        )
        assert 0.98 * side.peak.reserved_bytes <= side.usage.reserved_bytes <= side.peak.reserved_bytes
    assert found.curves.aligned_by == "step"
    assert {len(curve) for curve in found.curves.reserved + found.curves.allocated} == {240}


def test_a_third_trace_is_held_against_the_first_and_finds_places_of_the_second(snapshot):
    a = snapshot("a.pkl", [("train.py", 5, "f", 10, 1)])
    b = snapshot("b.pkl", [("train.py", 5, "f", 10, 1), ("train.py", 80, "g", 10, 2)])
    c = snapshot("c.pkl", [("train.py", 5, "f", 10, 1), ("train.py", 83, "g", 10, 3)])
    found = compared(a, b, c)
    g = found.sites[0]
    assert ([place and place.line for place in g.places], g.matched) == ([None, 80, 83], (None, "only here", "moved"))
    assert [amount.bytes // MIB for amount in g.amounts] == [0, 20, 30]
    assert found.verdicts[1].startswith("C needs 30.00 MiB more at its peak than A")


def test_identical_files_have_no_difference(goldens):
    path = goldens / "cuda-2.13.0-train" / "snapshot.pickle"
    found = compared(path, path)
    assert found.is_same
    assert found.verdicts == ("B and A do not differ in anything that memdiag compares.",)


def test_the_same_peak_of_other_parts_is_said(snapshot):
    a = snapshot("a.pkl", [("train.py", 5, "f", 10, 2), ("train.py", 9, "g", 10, 1)])
    b = snapshot("b.pkl", [("train.py", 5, "f", 10, 1), ("train.py", 9, "g", 10, 2)])
    found = compared(a, b)
    assert not found.is_same
    assert found.verdicts[0].startswith(
        "B needs as much memory as A at its peak: 30.00 MiB, though tensors of train.py:5 f take 10.00 MiB less"
    )


def test_many_places_that_each_grew_a_little_are_told_by_their_kind(snapshot):
    a = snapshot("a.pkl", [("train.py", 10 * n, f"f{n}", 10, 1) for n in range(1, 9)])
    b = snapshot("b.pkl", [("train.py", 10 * n, f"f{n}", 10, 2) for n in range(1, 9)])
    assert "80.00 MiB of it are tensors (most of this, 10.00 MiB, comes from train.py:" in compared(a, b).verdicts[0]


def test_settings_that_differ_are_listed_and_what_a_file_does_not_say_is_no_difference(snapshot):
    held = [("train.py", 5, "f", 10, 1)]
    a, b = snapshot("a.pkl", held), snapshot("b.pkl", held, conf="max_split_size_mb:128")
    found = compared(a, b)
    assert {row.name: row.values for row in found.differences} == {
        "PYTORCH_CUDA_ALLOC_CONF": ("not set", "max_split_size_mb:128")
    }


def test_options_of_the_command_come_from_the_manifest_beside_a_trace(snapshot):
    held = [("train.py", 5, "f", 10, 1)]
    paths = [snapshot(f"{run}/rank0.pkl", held) for run in "ab"]
    for path, batch in zip(paths, ("4", "8"), strict=True):
        argv = ["python", "train.py", "--batch", batch, "--amp"]
        path.with_name("manifest.json").write_text(json.dumps({"argv": argv, "versions": {"memdiag": "1"}}))
    found = compared(*paths)
    assert [(row.name, row.values) for row in found.differences] == [("--batch", ("4", "8"))]
    paths[0].with_name("manifest.json").write_text("[" * 100_000)
    assert compared(*paths).differences == ()


def test_a_manifest_of_another_tool_is_left_alone(snapshot):
    paths = [snapshot(f"{run}/rank0.pkl", [("train.py", 5, "f", 10, 1)]) for run in "abc"]
    paths[0].with_name("manifest.json").write_text('{"versions": {"memdiag": "1"}, "argv": ["x", "--lr", "1"]}')
    for path, other in zip(
        paths[1:], ('{"versions": {"web": "1"}, "argv": ["x", "--lr", "2"]}', '{"versions": ["memdiag"]}'), strict=True
    ):
        path.with_name("manifest.json").write_text(other)
    assert (run_of(paths[0]), run_of(paths[1]), run_of(paths[2])) == ({"version of memdiag": "1", "--lr": "1"}, {}, {})


def test_options_are_told_from_values():
    argv = ["python", "train.py", "--lr", "-1e-4", "--size=3", "--flag", "--names", "a", "b"]
    assert options_of(argv) == {"--lr": "-1e-4", "--size": "3", "--flag": "given", "--names": "a b"}


def test_traces_without_steps_are_aligned_from_beginning_to_end(snapshot, goldens):
    a = snapshot("a.pkl", [("train.py", 5, "f", 10, 3)])
    found = compared(goldens / "cuda-2.13.0-train" / "snapshot.pickle", a)
    assert (found.curves.aligned_by, found.curves.start, found.curves.end, found.lifetime_unit) == (
        "share",
        0.0,
        1.0,
        "share",
    )


def test_findings_are_new_or_gone(goldens):
    found = compared(goldens / "cuda-2.13.0-train" / "snapshot.pickle", goldens / "cuda-2.13.0-oom" / "snapshot.pickle")
    fates = {row.code: row.fate(1) for row in found.findings}
    assert "new" in fates.values()
    assert found.verdicts[0].startswith("B ran out of memory, A did not.")


def test_a_file_that_knows_no_failed_requests_is_not_said_to_have_none(goldens):
    oom, cpu, train = (
        goldens / name / "snapshot.pickle" for name in ("cuda-2.13.0-oom", "cpu-2.13.0-recorded", "cuda-2.13.0-train")
    )
    found = compared(oom, cpu, train, with_findings=False)
    assert found.verdicts[0].startswith("A ran out of memory; B does not show whether it did.")
    assert found.verdicts[1].startswith("A ran out of memory, C did not.")


def test_one_trace_is_nothing_to_compare(goldens):
    trace = load(goldens / "cuda-2.13.0-train" / "snapshot.pickle")
    with pytest.raises(MemdiagError, match="only one trace"):
        compare([ComparedTrace("A", trace, choose_device(trace, None), {})])


def test_a_device_that_is_not_there_is_refused(goldens):
    trace = load(goldens / "cuda-2.13.0-train" / "snapshot.pickle")
    with pytest.raises(MemdiagError, match="this trace does not contain device 7"):
        choose_device(trace, 7)


def test_ranks_and_devices_are_the_sides_of_a_comparison(goldens):
    train, two = (goldens / f"cuda-2.13.0-{name}" / "snapshot.pickle" for name in ("train", "two-devices"))
    assert [side.letter for side in sides([train, train, two])] == ["A", "B", "C"]
    assert [side.device.device for side in sides([two])] == [0, 1]
    with pytest.raises(MemdiagError):
        sides([train])
