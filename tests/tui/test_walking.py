"""The data shown for a moment agrees with the trace: every live byte is counted exactly once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import memdiag
from memdiag.trace.schema import CATEGORIES
from memdiag.tui.models.at_cursor import Places, beyond, moment, there
from memdiag.tui.models.call_tree import NO_STACK, CallTree
from memdiag.tui.models.live_rows import ORDERS, LiveRows
from memdiag.tui.models.segment_rows import FREE, PENDING, SegmentRows
from memdiag.tui.models.segment_rows import ORDERS as MAP_ORDERS
from memdiag.tui.models.window import LEAST, Window, first_in, heights, highest_in

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def trace():
    return memdiag.load(ROOT / "examples" / "gpt-train.pickle")


@pytest.fixture(scope="module")
def device(trace):
    return trace.devices[0]


def some_events(device):
    chosen = {-1, 0, device.num_events // 3, device.peak("allocated"), device.num_events - 1}
    return sorted(at for at in chosen if at < device.num_events)


# -------------------------------------------------------------------------------------------------------------- windows


@pytest.mark.parametrize(
    ("first", "last", "total"), [(0, 1000, 1000), (17, 900, 5000), (3, 13, 20), (0, 1, 1), (40, 47, 50)]
)
@pytest.mark.parametrize("width", [1, 7, 80, 333])
def test_columns_and_events_agree(first, last, total, width):
    window = Window(first, last, total)
    edges = window.edges(width)
    assert edges[0] == first
    assert edges[-1] == last
    for event in range(first, last):
        column = window.column_of(event, width)
        assert 0 <= column < width
        assert edges[column] <= event < max(edges[column + 1], edges[column] + 1)
    assert [window.event_of(column, width) for column in range(width)] == edges[:-1].tolist()
    assert window.column_of(first - 1, width) == window.column_of(last, width) == -1


def test_zooming_keeps_the_event_in_place_and_has_limits():
    window = Window.whole(10_000)
    close = window
    for _ in range(20):
        close = close.zoom(7_000, 0.5)
        assert close.first <= 7_000 < close.last
        assert abs((7_000 - close.first) / len(close) - 0.7) < 0.1
    assert len(close) == LEAST
    for _ in range(20):
        close = close.zoom(7_000, 2)
    assert close == window
    assert len(Window.whole(0).zoom(0, 0.5)) == 0
    assert Window(0, 100, 1000).showing(500) == Window(450, 550, 1000)
    assert Window(0, 100, 1000).pan(-1) == Window(0, 100, 1000)
    assert Window(0, 100, 1000).pan(99) == Window(900, 1000, 1000)


@pytest.mark.parametrize("width", [3, 70, 400])
@pytest.mark.parametrize("zoomed", [1.0, 0.01, 0.0005])
def test_no_peak_is_lost_between_columns(device, width, zoomed):
    window = Window.whole(device.num_events).zoom(device.peak("reserved"), zoomed)
    for name, high in heights(device, window, width).items():
        assert high.max() == device.usage[name][window.first : window.last].max()
        column = window.column_of(window.first + int(device.usage[name][window.first : window.last].argmax()), width)
        assert high[column] == high.max()
    for column in range(0, width, 7):
        event = highest_in(device, window, column, width)
        assert device.usage.allocated[event] == heights(device, window, width)["allocated"][column]


def test_marks_are_in_the_columns_of_their_events():
    window = Window(100, 200, 1000)
    found = first_in(np.array([5, 100, 101, 150, 199, 200]), window, 10)
    assert found.tolist() == [1, -1, -1, -1, -1, 3, -1, -1, -1, 4]
    assert (first_in(np.array([104]), Window(100, 110, 1000), 30) >= 0).sum() == 1
    assert first_in(np.array([], np.int64), window, 4).tolist() == [-1] * 4


# -------------------------------------------------------------------------------------------------------------- moments


def test_jumps_go_to_the_next_or_the_previous_event():
    events = np.array([3, 9, 20])
    assert [beyond(events, at, back=False) for at in (-1, 3, 8, 20)] == [3, 9, 9, None]
    assert [beyond(events, at, back=True) for at in (3, 4, 20, 99)] == [None, 3, 9, 20]


def test_a_moment_has_its_action_and_usage(trace, device):
    peak = Places(device).peak
    said = moment(trace, device, peak)
    assert said.usage["reserved"] == device.usage.reserved[peak] >= 0.98 * device.usage.reserved.max()
    assert said.action == "alloc"
    assert moment(trace, device, -1).action == ""
    assert said.since_us is not None


def test_live_bytes_agree_in_every_view(golden):
    """Tensors, calls and the map have the same bytes as the curves, in every small snapshot."""
    traces = [memdiag.load(path) for path in sorted(golden.glob("*.p*k*l*"))]
    for trace in traces:
        for device in trace.devices:
            for at in some_events(device):
                if device.has_final_state and not device.num_events:
                    active = device.end["active"]
                else:
                    active = device.usage_at(at)["active"]
                rows = there(device, at)
                live = LiveRows(trace, device).at(at)
                tree = CallTree(trace, device)
                tree.weigh(rows)
                assert live.bytes_of_all == live.bytes == tree.total_bytes
                assert sum(node.bytes for node in tree.shown()) == live.bytes
                if active >= 0:
                    assert live.bytes == active
                if device.has_addresses:
                    check_map(trace, device, at, live)


def check_map(trace, device, at, live):
    rows = SegmentRows(trace, device, at)
    segments = [rows.segment(number) for number in range(len(rows))]
    assert sum(each.size - each.free for each in segments) == live.bytes
    assert sum(rows.free.totals(rows.topology).values()) == sum(each.free for each in segments)
    assert all(sorted(rows.in_order(order).tolist()) == list(range(len(rows))) for order in MAP_ORDERS)
    for segment in segments:
        ranges = [rows.range(segment.number, place) for place in range(rows.num_ranges(segment.number))]
        ends = [each.offset + each.size for each in ranges]
        assert [each.offset for each in ranges] == [0, *ends[:-1]]  # ranges are adjacent from the first byte
        assert ends[-1] == segment.size
        assert sum(each.tensor >= 0 for each in ranges) == segment.num_tensors
        assert max((each.size for each in ranges if each.tensor < 0), default=0) == segment.largest_free
        assert all((each.cause >= 0) == (each.tensor < 0) for each in ranges)
        states, owners = rows.bar(segment.number, 16)
        assert len(states) == len(owners) == 16
        if not segment.free:
            assert FREE not in states
        if segment.free == segment.size:
            assert set(states) == {FREE}
        if not any(each.pending for each in ranges):
            assert PENDING not in states


# -------------------------------------------------------------------------------------------------------------- tensors


def test_every_order_has_every_tensor(trace, device):
    live, peak = LiveRows(trace, device), device.peak("allocated")
    rows = sorted(there(device, peak).tolist())
    for order in ORDERS:
        for backwards in (False, True):
            assert sorted(live.at(peak, "", order, backwards=backwards).rows.tolist()) == rows
    size = device.tensors.block_bytes[live.at(peak).rows]
    assert (np.diff(size) <= 0).all()
    assert (np.diff(device.tensors.alloc_at[live.at(peak, "", "age").rows]) >= 0).all()
    places = [live.place(int(row)) for row in live.at(peak, "", "place").rows]
    assert places == sorted(places, key=lambda text: (text == "", text))


def test_filter_words_select_tensors(trace, device):
    live, peak = LiveRows(trace, device), device.peak("allocated")
    tensors = device.tensors
    found = live.at(peak, "optimizer_state").rows
    assert {CATEGORIES[code] for code in tensors.category[found]} == {"optimizer_state"}
    assert len(found)
    large = live.at(peak, ">=32MiB")
    assert (tensors.block_bytes[large.rows] >= 32 << 20).all()
    assert len(large.rows) + len(live.at(peak, "<32MiB").rows) == large.num_all
    both = live.at(peak, "attention >16MiB").rows
    assert len(both)
    assert all("attention" in str(trace.stacks[tensors.stack[row]]).lower() for row in both)
    assert len(live.at(peak, "ATTENTION >16MiB").rows) == len(both)
    assert len(live.at(peak, "such a word is nowhere").rows) == 0
    assert len(live.at(peak, ">1.2.3.4").rows) == 0  # not a size, so it is searched for as a word


# ---------------------------------------------------------------------------------------------------------------- calls


@pytest.mark.parametrize("frames", ["python", "user", "all"])
@pytest.mark.parametrize("inverted", [False, True])
def test_children_add_up_to_their_call(trace, device, frames, inverted):
    tree = CallTree(trace, device)
    rows = there(device, device.peak("allocated"))
    tree.weigh(rows)
    tree.arrange(inverted=inverted, frames=frames)
    for _ in range(12):  # opens level after level
        for node in tree.shown():
            if node.opens and not node.is_open:
                tree.toggle(node.path)
    nodes = {node.path: node for node in tree.shown()}
    assert sum(node.bytes for path, node in nodes.items() if len(path) == 1) == device.tensors.block_bytes[rows].sum()
    stacks = device.tensors.stack[rows]
    for path, node in nodes.items():
        children = [child for other, child in nodes.items() if other[:-1] == path]
        assert sum(child.bytes for child in children) <= node.bytes
        if path[0] == NO_STACK or len(path) > 3 or frames != "all":
            continue
        order = path if inverted else path[::-1]
        each = [
            trace.stacks.frame_ids[trace.stacks.offsets[s] : trace.stacks.offsets[s + 1]].tolist() if s >= 0 else []
            for s in stacks
        ]
        mine = [
            ids[: len(path)] == list(order) if inverted else ids[len(ids) - len(path) :] == list(order) for ids in each
        ]
        assert node.num_tensors == sum(mine)


def test_opened_calls_stay_open_at_another_moment(trace, device):
    tree = CallTree(trace, device)
    tree.weigh(there(device, device.peak("allocated")))
    tree.open_chain((), share=0.5)
    opened = [node.path for node in tree.shown() if node.is_open]
    assert opened
    tree.weigh(there(device, device.num_events - 1))
    assert [node.path for node in tree.shown() if node.is_open] == opened
    assert tree.close(opened[0])
    assert not tree.close(opened[0])
    tree.close_all()
    assert not [node for node in tree.shown() if node.is_open]
