"""Handwritten reports: one with all data, one without any known value, one with hostile names."""

from __future__ import annotations

import math
from dataclasses import asdict

from memdiag.results.finding import Evidence, Finding, Fix, Note, Saving
from memdiag.results.report import (
    DeviceReport,
    Fragmentation,
    ModuleUsage,
    Peak,
    Report,
    ReportMoment,
    Site,
    Timeline,
    TraceSource,
    Usage,
    Verdict,
    WhatIf,
)
from memdiag.units import GIB, MIB

NO_USAGE = Usage(None, None, None, None)
NO_PEAK = Peak(None, None, None, None)
NO_FRAGMENTATION = Fragmentation(None, None, None, None, None, None, None, None, None)
NO_COUNTS: dict[str, int | None] = dict.fromkeys(
    ("num_segments_allocated", "num_segments_freed", "num_retries", "num_ooms")
)

HOSTILE = "evil\x1b[31m\x1b]0;title\x07\nFAKE  line\r\u202egnp.\u2066|`[bold red]x[/]<script>*_#1 @you\ud800"


def wave(num: int, base: int, height: int) -> tuple[int, ...]:
    """Returns a curve of training steps: rising in forward, falling in backward, above ``base``."""
    return tuple(
        base + int(height * abs(math.sin(i * math.pi * 4 / num)) * min(1.0, 0.4 + i / num)) for i in range(num)
    )


def timeline(num: int = 400, events_per_bucket: float = 545.11) -> Timeline:
    """Returns three curves; reserved never falls."""
    allocated = wave(num, 3 * GIB, 7 * GIB)
    active = tuple(a + (600 * MIB if i % 50 > 42 else 0) for i, a in enumerate(allocated))
    reserved, held = [], 0
    for value in active:
        held = max(held, value + 900 * MIB)
        reserved.append(held)
    return Timeline(events_per_bucket, tuple(reserved), active, allocated)


def moment_of(peak: Peak, peak_allocated: Peak, fragmentation: Fragmentation, **changes: object) -> ReportMoment:
    """Returns the moment of a report: the reserved peak, or the allocated peak if reserved bytes are unknown."""
    known = peak if peak.reserved_bytes is not None else peak_allocated
    kind = "snapshot" if known.at_event is None else "peak"
    return ReportMoment(**{**asdict(known), "kind": kind, "lost_bytes": fragmentation.lost_bytes, **changes})


def event(at: int) -> ReportMoment:
    """Returns the moment of a report at an event with unknown bytes."""
    return ReportMoment(None, None, None, None, at, kind="event")


def device(number: int = 0, **changes: object) -> DeviceReport:
    """Returns a device with 218,044 events and its reserved peak at event 196,100."""
    values: dict[str, object] = {
        "device": number,
        "end": Usage(11 * GIB, 3 * GIB, 3 * GIB, 3 * GIB - 40 * MIB),
        "peak": Peak(11 * GIB, 9 * GIB, 9 * GIB + 256 * MIB, 9 * GIB - 120 * MIB, 196_100, 1_700_000, "backward", 3),
        "peak_allocated": Peak(
            11 * GIB, 9 * GIB + 64 * MIB, 9 * GIB + 64 * MIB, 9 * GIB - 60 * MIB, 190_022, 1_650_000, "forward", 3
        ),
        "fragmentation": Fragmentation(
            196_100, 2 * GIB, "next request", 120 * MIB, 256 * MIB, 1200 * MIB, 300 * MIB, 292 * MIB, 412 * MIB
        ),
        "counts": {"num_segments_allocated": 214, "num_segments_freed": 3, "num_retries": 1, "num_ooms": 1},
        "by_category": {
            "parameter": 2 * GIB,
            "optimizer_state": 3 * GIB,
            "activation": 3 * GIB + 100 * MIB,
            "unknown": 924 * MIB,
        },
        "by_lifetime": {
            "persistent": 5 * GIB,
            "forward_to_backward": 3 * GIB,
            "survives_step": 800 * MIB,
            "temporary": 224 * MIB,
        },
        "top_sites": (
            Site(
                3 * GIB,
                48,
                ("/home/me/project/model.py:35 forward", "/home/me/project/train.py:120 step"),
                "model.py:35 forward",
            ),
            Site(
                2 * GIB,
                1,
                ("/home/me/project/train.py:61 <module>",),
                "train.py:61 <module>",
                ("layers.*.mlp.up.weight", "layers.*.mlp.down.weight"),
            ),
            Site(512 * MIB, 1024, ("/home/me/project/data.py:9 collate",), "data.py:9 collate"),
        ),
        "timeline": timeline(),
        "by_module": (
            ModuleUsage("layers.*.mlp", 4 * GIB, 0.44, 96),
            ModuleUsage("layers.*.self_attn", 2 * GIB, 0.22, 128),
            ModuleUsage("(outside of any module)", MIB, 0.0001, 3),
        ),
    }
    values |= changes
    values.setdefault("moment", moment_of(values["peak"], values["peak_allocated"], values["fragmentation"]))
    return DeviceReport(**values)  # type: ignore[arg-type]


