from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from rich.cells import cell_len

from memdiag.analyzers.report import build_report
from memdiag.render import renderer
from memdiag.render.analyze import full as terminal
from memdiag.render.analyze import terminal as summary
from memdiag.render.analyze.full import render
from memdiag.render.support.look import Look
from memdiag.render.support.split import fit
from memdiag.results.finding import Evidence, Finding
from memdiag.results.report import Report
from memdiag.sources import load
from memdiag.text import in_ascii

REPORTS = ("rich", "unknown", "several", "hostile")
SECTIONS = (
    "Memory over the trace",
    "Memory use",
    "Use of the reserved memory",
    "Memory by category and call site at the peak",
    "Findings",
    "Next",
)


@pytest.mark.parametrize("name", ["terminal", "full", "json", "md"])
@pytest.mark.parametrize("sample", REPORTS)
def test_every_renderer_is_called_alike(name, sample, samples):
    shown = renderer("analyze", name)(getattr(samples, sample)(), Look())
    assert shown.endswith("\n")
    assert renderer("analyze", name)(getattr(samples, sample)()) == shown


@pytest.mark.parametrize("width", [40, 60, 80, 120, 300])
@pytest.mark.parametrize("sample", ["rich", "unknown", "several"])
def test_it_keeps_to_the_width(samples, sample, width):
    report = getattr(samples, sample)()
    pasted = [fix.change for finding in report.findings for fix in finding.fixes if fix.change] + [
        "memdiag analyze",
        "torch.cuda",
    ]
    for line in render(report, Look(width=width)).splitlines():
        assert line == line.rstrip()
        if not any(text in line for text in pasted):
            assert cell_len(line) <= min(max(width, 40), 132), line


def test_sections_come_in_order(samples):
    shown = render(samples.rich(), Look())
    places = [shown.index(section) for section in SECTIONS]
    assert places == sorted(places)
    assert shown.startswith("CRITICAL  Out of memory in backward of step 3")


def test_the_worst_finding_comes_first(samples):
    shown = render(samples.rich(), Look())
    assert shown.index("MD201") < shown.index("MD401") < shown.index("MD301")


def test_a_finding_is_complete(samples):
    shown = render(samples.rich(), Look())
    for part in (
        "MD201  CRITICAL  Free memory is stranded in pieces too small to use",
        "48 tensors  tensors standing between · model.py:35 forward",
        "fix    Turn on expandable segments (torch >= 2.1, CUDA and NPU)",
        "\n                export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True\n",
        "but    not with CUDA IPC",
        "saves  about 1.07 GiB at the peak",
        "1 event  a fifth line",
    ):
        assert part in shown


def test_only_the_worst_finding_shows_all_its_evidence(samples):
    shown = render(
        replace(samples.rich(), findings=tuple(replace(f, severity="critical") for f in samples.FINDINGS[:0:-1])),
        Look(),
    )
    assert "a fifth line" in shown
    more = replace(samples.FINDINGS[2], severity="warning", weight_bytes=0)
    shown = render(replace(samples.rich(), findings=(samples.FINDINGS[1], more)), Look())
    assert "a fifth line" not in shown
    assert "--json shows 1 more fact" in shown


def test_a_fix_is_explained_once(samples):
    finding = samples.FINDINGS[2]
    shown = render(replace(samples.rich(), findings=(finding, replace(finding, code="MD202"))), Look())
    findings = shown[shown.index("Findings") : shown.index("Replays with other settings")]
    assert findings.count("export PYTORCH_CUDA_ALLOC_CONF") == 1
    assert shown.count("fix    Turn on expandable segments") == 2
    assert "fix    Turn on expandable segments (conditions as above)" in shown


def test_findings_name_the_device_if_there_are_several(samples):
    assert "device 0: Free memory" in render(samples.several(), Look())
    assert "device 0: Free memory" not in render(samples.rich(), Look())


def test_a_long_line_to_paste_is_not_broken(samples):
    change = "export PYTORCH_CUDA_ALLOC_CONF=" + ",".join(f"key_{i}:{i}" for i in range(30))
    finding = replace(samples.FINDINGS[2], fixes=(replace(samples.FINDINGS[2].fixes[0], change=change),))
    assert change in render(replace(samples.rich(), findings=(finding,)), Look())


