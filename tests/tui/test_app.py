"""The viewer as a user sees it: tests press keys, click, and read the screen.

They need no terminal and do not depend on clocks.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from dataclasses import replace
from functools import cache
from pathlib import Path

from textual import events

import memdiag
from memdiag.errors import MemdiagError
from memdiag.tui.app import Viewer
from memdiag.tui.lists import CALLS, FINDINGS, MAP
from memdiag.tui.pieces import Popup

ROOT = Path(__file__).parents[2]
OOM = ROOT / "tests" / "goldens" / "cuda-2.13.0-oom" / "snapshot.pickle"
EXAMPLE = ROOT / "examples" / "gpt-train.pickle"
SMALL, LARGE = (80, 24), (140, 40)


@cache
def loaded(path):
    return memdiag.load(path)


@cache
def report_of(path):
    return memdiag.analyze(loaded(path), replay=False)


def viewer(path=EXAMPLE, **more):
    return Viewer(path.name, lambda: loaded(path), lambda _: report_of(path), delay=0, **more)


def screen_text(app):
    """Returns all lines of the screen."""
    return [strip.text for strip in app.screen._compositor.render_strips()]


PATIENCE = 300  # seconds: enough for a busy machine; ends tests that would wait forever


async def until(pilot, condition):
    """Waits until pending messages have made a condition true, however slow the machine is."""
    give_up = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < give_up, f"never: {inspect.getsource(condition).strip()}"
        await pilot.pause(0.01)
    await pilot.pause()


def run(app, play, size=SMALL):
    """Runs the app, and calls ``play(pilot)`` as soon as the trace and its report are loaded."""

    async def scene():
        async with app.run_test(size=size) as pilot:
            await asyncio.to_thread(app.work.join)
            await until(pilot, lambda: app.failure is not None or not app.main._busy)
            return await play(pilot)

    return asyncio.run(scene())


def test_the_verdict_card_is_above_the_timeline():
    async def play(pilot):
        card = report_of(EXAMPLE).verdict
        lines = screen_text(pilot.app)
        assert "WARNING  Peak 2.27 GiB allocated in 2.97 GiB reserved" in lines[1]
        await pilot.resize_terminal(*LARGE)
        await pilot.pause()
        assert card.remedy in "\n".join(screen_text(pilot.app)[1:5])

    run(viewer(), play)


def test_everything_is_visible_at_every_size():
    async def play(pilot):
        for size in (SMALL, LARGE, (40, 12), (10, 3), SMALL):
            await pilot.resize_terminal(*size)
            await pilot.pause()
            lines = screen_text(pilot.app)
            assert [len(line) for line in lines] == [size[0]] * size[1]
            text = "\n".join(lines)
            if size[0] >= 40:
                assert "memdiag view" in lines[0]
                assert "event 7,041 of 12,771" in text
                assert "█" in text
                assert "q quit" in lines[-1]
            if size[0] >= 80:
                assert "1 Tensors  2 Findings (" in text
                assert lines[-1].rstrip().endswith(("o OOM", "step"))
                assert "2.27 GiB" in text
            if size == LARGE:
                await pilot.press("2")
                # A finding is shown next to the list.
                assert any("[1]" in line or "live" in line for line in screen_text(pilot.app))
                await pilot.press("1")

    run(viewer(), play)


def test_keys_move_through_events_and_lists():
    async def play(pilot):
        main = pilot.app.main
        await pilot.press("p", "p")  # from the peak to the reserved peak and back
        assert main._walk.at == loaded(EXAMPLE).devices[0].peak("allocated")
        active = loaded(EXAMPLE).devices[0].usage.active[main._walk.at]
        assert main.rows.lines.live.bytes == active
        await pilot.press("comma", "comma", "full_stop")
        assert main._walk.at == loaded(EXAMPLE).devices[0].peak("allocated") - 1
        await pilot.press(
            "plus",
            "plus",
            "minus",
            "l",
            "h",
            "0",
            "right",
            "left",
            "shift+right",
            "greater_than_sign",
            "less_than_sign",
        )
        await pilot.press("left_square_bracket", "left_square_bracket", "right_square_bracket", "o", "O", "r", "R", "d")
        assert "device" in "\n".join(screen_text(pilot.app))
        await pilot.press("tab", "shift+tab", "shift+tab")
        assert "file, settings, limits" in "\n".join(screen_text(pilot.app))
        await pilot.press("down", "pagedown", "end", "home", "up", "enter", "space")
        await pilot.press("1", "down", "down", "pagedown", "pageup", "end", "home", "j", "k")
        assert main.rows.cursor == 0
        await pilot.press("end")
        assert main.rows.cursor == len(main.rows.lines) - 1
        assert main.rows.scroll_offset.y > 0
        await pilot.press("s", "S", "c")
        assert "nothing to copy" in "\n".join(screen_text(pilot.app))

    run(viewer(), play)


def test_a_filter_is_typed_and_cleared():
    async def play(pilot):
        main = pilot.app.main
        await pilot.press("p", "slash", *"work")
        assert all("workspace" in main.rows.lines.line(row, 100).plain for row in range(len(main.rows.lines)))
        await pilot.press("enter")
        assert "match “work”" in "\n".join(screen_text(pilot.app))
        filtered = main.rows.lines.live.bytes
        await pilot.press("3")
        assert main._walk.here.calls.total_bytes == filtered
        await pilot.press("escape", "1")
        assert main.rows.lines.live.bytes > filtered
        await pilot.press("g", *"1204", "enter")
        assert main._walk.at == 1204
        await pilot.press("g", "q", "escape")  # in a question, a letter is text and no key
        assert main._walk.at == 1204
        assert pilot.app.is_running

    run(viewer(), play)


def test_keys_sent_at_once_are_all_handled():
    """Keys sent without waiting, as over a slow connection or when pasted, are all handled."""
    keys = ["g", *"1204", "enter", "slash", *"adam", "backspace", "enter", "3", "i", "4", "g", *"rubbish", "escape"]

    async def play(pilot):
        for key in keys:
            pilot.app.post_message(events.Key(key, key if len(key) == 1 else "/" if key == "slash" else None))
        main = pilot.app.main
        await until(pilot, lambda: main._number == MAP and main._asking is None)
        assert (main._walk.at, main._lists.text) == (1204, "ada")
        assert main._walk.here.calls.inverted
        await pilot.press("slash")
        main.post_message(events.Paste(" >1MiB\n"))
        await until(pilot, lambda: main._lists.text == "ada>1MiB")
        assert "filter: ada>1MiB" in screen_text(pilot.app)[-1]

    run(viewer(), play)


def test_rows_open_their_details_and_branches():
    async def play(pilot):
        app, main = pilot.app, pilot.app.main
        await pilot.press("p", "space")
        assert isinstance(app.screen, Popup)
        assert "allocated at, innermost call first" in "\n".join(screen_text(app))
        await pilot.press("down", "pagedown", "escape")
        await pilot.press(str(CALLS + 1), "e", "e")
        before = len(main.rows.lines)
        await pilot.press("enter")
        assert len(main.rows.lines) != before
        await pilot.press("i", "u", "e", "space", "escape")
        await pilot.press(str(MAP + 1))
        before = len(main.rows.lines)
        await pilot.press("enter")
        assert len(main.rows.lines) > before
        await pilot.press("down", "enter")
        assert isinstance(app.screen, Popup)
        await pilot.press("q")
        assert app.screen is main
        assert app.is_running
        await pilot.press("s", "s", "s", "question_mark")
        assert "one timeline column" in "\n".join(screen_text(app))
        await pilot.press("question_mark", "q")
        assert app._exit

    run(viewer(), play)


def test_keys_change_the_totals_the_colours_and_the_scale_of_segments():
    async def play(pilot):
        def totals():
            return next(line for line in screen_text(pilot.app) if line.rstrip().endswith(" more"))

        assert "optim. state" in totals()
        assert "persistent" not in totals()
        await pilot.press("t")
        assert "fwd to bwd" in totals() or "persistent" in totals()
        await pilot.press("4", "w")
        assert "not to scale" in "\n".join(screen_text(pilot.app))
        await pilot.press("w")
        assert "one character:" in "\n".join(screen_text(pilot.app))
        await pilot.resize_terminal(*LARGE)
        await pilot.pause()
        assert pilot.app.screen.query_one("#status").size.height == 5

    run(viewer(), play)


def test_the_command_of_a_finding_is_copied():
    app = viewer(OOM, at="oom")

    async def play(pilot):
        await pilot.press(str(FINDINGS + 1))
        lists = pilot.app.main._lists
        row = next(row for row in range(len(lists.lines(FINDINGS))) if lists.changes(FINDINGS, row))
        pilot.app.main.rows.move_to(row)
        await pilot.press("enter", "1", "c")
        return lists.changes(FINDINGS, row)[:1]

    assert app.copied == run(app, play, LARGE) != []


def test_the_mouse_does_the_same_as_the_keys():
    async def play(pilot):
        main = pilot.app.main
        await pilot.click("#curve", offset=(30, 3))
        assert main._walk.here.window.column_of(main._walk.at, 70) == 20
        await pilot.click("#tabs", offset=(3, 0))
        await pilot.click("#list", offset=(5, 0))  # the title of a column
        assert main.rows.lines.backwards
        await pilot.click("#list", offset=(5, 3))
        assert main.rows.cursor == 2
        await pilot.click("#list", offset=(5, 3))
        assert isinstance(pilot.app.screen, Popup)
        await pilot.press("escape")
        place = screen_text(pilot.app)[-1].index("? help")
        await pilot.click("#keys", offset=(place, 0))
        await until(pilot, lambda: isinstance(pilot.app.screen, Popup))

    run(viewer(), play)


def test_only_visible_rows_of_a_long_list_are_rendered():
    trace = loaded(EXAMPLE)
    device = trace.devices[0]
    many = device.tensors.take(list(range(len(device.tensors))) * 60)
    big = replace(trace, devices=(replace(device, tensors=many, has_addresses=False),))
    made = []

    async def play(pilot):
        lines = pilot.app.main.rows.lines
        made_line = lines.line
        lines.line = lambda row, width: made.append(row) or made_line(row, width)
        await pilot.press("end", "home", "pagedown")
        return len(lines)

    app = Viewer("many", lambda: big, lambda _: report_of(EXAMPLE), delay=0)
    assert run(app, play) > 20_000
    assert 0 < len(made) < 500


def test_an_unreadable_trace_ends_the_viewer():
    def refuse():
        raise MemdiagError("this is no trace", "take another")

    async def play(_):
        return None

    app = Viewer("none", refuse, lambda _: None, delay=0)
    run(app, play)
    assert isinstance(app.failure, MemdiagError)


def test_a_trace_without_a_diagnosis_is_shown():
    def fail(_):
        raise ValueError("of [bold]some[/] reason")

    async def play(pilot):
        await pilot.press("2")
        return "\n".join(screen_text(pilot.app))

    shown = run(Viewer("x", lambda: loaded(EXAMPLE), fail, delay=0), play)
    assert "diagnosis failed: of [bold]some[/] reason" in shown
    assert "event 7,041" in shown


def test_no_color_disables_colours(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")

    async def play(pilot):
        await pilot.press("down")
        strips = pilot.app.screen._compositor.render_strips()
        return [segment.style for strip in strips for segment in strip]

    app = viewer()
    styles = run(app, play)
    filters = [each for each in app._filters if each.enabled]
    assert any(type(each).__name__ == "NoColor" for each in filters)
    assert any(style is not None and style.reverse for style in styles)