FINDINGS = (
    Finding(
        "MD301",
        "A list grows by one tensor a step",
        "info",
        0,
        (Evidence("growth", 4 * MIB, "bytes/step", "train.py:80 log"),),
    ),
    Finding(
        "MD401",
        "Cached segments are released and taken again in every step",
        "warning",
        0,
        (
            Evidence("segments released in a step", 12.5, "segments"),
            Evidence("time in retries", 35_000, "us"),
            Evidence("share of events", 0.034, "ratio"),
            Evidence("driver version", None),
        ),
        (
            Fix(
                "Call torch.cuda.empty_cache() once, after initialisation",
                "code",
                "",
                "",
                "helps only if the pattern stays",
            ),
        ),
        None,
        300 * MIB,
    ),
    Finding(
        "MD201",
        "Free memory is stranded in pieces too small to use",
        "critical",
        0,
        (
            Evidence("free in its pool and stream, in smaller pieces (stranded)", 1200 * MIB, "bytes", "event 196,100"),
            Evidence("largest free range", 412 * MIB, "bytes", "large pool, stream 0"),
            Evidence("pinned by", "3 small long-lived tensors", "", "model.py:35 forward"),
            Evidence("tensors standing between", 48, "tensors", "model.py:35 forward"),
            Evidence("a fifth line", 1, "events"),
        ),
        (
            Fix(
                "Turn on expandable segments",
                "env",
                "export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
                "torch >= 2.1, CUDA and NPU",
                "not with CUDA IPC of tensors before torch 2.5",
            ),
            Fix("Make the long-lived tensors before the first forward pass", "code"),
        ),
        Saving(1000 * MIB, 1100 * MIB, 1200 * MIB, "estimated"),
        1200 * MIB,
    ),
)


def source(**changes: object) -> TraceSource:
    """Returns the stated origin of the sample."""
    values: dict[str, object] = {
        "path": "runs/gpt/trace.pkl",
        "format": "torch-snapshot",
        "backend": "cuda",
        "torch_version": "2.4.1+cu121",
        "is_phantom": False,
        "num_events": 218_044,
        "num_tensors": 81_204,
        "complete_from_start": False,
        "bases": dict.fromkeys(("phase", "step", "category", "lifetime"), "marks"),
    }
    return TraceSource(**{**values, **changes})  # type: ignore[arg-type]