def test_the_split_adds_up_and_says_whether_the_request_fits(samples):
    shown = render(samples.rich(), Look(width=120))
    parts = re.findall(r"^  [█▓▒▚░·]  \w+ +[\d.]+ \w+ +([\d.]+)%", shown, re.MULTILINE)
    assert len(parts) == 6
    assert sum(map(float, parts)) == pytest.approx(100, abs=0.4)
    said = "The next request for new memory (2.00 GiB) would not fit: the largest free block of its pool and stream is "
    assert said + "412.00 MiB, 1.60 GiB too small." in re.sub(r"\s+", " ", shown)


@pytest.mark.parametrize(
    ("kind", "request_bytes", "largest", "said"),
    [
        (
            "this request",
            640,
            608,
            (
                "The request at this event (640 B) did not fit: the largest free block of its pool and stream is 608 "
                "B, 32 B too"
            ),
        ),
        ("this request", 640, 640, "The request at this event (640 B) fits, because the allocator has just reserved "),
        (
            "largest request",
            7,
            8,
            "The largest request of the trace (7 B) would fit: the largest free block of its pool and stream is 8 B.",
        ),
        ("last request", 7, 0, "The last request for new memory (7 B) would not fit: "),
        (None, 7, None, "A request (7 B) is the reference request. The largest free block is unknown."),
        (None, None, 8, "Largest free block: 8 B."),
        (None, None, None, ""),
    ],
)
def test_whether_a_request_fits(samples, kind, request_bytes, largest, said):
    seen = {"reference_kind": kind, "reference_request_bytes": request_bytes, "largest_free_bytes": largest}
    assert fit(samples.device(fragmentation=replace(samples.NO_FRAGMENTATION, **seen))).startswith(said)


def test_elsewhere_than_at_a_peak_the_split_is_of_what_was_not_requested(samples):
    fragmentation = replace(samples.device().fragmentation, at_event=1000)
    shown = render(
        replace(samples.rich(), devices=(samples.device(fragmentation=fragmentation, moment=samples.event(1000)),)),
        Look(),
    )
    assert "Reserved memory that tensors did not request  at event 1,000" in shown
    assert not re.search(r"█  requested", shown)
    assert re.search(r"▚  stranded +1.17 GiB  55.4%", shown)
    assert "Memory by category and call site at event 1,000" in shown


def test_before_the_trace(samples):
    nothing = dict.fromkeys(("rounding_bytes", "pending_bytes", "stranded_bytes", "foreign_bytes", "cache_bytes"), 0)
    fragmentation = replace(samples.NO_FRAGMENTATION, at_event=-1, **nothing)
    shown = render(
        replace(samples.rich(), devices=(samples.device(fragmentation=fragmentation, moment=samples.event(-1)),)),
        Look(),
    )
    assert "▲ chosen event: before the trace" in shown
    assert "Use of the reserved memory  before the trace began\n  Live tensors requested all reserved memory" in shown
    assert "Memory by category and call site before the trace" in shown


def test_parts_that_are_unknown_stand_together(samples):
    fragmentation = replace(samples.device().fragmentation, stranded_bytes=None, foreign_bytes=None, cache_bytes=None)
    shown = render(replace(samples.rich(), devices=(samples.device(fragmentation=fragmentation),)), Look())
    assert "?  free         1.75 GiB  15.9%  free; unknown whether a request could use it" in shown
    assert "requested    8.88 GiB  80.8%" in shown
    assert "stranded  " not in shown.split("Memory by category")[0]
    fragmentation = replace(fragmentation, rounding_bytes=None)
    assert "?  other" in render(replace(samples.rich(), devices=(samples.device(fragmentation=fragmentation),)), Look())


def test_blocks_stand_in_for_what_was_asked_for(samples):
    peak = replace(samples.device().peak, requested_bytes=None)
    fragmentation = replace(samples.NO_FRAGMENTATION, at_event=peak.at_event, pending_bytes=0)
    shown = render(replace(samples.rich(), devices=(samples.device(peak=peak, fragmentation=fragmentation),)), Look())
    assert re.search(r"█  allocated +9.00 GiB  81.8%", shown)
    assert re.search(r"\?  free +2.00 GiB  18.2%", shown)


