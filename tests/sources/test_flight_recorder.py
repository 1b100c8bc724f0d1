"""Dumps of PyTorch's flight recorder name process groups; nothing in them is executed."""

from __future__ import annotations

import json
import os
import pickle
from dataclasses import replace

import pytest

from memdiag.errors import MemdiagError, RefusedFile
from memdiag.runs.libraries import with_groups
from memdiag.sources import load
from memdiag.sources.flight_recorder import ProcessGroup, read_groups
from tests.sources.library_logs import MIB, NcclProcess

CONFIG = {
    "0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2, 3]"},
    "1": {"name": "1", "desc": "tp", "ranks": [2, 3]},
    "2": {"name": "2", "desc": "undefined", "ranks": "[1, 3]"},
    "": {"name": "", "desc": "", "ranks": "[]"},
}
DUMP = {
    "version": "2.10",
    "pg_config": CONFIG,
    "pg_status": {},
    "entries": [{"frames": [], "process_group": ("0", "x")}],
}


@pytest.mark.parametrize("protocol", [2, 4])
def test_a_pickle(tmp_path, protocol):
    path = tmp_path / "nccl_trace_rank_3"
    path.write_bytes(pickle.dumps(DUMP, protocol))
    found = read_groups(path)
    assert found.groups == (
        ProcessGroup("default_pg", (0, 1, 2, 3)),
        ProcessGroup("tp", (2, 3)),
        ProcessGroup("2", (1, 3)),
    )
    assert found.rank == 3


def test_json(tmp_path):
    path = tmp_path / "dump.json"
    path.write_text(json.dumps(DUMP))
    assert [group.name for group in read_groups(path).groups] == ["default_pg", "tp", "2"]


class _Call:
    def __reduce__(self):
        return os.system, ("true",)


@pytest.mark.parametrize(
    "content",
    [
        pickle.dumps({"pg_config": _Call()}),
        pickle.dumps({"segments": []}),
        pickle.dumps({"pg_config": {}}),
        pickle.dumps({"pg_config": {"0": 5}}),
        b"{",
        b'{"pg_config": [1]}',
        b"[" * 100_000,
        b"loss 0.3",
    ],
)
def test_other_files_are_refused(tmp_path, content):
    path = tmp_path / "dump"
    path.write_bytes(content)
    with pytest.raises(RefusedFile) as refused:
        read_groups(path)
    assert refused.value.hint


def log_of(*comms):
    log = NcclProcess()
    for number, (rank, ranks) in enumerate(comms):
        log.begin(0x5500 + 16 * number, 4010, rank, ranks, f"{number + 1:x}")
        log.alloc((number + 1) * MIB, thread=4010)
        log.complete(0x5500 + 16 * number, 4010, rank, ranks, f"{number + 1:x}")
    return log.text


def test_communicators_get_the_names_of_their_groups(tmp_path):
    log, dump = tmp_path / "nccl.log", tmp_path / "nccl_trace_rank_3"
    log.write_text(log_of((3, 4), (1, 2), (0, 2), (0, 8)))
    dump.write_bytes(pickle.dumps(DUMP))
    (memory,) = with_groups(load(log), dump).libraries
    names = {comm.identity: comm.name for comm in memory.communicators}
    assert names == {"0x1": "default_pg", "0x2": "tp / 2", "0x3": "", "0x4": ""}


def test_a_trace_without_communicators_is_refused(tmp_path):
    log, dump = tmp_path / "nccl.log", tmp_path / "nccl_trace_rank_3"
    log.write_text(log_of((3, 4)))
    dump.write_bytes(pickle.dumps(DUMP))
    with pytest.raises(MemdiagError, match="no log"):
        with_groups(replace(load(log), libraries=()), dump)
