"""Lines of the screen fit its width and have the right content, and no text of a trace can control the terminal."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.text import Text

import memdiag
from memdiag.errors import MemdiagError
from memdiag.results.finding import Evidence, Finding, Fix
from memdiag.text import phrase
from memdiag.trace.moments import peak_event, reserved_peak
from memdiag.trace.stacks import Frame, Stacks
from memdiag.tui import curve_lines, keys
from memdiag.tui.lines import HELD, cell, fitted, folded, joined, short
from memdiag.tui.lists import ABOUT, CALLS, FINDINGS, MAP, NAMES, TENSORS, Lists
from memdiag.tui.models.window import heights
from memdiag.tui.question import Question
from memdiag.tui.status_lines import NUM_LINES, status
from memdiag.tui.walk import Walk

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "gpt-train.pickle"
HOSTILE = "[bold]x[/] <script> \x1b[31m \x1b]0;t\x07 \u202e a\r\nb \ud800 "
WIDTHS = (24, 80, 140)
EIGHTHS = "▁▂▃▄▅▆▇█"


@pytest.fixture(scope="module")
def trace():
    return memdiag.load(EXAMPLE)


@pytest.fixture(scope="module")
def report(trace):
    return memdiag.analyze(trace, replay=False)


def all_lines(lists, width):
    """Yields some rows of every list, with their heads, details and summaries."""
    for number in range(len(NAMES)):
        lines = lists.lines(number)
        lists.about.set_width(width)
        head = lines.head(width)
        if head is not None:
            yield head
        for row in {*range(min(len(lines), 8)), len(lines) - 1} - {-1}:
            yield lines.line(row, width)
            detail = lines.detail(row)
            if detail is not None:
                yield from folded(detail, width)
        yield Text(joined(lists.summary(number).split(" · "), width))


def check(lines, width):
    for line in lines:
        assert cell_len(line.plain) <= width, line.plain
        assert line.plain.isprintable(), repr(line.plain)


def test_every_list_of_every_trace_fits_the_width(golden):
    for path in sorted(golden.glob("*.p*k*l*")):
        trace = memdiag.load(path)
        for number in range(len(trace.devices)):
            walk = Walk(trace, device=trace.devices[number].device)
            lists = Lists(walk)
            for at in {-1, walk.at, walk.here.device.num_events - 1}:
                walk.go(at)
                for row in range(3):
                    for tree in (CALLS, MAP):
                        if row < len(lists.lines(tree)):
                            lists.toggle(tree, row)
                for width in WIDTHS if at == walk.here.places.peak else (80,):
                    here = walk.here
                    for color in (False, True):
                        drawn = here.curve.draw(here.window, here.at, width, 8, color=color)
                        assert len(drawn) == 8
                        check(drawn, width)
                    told = status(walk, width)
                    assert len(told) == NUM_LINES
                    check(told, width)
                    check(all_lines(lists, max(width, 60)), max(width, 60))


def hostile_copy(trace):
    """Returns the trace with all texts replaced by markup and control characters."""
    huge = HOSTILE + "x" * 1_000_000
    frames = [Frame(HOSTILE + frame.filename, frame.line, HOSTILE + frame.name) for frame in trace.stacks.frames]
    frames[0] = Frame(huge, 1, huge)
    device = trace.devices[0]
    names = device.tensors.name.copy()
    names[:] = 0
    names[::2] = 1
    device = replace(device, tensors=device.tensors.replace(name=names))
    stacks = Stacks(frames, trace.stacks.offsets.copy(), trace.stacks.frame_ids.copy())
    texts = {"path": HOSTILE, "backend": HOSTILE, "torch_version": HOSTILE, "settings": {HOSTILE: huge}}
    return replace(trace, devices=(device,), strings=(HOSTILE, huge), stacks=stacks, **texts)


def test_hostile_text_is_shown_plain(trace, report):
    walk = Walk(hostile_copy(trace))
    lists = Lists(walk)
    bad = Finding(
        HOSTILE,
        HOSTILE,
        "critical",
        0,
        (Evidence(HOSTILE, HOSTILE, HOSTILE, HOSTILE),),
        (Fix(HOSTILE, "code", HOSTILE, HOSTILE, HOSTILE),),
    )
    lists.take(replace(report, findings=(bad,), headline=HOSTILE, settings={HOSTILE: HOSTILE}), HOSTILE)
    check(all_lines(lists, 80), 80)
    check(status(walk, 80), 80)
    shown = lists.lines(TENSORS).line(0, 80).plain + lists.lines(FINDINGS).line(0, 80).plain
    assert "[bold]x[/]" in shown
    lists.text = HOSTILE
    check(all_lines(lists, 80), 80)


def test_texts_are_cut_to_cells_not_characters():
    assert cell("内存碎片", 5).cell_len == 5
    assert fitted("内存碎片" * 10, 21).cell_len == 21
    assert fitted("a" * 5_000_000, 10).cell_len == 10
    assert short("\x1b[0m") == "\\x1b[0m"
    assert joined(["one", "two", "three"], 9) == "one · two"
    assert joined(["long" * 5], 6) == "longl…"


def test_folded_lines_are_indented_after_their_label():
    lines = [line.plain for line in folded(Text("   1 GiB  " + "word " * 30 + "\n\nend"), 60)]
    assert lines[0].startswith("   1 GiB  word")
    assert all(line.startswith(" " * 10 + "word") for line in lines[1:-2])
    assert lines[-2:] == ["", "end"]
    assert " ".join(" ".join(lines).split()) == "1 GiB " + "word " * 30 + "end"


def test_the_moment_and_all_its_marks_are_drawn():
    walk = Walk(memdiag.load(ROOT / "tests" / "goldens" / "cuda-2.13.0-oom" / "snapshot.pickle"), at="oom")
    here = walk.here
    lines = here.curve.draw(here.window, here.at, 80, 10)
    column = 10 + here.window.column_of(here.at, curve_lines.plot_width(80))
    assert lines[0].plain[column] == "!"
    reversed_at = [span.start for span in lines[5].spans if span.style == curve_lines.CURSOR]
    assert reversed_at == [column]
    assert "█" in "".join(line.plain for line in lines)


@pytest.mark.parametrize("color", [False, True])
def test_every_area_reaches_as_high_as_its_curve(color):
    """The height read back from the characters equals the curve, to an eighth of a row (one row without colours)."""
    here = Walk(memdiag.load(ROOT / "tests" / "goldens" / "cuda-2.13.0-streams" / "snapshot.pickle")).here
    width, rows = 60, 20
    high = heights(here.device, here.window, curve_lines.plot_width(width))
    top = max(values.max() for values in high.values()) * 1.02
    lines = here.curve.draw(here.window, -1, width, rows, color=color)[1:-1]
    for column in range(curve_lines.plot_width(width)):
        drawn = 0.0
        for line in lines:
            glyph = line.plain[10 + column]
            styles = " ".join(str(span.style) for span in line.spans if span.start <= 10 + column < span.end)
            if glyph in EIGHTHS and (styles.startswith(HELD) or not color):
                drawn += (EIGHTHS.index(glyph) + 1) / 8
        assert abs(drawn - high["allocated"][column] / top * (rows - 2)) <= (0.13 if color else 1)


def test_steps_and_phases_are_drawn_below_the_curve(trace):
    here = Walk(trace).here
    below = here.curve.draw(here.window, here.at, 80, 8)[-1].plain
    assert below.startswith("     all └")
    assert "|3" in below
    assert {"F", "B", "O"} <= set(below)


def test_lists_are_made_again_only_for_another_moment_or_order(trace):
    walk = Walk(trace)
    lists = Lists(walk)
    first = lists.lines(TENSORS)
    assert lists.lines(TENSORS) is first
    walk.go(5)
    assert lists.lines(TENSORS) is not first
    first = lists.lines(TENSORS)
    assert lists.next_order(TENSORS)
    assert lists.lines(TENSORS) is not first
    assert not lists.next_order(FINDINGS)
    assert not lists.turn_order(ABOUT)


def test_a_title_sorts_by_its_column_and_a_second_time_backwards(trace):
    walk = Walk(trace)
    lists = Lists(walk)
    titles = lists.lines(TENSORS).head(80).plain
    assert lists.order_by(TENSORS, titles.index("age"), 80)
    assert "age▼" in lists.lines(TENSORS).head(80).plain
    assert lists.order_by(TENSORS, titles.index("age"), 80)
    assert "age▲" in lists.lines(TENSORS).head(80).plain
    assert not lists.order_by(TENSORS, 500, 80)
    assert not lists.order_by(CALLS, 1, 80)


def test_findings_show_the_commands_to_copy(trace, report):
    lists = Lists(Walk(trace))
    assert "diagnosing" in lists.lines(FINDINGS).empty
    lists.take(None, "diagnosis failed: why")
    assert "why" in lists.lines(FINDINGS).empty
    lists.take(report, "")
    row = next(row for row in range(len(lists.lines(FINDINGS))) if lists.changes(FINDINGS, row))
    change = lists.changes(FINDINGS, row)[0]
    assert f"[1] {change}" in lists.lines(FINDINGS).detail(row).plain
    assert lists.changes(FINDINGS, 10_000) == lists.changes(TENSORS, 0) == []


def test_a_file_without_addresses_has_no_map(trace):
    device = replace(trace.devices[0], has_addresses=False)
    lists = Lists(Walk(replace(trace, devices=(device,))))
    assert len(lists.lines(MAP)) == 0
    assert "No map" in lists.lines(MAP).empty
    assert not lists.summary(MAP)


# ---------------------------------------------------------------------------------------------------------------- walks


def test_a_walk_begins_at_the_given_event_and_device(trace):
    assert Walk(trace).at == peak_event(trace.devices[0])
    assert Walk(trace, at=-1).at == -1
    assert Walk(trace, at=77).at == 77
    for wrong in (-2, 10**9):
        with pytest.raises(MemdiagError, match="does not contain event"):
            Walk(trace, at=wrong)
    with pytest.raises(MemdiagError, match="no out-of-memory"):
        Walk(trace, at="oom")
    with pytest.raises(MemdiagError, match="device 7"):
        Walk(trace, device=7)
    with pytest.raises(MemdiagError, match="no device"):
        Walk(replace(trace, devices=()))


def test_moving_by_columns_reaches_the_whole_trace(trace):
    walk = Walk(trace, at=-1)
    walk.zoom(0.2)
    seen = [walk.at]
    for _ in range(2000):
        walk.by_columns(1, 70)
        if walk.at == seen[-1]:
            break
        seen.append(walk.at)
        assert walk.here.window.first <= max(walk.at, 0) < walk.here.window.last
    assert walk.at == trace.num_events - 1
    assert seen == sorted(set(seen))
    for _ in range(2000):
        before = walk.at
        walk.by_columns(-1, 70)
        if walk.at == before:
            break
    assert walk.at == -1


def test_typed_texts_select_events(trace):
    walk = Walk(trace)
    for text, at in (
        ("1,204", 1204),
        ("0", 0),
        ("-1", -1),
        ("start", 0),
        ("99999999", trace.num_events - 1),
    ):
        assert walk.to_text(text) == ""
        assert walk.at == at
    assert (walk.to_text("end"), walk.at) == ("end", trace.num_events - 1)
    assert (walk.to_text("allocated"), walk.at) == ("allocated peak", trace.devices[0].peak("allocated"))
    walk.to_text("50%")
    assert abs(walk.at - trace.num_events / 2) <= 1
    walk.to_text("step 3")
    assert trace.devices[0].events.step[walk.at] == 3
    assert trace.devices[0].events.step[walk.at - 1] != 3
    assert "no event of step 99" in walk.to_text("step 99")
    for wrong in ("rubbish", "--3", "1" * 40, "\x1b"):
        before = walk.at
        assert "no such event" in walk.to_text(wrong)
        assert walk.at == before
    assert walk.to_text("peak")
    assert walk.at == walk.here.places.peak


def test_jumps_name_their_destination(trace):
    walk = Walk(trace, at=-1)
    assert walk.to_next("steps") == "training step 1 of 6"
    assert walk.to_next("steps") == "training step 2 of 6"
    assert walk.to_next("steps", back=True) == "training step 1 of 6"
    assert "no training step begins before" in walk.to_next("steps", back=True)
    assert walk.to_next("ooms") == "no out-of-memory event in this trace"
    walk.go(-1)
    device = walk.here.device
    # In this trace, the peak is the allocated peak.
    assert [(walk.to_peak(), walk.at) for _ in range(3)] == [
        ("peak", 7041),
        ("reserved peak", reserved_peak(device)),
        ("peak", 7041),
    ]
    assert peak_event(device) == device.peak("allocated")


def test_each_device_keeps_its_event():
    walk = Walk(memdiag.load(ROOT / "tests" / "goldens" / "cuda-2.13.0-two-devices" / "snapshot.pickle"))
    first = walk.here.device.device
    assert first == 1, "the one that held most"
    walk.go(3)
    assert "device" in walk.next_device()
    assert walk.here.device.device != first
    for _ in range(walk.num_devices - 1):
        walk.next_device()
    assert walk.at == 3


# ----------------------------------------------------------------------------------------------------------------- keys


@pytest.mark.parametrize("width", [10, 40, 79, 80, 200])
def test_the_bottom_line_fits(width):
    line = keys.bottom_line(width)
    assert sum(len(words) + 2 for words, _ in line) - 2 <= width
    if width >= 40:
        assert {"q quit", "? help"} <= {words for words, _ in line}


def test_an_answer_is_typed_and_pasted():
    asked = Question("event")
    assert phrase("screen.hint.event")[:20] in asked.line(80).plain
    for key, character in (
        ("1", "1"),
        ("space", " "),
        ("2", "2"),
        ("left", None),
        ("backspace", "\x7f"),
        ("3", "3"),
        ("ctrl+w", "\x17"),
    ):
        asked.typed(key, character)
    assert asked.text == "1"
    asked.pasted("a\x1b[31m \n" * 500)
    assert asked.line(40).cell_len <= 40
    assert asked.line(40).plain.isprintable()
    assert asked.typed("ctrl+u", "\x15")
    assert asked.text == ""
    assert not asked.typed("backspace", None)


def test_no_key_has_two_actions():
    names = [key for key, _ in keys.all_keys()]
    assert len(names) == len(set(names))
    assert all(words in keys.help_text().plain for words in ("out-of-memory", "invert", "Ctrl+Z"))
