"""For a folder of a profiler, the error names a file in it that memdiag reads."""

from __future__ import annotations

import pytest

from memdiag.errors import RefusedFile
from memdiag.sources import load


def hint_for(folder, *files):
    for file in files:
        path = folder / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    with pytest.raises(RefusedFile, match="is a directory") as refused:
        load(folder)
    return refused.value.hint


@pytest.mark.parametrize(
    ("files", "named"),
    [
        (["host.123.pt.trace.json.gz", "notes.txt"], "host.123.pt.trace.json.gz"),
        (["a_ascend_pt/ASCEND_PROFILER_OUTPUT/memory_record.csv"], "memory_record.csv"),
        (
            ["a_ascend_pt/ASCEND_PROFILER_OUTPUT/memory_record.csv", "a_ascend_pt/OUT/operator_memory.csv"],
            "operator_memory.csv",
        ),
        (["1/b.pickle", "0/a.pickle"], "0/a.pickle"),
    ],
)
def test_the_hint_names_a_file_in_the_folder(tmp_path, files, named):
    hint = hint_for(tmp_path, *files)
    assert str(tmp_path) in hint
    assert hint.endswith(named)


@pytest.mark.parametrize("file", ["model.pt", "1/2/3/4/5/6/a.pickle"])
def test_a_folder_without_a_trace_gets_the_general_hint(tmp_path, file):
    assert "rank0.pkl" in hint_for(tmp_path, file)