HEADLINE = (
    "Out of memory in backward of step 3: a request of 2.00 GiB failed although 1.75 GiB were free, most of it in "
    "pieces of at most 412 MiB."
)
VERDICT = Verdict(
    severity="critical",
    summary=HEADLINE,
    device=0,
    lost_bytes=1500 * MIB,
    loss="1.46 GiB (13.3%) of reserved memory was free, but unusable for the request at that moment",
    remedy="Turn on expandable segments",
    command="export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
    code="MD201",
    peak_reserved_bytes=10 * GIB,
    predicted_peak_reserved_bytes=9 * GIB,
    fits=True,
    prediction=(
        "9.00 GiB reserved instead of 10.00 GiB; the failed allocation succeeds, the rest of the run is unknown"
    ),
    calibration="replayed addresses and segments: 8 of 9 exact; predictions can be off by up to 100.00 MiB",
)

WHAT_IF = (
    WhatIf(
        0,
        "export PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:99",
        ("MD201",),
        False,
        11 * GIB,
        -GIB,
        0,
        2,
        1,
        "exact (9 of 9)",
        "x",
    ),
    WhatIf(
        0,
        "export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
        ("MD201",),
        False,
        9 * GIB,
        GIB,
        100 * MIB,
        0,
        1,
        "8 of 9 exact",
        "memdiag simulate trace.pkl --conf expandable_segments:True",
    ),
    WhatIf(0, "unset PYTORCH_CUDA_ALLOC_CONF", ("MD201",), True, 10 * GIB, 0, 0, 0, 0, "exact (9 of 9)", ""),
)


def rich() -> Report:
    """Returns a report with all kinds of data."""
    return Report(
        source(),
        (device(),),
        {"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:512"},
        FINDINGS,
        (Note("MD902", "The trace does not begin at the start: 2.10 GiB were in use before it."),),
        HEADLINE,
        WHAT_IF,
        VERDICT,
    )


def unknown() -> Report:
    """Returns a report on a file with almost no data."""
    nothing = DeviceReport(0, NO_USAGE, NO_PEAK, NO_PEAK, NO_FRAGMENTATION, dict(NO_COUNTS), None, None, None)
    return Report(
        source(
            path="lifespans.csv",
            format="lifespans-csv",
            backend=None,
            torch_version=None,
            complete_from_start=None,
            bases={},
        ),
        (nothing,),
        {},
        (),
        (Note("MD910", "This format has no addresses and no call stacks."),),
    )


def several() -> Report:
    """Returns a report on four devices, two of them idle."""
    zero = Usage(0, 0, 0, 0)
    idle = {
        "end": zero,
        "peak": Peak(0, 0, 0, 0),
        "peak_allocated": Peak(0, 0, 0, 0),
        "fragmentation": NO_FRAGMENTATION,
    }
    empty = {
        "counts": dict.fromkeys(NO_COUNTS, 0),
        "by_category": {},
        "by_lifetime": {},
        "top_sites": (),
        "timeline": None,
    }
    return Report(
        source(), (device(0), device(1), device(2, **idle, **empty), device(3, **idle, **empty)), {}, FINDINGS[1:], ()
    )


def hostile() -> Report:
    """Returns a report in which every text from a file tries to inject markup or control codes."""
    bad = HOSTILE
    finding = Finding(
        "MD201",
        "Stranded by " + bad,
        "critical",
        0,
        (Evidence(bad, bad, "", bad), Evidence(bad, 3, bad, bad)),
        (Fix(bad, "code", bad, bad, bad),),
        Saving(1, 2, 3, "estimated", bad),
    )
    dev = device(
        by_category={bad: 3 * GIB},
        by_lifetime={bad: GIB},
        top_sites=(Site(GIB, 1, (bad, bad), bad, (bad, bad)),),
        by_module=(ModuleUsage(bad, GIB, 0.5, 1),),
    )
    return Report(
        source(path=bad, backend=bad, torch_version=bad, format=bad),
        (dev,),
        {bad: [bad, {bad: bad}]},
        (finding,),
        (Note(bad, bad),),
        bad,
        (WhatIf(0, "export A=" + bad, (bad,), False, GIB, GIB, 0, 0, 0, bad, bad),),
    )