def test_without_reserved_there_is_no_split(samples):
    only = samples.Peak(None, 9 << 30, None, None, 7)
    fragmentation = replace(samples.NO_FRAGMENTATION, at_event=7)
    device = samples.device(peak=samples.NO_PEAK, peak_allocated=only, fragmentation=fragmentation)
    shown = render(replace(samples.rich(), devices=(device,)), Look())
    assert "Use of the reserved memory  at the peak (event 7)\n  Unknown" in shown
    assert "Memory by category and call site at the peak" in shown


def test_a_file_without_a_trace(samples):
    fragmentation = replace(samples.NO_FRAGMENTATION, rounding_bytes=41943040, pending_bytes=0)
    device = samples.device(
        peak=samples.NO_PEAK,
        peak_allocated=samples.NO_PEAK,
        timeline=None,
        fragmentation=fragmentation,
        counts=samples.NO_COUNTS,
    )
    shown = render(replace(samples.rich(), devices=(device,)), Look())
    assert "No chart" in shown
    assert "peak" not in shown.split("Memory use")[1].split("Use of")[0]
    assert "Use of the reserved memory  in the snapshot" in shown
    assert "?  free" in shown
    assert "out-of-memory errors are unknown" in shown


def test_what_is_unknown_is_never_shown_as_zero(samples):
    shown = render(samples.unknown(), Look())
    assert not re.search(r"\b0(\.0+)? (B|KiB|MiB|GiB)\b", shown)
    assert "0.0%" not in shown
    assert shown.count("unknown") > 10
    assert "_record_memory_history" in shown


def test_idle_devices_take_one_line(samples):
    shown = render(samples.several(), Look())
    assert "Idle devices (no memory was reserved): 2, 3." in shown
    assert shown.count("── Device") == 2
    assert "--device 0" in shown


def test_colour_only_where_asked(samples):
    assert "\x1b[" in render(samples.rich(), Look(color=True))
    assert "\x1b" not in render(samples.rich(), Look())


def test_colour_changes_no_text(samples):
    colored = render(samples.rich(), Look(color=True))
    bare = re.sub(r"\x1b\[[0-9;]*m", "", colored)
    assert [line.rstrip() for line in bare.splitlines()] == render(samples.rich(), Look()).splitlines()


def test_ascii_terminals(samples):
    shown = render(samples.rich(), Look(unicode=False))
    assert shown.isascii()
    drawn = render(samples.rich(), Look())
    assert "".join(shown.split()) == in_ascii("".join(drawn.split()))
    pasted = ("export ", "memdiag ")  # such lines are never wrapped
    assert all(len(line) <= 80 for line in shown.splitlines() if not line.lstrip().startswith(pasted))


@pytest.mark.parametrize("color", [True, False])
def test_names_from_a_file_cannot_act_on_the_terminal(samples, color):
    shown = render(samples.hostile(), Look(color=color))
    bare = re.sub(r"\x1b\[[0-9;]*m", "", shown)
    assert all(char == "\n" or char.isprintable() for char in bare)
    assert "[bold red]x[/]" in re.sub(r"\s+", " ", bare)
    assert not any(line.startswith("FAKE") for line in bare.splitlines())
    assert "title\x07" not in shown
    harmless = render(samples.several(), Look(color=color))
    assert set(re.findall(r"\x1b\[[0-9;]*m", shown)) <= set(re.findall(r"\x1b\[[0-9;]*m", harmless)) | set()


@pytest.mark.parametrize(
    ("value", "unit", "shown"),
    [
        (3, "tensors", "3 tensors"),
        (1, "tensors", "1 tensor"),
        (1_204, "events", "1,204 events"),
        (None, "bytes", "unknown"),
        (float("nan"), "ratio", "unknown"),
        (0.25, "ratio", "25.0%"),
        (1.5, "ratio", "1.50 times"),
        (4 << 20, "bytes/step", "4.00 MiB per step"),
        (0, "bytes", "0 B"),
        ("words", "", "words"),
    ],
)
def test_units(samples, value, unit, shown):
    finding = Finding("MD999", "a title", "warning", 0, (Evidence("what", value, unit),))
    assert shown in render(replace(samples.rich(), findings=(finding,)), Look()).split("MD999")[1]


