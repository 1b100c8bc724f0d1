"""The files of a fleet come from run folders, patterns, other folders with snapshots, and addresses."""

from __future__ import annotations

import os

import pytest

from memdiag.errors import MemdiagError
from memdiag.fleet.files import find, natural, number_of
from memdiag.fleet.numbers import assign
from memdiag.units import format_ranges


def touch(folder, *names, at=None):
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).write_bytes(b"x")
        if at is not None:
            os.utime(folder / name, (at, at))


def names_of(files):
    return [file.name.replace("\\", "/") for file in files]


def test_a_run_directory_is_its_ranks_in_order(tmp_path):
    touch(tmp_path, "rank10.pkl", "rank2.pkl", "rank0.pkl", "rank0.json", "rank0.cpu.pkl", "manifest.json")
    files, said = find([str(tmp_path)])
    assert [name.rpartition("/")[2] for name in names_of(files)] == ["rank0.pkl", "rank2.pkl", "rank10.pkl"]
    assert said == []
    assert all(file.size == 1 and file.stamp for file in files)


def test_runs_of_several_machines_are_one_job(tmp_path):
    touch(tmp_path / "memdiag-a", "rank0.pkl", "rank1.pkl")
    touch(tmp_path / "memdiag-b", "rank2.pkl", "rank3.pkl")
    files, said = find([str(tmp_path)])
    assert [name.rpartition("/")[2] for name in names_of(files)] == [f"rank{rank}.pkl" for rank in range(4)]
    assert said == []


def test_an_older_run_with_the_same_ranks_is_left_out(tmp_path):
    touch(tmp_path / "memdiag-old", "rank0.pkl", at=1_000_000)
    touch(tmp_path / "memdiag-new", "rank0.pkl", at=2_000_000)
    files, said = find([str(tmp_path)])
    assert names_of(files) == [f"{tmp_path}/memdiag-new/rank0.pkl"]
    assert "omitted" in said[0]


def test_any_folder_with_snapshots_below(tmp_path):
    touch(tmp_path / "iteration_10", "rank0_memory_snapshot.pickle", "notes.txt")
    touch(tmp_path / "iteration_10" / "deep", "rank1.pickle.gz", "x.json")
    files, _ = find([str(tmp_path)])
    assert [name.rpartition("/")[2] for name in names_of(files)] == ["rank1.pickle.gz", "rank0_memory_snapshot.pickle"]


def test_patterns_and_files_each_once(tmp_path):
    touch(tmp_path, "a1.pkl", "a2.pkl", "a10.pkl")
    files, _ = find([str(tmp_path / "a*.pkl"), str(tmp_path / "a1.pkl")])
    assert [name.rpartition("/")[2] for name in names_of(files)] == ["a1.pkl", "a2.pkl", "a10.pkl"]


def test_a_file_that_is_missing_is_a_rank_that_is_broken(tmp_path):
    files, _ = find([str(tmp_path / "rank3.pkl")])
    assert [file.stamp for file in files] == [""]


def test_nothing_there_is_an_error(tmp_path):
    with pytest.raises(MemdiagError, match="no trace files"):
        find([str(tmp_path)])
    with pytest.raises(MemdiagError, match="no trace files"):
        find([str(tmp_path / "*.pkl")])


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("run/rank12.pkl", 12),
        ("x_rank_12_y.pickle", 12),
        ("trace.12.pickle.gz", 12),
        ("snapshot-7.pkl", 7),
        ("s3://bucket/rank3/snapshot.pickle", 3),
        ("rank5of16/rank0.pkl", 0),
        ("Rank-4.pkl", 4),
        ("snapshot.pickle", None),
        ("frank.pkl", None),
    ],
)
def test_the_name_tells_the_rank(name, rank):
    assert number_of(name) == rank


def test_natural_order():
    assert sorted(["r10", "r9", "r1", "q", "10", "9"], key=natural) == ["9", "10", "q", "r1", "r9", "r10"]
    assert sorted(["a1²", "²", "a1"], key=natural) == ["a1", "a1²", "²"]  # "²" is a digit, but int() refuses it


def test_numbers_come_from_the_recording_then_the_name_then_the_order():
    assert assign(["a.pkl", "b.pkl"], [{}, {}])[0] == [0, 1]
    assert assign(["rank9.pkl", "rank4.pkl"], [{"rank": 3}, {}])[0] == [3, 4]


def test_numbers_that_are_there_twice_are_said():
    numbers, said = assign(["a/rank0.pkl", "b/rank0.pkl", "c/rank1.pkl", "d/rank0.pkl"], [{}] * 4)
    assert numbers == [0, 2, 1, 3]
    assert said == ["2 files (b/rank0.pkl, …): rank 0 is already a/rank0.pkl, so memdiag uses 2-3 instead"]
    numbers, said = assign(["rank0.pkl", "x.pkl"], [{}] * 2)
    assert numbers == [0, 1]
    assert "the rank of x.pkl is unknown" in said[0]


def test_folders_and_patterns_of_other_file_systems(tmp_path):
    pytest.importorskip("fsspec")
    touch(tmp_path, "rank0.pkl", "rank1.pkl", "rank1.json")
    for given in (f"file://{tmp_path}", f"file://{tmp_path}/rank*.pkl"):
        files, _ = find([given])
        assert [file.url for file in files] == [f"file://{tmp_path}/rank{rank}.pkl" for rank in range(2)]
        assert all(file.size == 1 and file.stamp for file in files)
    with pytest.raises(MemdiagError, match="cannot be listed"):
        find(["nosuchprotocol://x"])


def test_ranges_of_numbers():
    assert format_ranges([7, 3, 1, 2, 0, 7]) == "0-3, 7"
    assert format_ranges([]) == ""
    assert format_ranges(range(0, 40, 2), 12) == "0, 2, 4, …"
