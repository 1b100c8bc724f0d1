"""Next steps: two or three commands for this report, ready to paste."""

from __future__ import annotations

from memdiag.quoting import file_argument
from memdiag.render.support.words import is_idle
from memdiag.results.report import Report
from memdiag.text import phrase

RECORD = 'torch.cuda.memory._record_memory_history(max_entries=1_000_000, stacks="python")'
_OTHER_PROGRAMS = {"rmm-csv", "jax-profile", "bfc-dump", "nccl-log", "hccl-log"}
_OTHER_MODULES = {"npu", "xpu"}
_COUNTERS_ONLY = "MD908"  # the note of a recording whose allocator has no history to record
DUMP = 'torch.cuda.memory._dump_snapshot("trace.pkl")'


def record_lines(backend: str | None) -> tuple[str, str]:
    """Returns the two lines of Python that record a trace on ``backend`` ("npu", "xpu", or any with torch.cuda)."""
    if backend in _OTHER_MODULES:
        return RECORD.replace("torch.cuda.", f"torch.{backend}."), DUMP.replace("torch.cuda.", f"torch.{backend}.")
    return RECORD, DUMP


def full_step(report: Report) -> tuple[str, str]:
    """Returns the command that prints the whole report."""
    path = report.source.path
    return phrase("summary.whole"), f"memdiag analyze {file_argument(path)} --full"


def next_steps(report: Report) -> list[tuple[str, str]]:
    """Returns at most four pairs of a purpose and the line to paste."""
    path = report.source.path
    file = file_argument(path)
    busy = [device for device in report.devices if not is_idle(device)]
    steps = list[tuple[str, str]]()
    if any(device.counts.get("num_ooms") and (device.moment is None or device.moment.kind != "oom") for device in busy):
        steps.append((phrase("report.next.oom"), f"memdiag analyze {file} --at oom"))
    if len(busy) > 1:
        most = max(busy, key=lambda device: device.peak.reserved_bytes or 0)
        steps.append((phrase("report.next.device"), f"memdiag analyze {file} --device {most.device}"))
    is_counted = any(note.code == _COUNTERS_ONLY for note in report.notes)
    can_record = report.source.format not in _OTHER_PROGRAMS and not is_counted
    if can_record and (not report.source.num_events or any(not device.top_sites for device in busy) or not busy):
        begin, end = record_lines(report.source.backend)
        steps.append((phrase("report.next.record"), begin))
        steps.append((phrase("report.next.dump"), end))
    else:
        steps.append((phrase("report.next.share"), f"memdiag analyze {file} --md -o report.md"))
    if len(steps) < 4:
        steps.append((phrase("report.next.json"), f"memdiag analyze {file} --json"))
    return steps