def test_a_report_without_devices(samples):
    empty = Report(samples.source(num_events=0, num_tensors=0), (), {}, (), ())
    shown = render(empty, Look())
    assert "OK  No problem was found in this trace." in shown
    assert "Next" in shown


def test_names_stand_beside_places_and_by_module(samples):
    shown = render(samples.rich(), Look())
    assert "train.py:61 <module> · layers.*.mlp.up.weight\n" in shown  # the line has no room for the second name
    assert "layers.*.mlp.up.weight, layers.*.mlp.down.weight" in render(samples.rich(), Look(width=120))
    assert re.search(r"module\n  layers\.\*\.mlp +4\.00 GiB  44\.0%  █", shown)
    assert "\n  module" not in render(samples.unknown(), Look())
    assert "\n  module" not in render(replace(samples.rich(), devices=(samples.device(by_module=None),)), Look())


@pytest.mark.parametrize("width", [40, 80, 120])
def test_long_names_do_not_widen_the_page(samples, width):
    long = "層" * 80
    module, site = samples.ModuleUsage(long, 1 << 30, 0.5, 3), samples.Site(1 << 30, 2, (), long, (long, long))
    shown = render(
        replace(samples.rich(), devices=(samples.device(by_module=(module,), top_sites=(site,)),), findings=()),
        Look(width=width),
    )
    for line in shown.splitlines():
        if "層" in line:
            assert cell_len(line) <= max(width, 60), line


def test_it_says_what_phases_rest_on(samples):
    assert re.search(r"labels +phases, steps, categories: marked by the recorder\n", render(samples.rich(), Look()))
    bases = {"phase": "stacks", "step": "periodicity", "category": "stacks", "lifetime": "stacks"}
    shown = render(replace(samples.rich(), source=samples.source(bases=bases)), Look(width=120))
    assert "phases, categories: inferred from call stacks; steps: inferred from repeating allocation sizes" in shown
    shown = render(replace(samples.rich(), source=samples.source(format="msmemscope-db")), Look())
    assert "recorded in the file" in shown
    assert "labels  " not in render(
        replace(samples.rich(), source=samples.source(bases=dict.fromkeys(bases, "none"))), Look()
    )


GOLDENS = sorted(path.parent.name for path in (Path(__file__).parents[2] / "goldens").glob("*/snapshot.pickle"))
_AMOUNT = re.compile(r"(?<![\w./-])\d[\d,]*\.\d\d(?!\.?\d)(?!\s+[KMGT]iB\b)")


@pytest.mark.parametrize("width", [40, 50, 60, 80])
@pytest.mark.parametrize("name", GOLDENS[::4])
def test_no_unit_is_cut_in_a_narrow_terminal(root, name, width):
    report = build_report(load(root / f"tests/goldens/{name}/snapshot.pickle"), replay=name.endswith("oom"))
    for form in (terminal.render, summary.render):
        text = re.sub(r"torch(_npu)?\s+\d+\.\d+|>=\s+\d+\.\d+|\S*goldens\S*", "", form(report, Look(width=width)))
        for line in text.splitlines():
            assert not re.search(r"\d (?:[KMGT]i?|[KMGT]i…)(?=$| )", line), line
        assert not _AMOUNT.search(text), _AMOUNT.search(text)


def test_one_list_has_all_remedies_and_the_bar_a_legend(root):
    report = build_report(load(root / "examples/gpt-train.pickle"))
    text = summary.render(report, Look())
    lines = text[text.index("What to do next") :].splitlines()
    assert lines[1].split()[1] == "first:"
    assert "first:" not in lines[2]
    title, drawn, legend = text[text.index("Use of the reserved memory") : text.index("Memory by category")].split(
        "\n", 2
    )
    assert {glyph for glyph in drawn if glyph != " "} <= set(legend), title
