"""Logs of libraries are switched on without changing the program's settings, and found beside a recording."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path

import pytest

from memdiag.analyzers.report import build_report
from memdiag.errors import MemdiagError
from memdiag.redaction import VARIABLE
from memdiag.render.support import words
from memdiag.runs.libraries import variables_for, with_libraries
from memdiag.runs.order import chosen_logs
from memdiag.sources import load
from tests.sources.library_logs import MIB, NcclProcess

GOLDEN = Path(__file__).parents[1] / "goldens" / "cuda-2.13.0-recorded" / "snapshot.pickle"
A = 0x55AA


def log_of(pid, size=MIB, device=0):
    log = NcclProcess(pid, device)
    log.begin(A, pid)
    log.alloc(size, thread=pid)
    return log.text


def recorded(folder, pid=4711, name="rank0.pkl"):
    content = pickle.loads(GOLDEN.read_bytes())
    content["memdiag"]["pid"] = pid
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_bytes(pickle.dumps(content, 4))
    return path


def switched_on(tmp_path, own, names=("nccl-log",)):
    said = []
    return variables_for(names, str(tmp_path), own, said.append), said


def test_the_variables_of_nccl(tmp_path):
    found, said = switched_on(tmp_path, {"PATH": "/bin"})
    assert found == {
        "NCCL_DEBUG": "INFO",
        "NCCL_DEBUG_FILE": f"{tmp_path}/libraries/nccl.%h.%p.log",
        "NCCL_DEBUG_SUBSYS": "INIT,ENV,ALLOC,NVLS",
    }
    assert (tmp_path / "libraries").is_dir()
    assert not said


def test_a_percent_sign_in_the_folder_is_no_placeholder(tmp_path):
    folder = tmp_path / "50%h"
    folder.mkdir()
    assert "/50%%h/libraries/nccl.%h.%p.log" in switched_on(folder, {})[0]["NCCL_DEBUG_FILE"]


@pytest.mark.parametrize(
    "own",
    [
        {"NCCL_DEBUG": "INFO"},
        {"NCCL_DEBUG_FILE": "/tmp/own.log"},  # noqa: S108 - only a value
        {"NCCL_DEBUG": "WARN"},
        {"NCCL_DEBUG_SUBSYS": "INIT,COLL"},
    ],
)
def test_settings_of_the_program_stay_and_are_named(tmp_path, own):
    found, said = switched_on(tmp_path, own)
    assert found == {}
    assert len(said) == 1
    assert next(iter(own)) in said[0]
    assert not (tmp_path / "libraries").exists()


def test_subsystems_of_the_program_with_allocations_are_enough(tmp_path):
    assert "NCCL_DEBUG_SUBSYS" not in switched_on(tmp_path, {"NCCL_DEBUG_SUBSYS": "ALLOC,INIT"})[0]


def test_the_variables_of_hccl(tmp_path):
    names = ("hccl-log",)
    found, _ = switched_on(tmp_path, {}, names)
    assert found == {"ASCEND_PROCESS_LOG_PATH": f"{tmp_path}/libraries/ascend", "HCCL_ENTRY_LOG_ENABLE": "1"}
    found, said = switched_on(tmp_path, {"ASCEND_PROCESS_LOG_PATH": "logs"}, names)
    assert (found, len(said)) == ({}, 1)


def test_no_log_is_written_with_redaction(tmp_path, monkeypatch):
    monkeypatch.setenv(VARIABLE, "1")
    found, said = switched_on(tmp_path, {})
    assert (found, len(said)) == ({}, 1)


def test_unknown_logs_are_refused():
    assert chosen_logs(["nccl-log,hccl-log", "NCCL-LOG"]) == ("nccl-log", "hccl-log")
    with pytest.raises(MemdiagError, match="does not know this kind of log"):
        chosen_logs(["cublas-log"])


def test_the_log_of_the_recorded_process_is_found_in_the_run(tmp_path):
    path = recorded(tmp_path / "run")
    logs = tmp_path / "run" / "libraries"
    logs.mkdir()
    (logs / "nccl.node1.4711.log").write_text(log_of(4711, 3 * MIB))
    (logs / "nccl.node1.47110.log").write_text(log_of(47110, 5 * MIB))
    (logs / "nccl.node1.4712.log").write_text("nothing")
    (memory,) = with_libraries(load(path)).libraries
    assert (memory.pid, memory.live_bytes) == (4711, 3 * MIB)
    short = recorded(tmp_path, name="trace.pkl")
    assert len(with_libraries(load(short)).libraries) == 1


def test_a_recording_without_logs_is_unchanged(tmp_path):
    trace = load(recorded(tmp_path))
    assert with_libraries(trace) == trace


def test_a_given_log_of_another_process_is_refused(tmp_path):
    log = tmp_path / "nccl.log"
    log.write_text(log_of(99))
    with pytest.raises(MemdiagError, match="99"):
        with_libraries(load(recorded(tmp_path)), [log])


def test_a_log_of_several_processes_gives_the_recorded_one(tmp_path):
    log = tmp_path / "all.log"
    log.write_text(log_of(4710) + log_of(4711, 7 * MIB) + log_of(4712))
    (memory,) = with_libraries(load(recorded(tmp_path)), [log]).libraries
    assert memory.live_bytes == 7 * MIB


def test_the_device_of_the_log_may_have_another_number(tmp_path):
    log = tmp_path / "nccl.log"
    log.write_text(log_of(4711, device=5))
    trace = with_libraries(load(recorded(tmp_path)), [log])
    assert [memory.device for memory in trace.libraries] == [device.device for device in trace.devices]


def test_a_snapshot_without_a_process_takes_the_only_one(tmp_path):
    log = tmp_path / "nccl.log"
    log.write_text(log_of(99))
    path = tmp_path / "snapshot.pickle"
    content = pickle.loads(GOLDEN.read_bytes())
    del content["memdiag"]["pid"]
    path.write_bytes(pickle.dumps(content, 4))
    assert len(with_libraries(load(path), [log]).libraries) == 1
    log.write_text(log_of(98) + log_of(99))
    with pytest.raises(MemdiagError):
        with_libraries(load(path), [log])


def test_the_report_names_the_part_of_the_memory_outside_the_allocator(tmp_path):
    log = tmp_path / "nccl.log"
    log.write_text(log_of(4711, 300 * MIB))
    report = build_report(with_libraries(load(recorded(tmp_path)), [log]), replay=False)
    assert report.devices[0].card.library_bytes == 300 * MIB
    assert "MD141" in {finding.code for finding in report.findings}
    card = replace(report.devices[0].card, capacity_bytes=80 << 30, usable_bytes=78 << 30, outside_bytes=2 << 30)
    assert "libraries hold 300.00 MiB of the memory outside" in words.card(replace(report.devices[0], card=card))
