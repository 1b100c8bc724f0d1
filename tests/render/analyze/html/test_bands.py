"""In tensors over time, bands add up, a click selects the tensor in all charts, and log entries lead to their event."""

from __future__ import annotations

import numpy as np


def largest(trace):
    """Returns size, allocation and free of the tensor with the largest band that ends in the trace."""
    tensors, end = trace.devices[0].tensors, trace.devices[0].num_events
    area = tensors.block_bytes * (tensors.free_completed_at - tensors.alloc_at)
    row = int(np.argmax(np.where((tensors.free_completed_at < end) & (tensors.alloc_at >= 0), area, 0)))
    return int(tensors.block_bytes[row]), int(tensors.alloc_at[row]), int(tensors.free_requested_at[row])


def row_of(shown, size, born):
    return shown.page.evaluate(
        f"(() => {{ const t = M.device().tensors; return t.block.findIndex((b, i) => b === {size} && t.alloc_at[i] === "
        f"{born}); }})()"
    )


def test_the_stack_is_as_high_as_the_active_peak(shown, trace):
    shown.show("bands")
    bands = shown.state()["bands"]
    assert bands["highest"] == int(trace.devices[0].usage.active.max())
    assert bands["count"] == 2000
    drawn = shown.page.evaluate("""(() => {
        const bands = M.device().bands[0];
        const width = 700;
        const tall = new Float64Array(width);
        M.walkStack(bands, M.stackParts(bands, 0, bands.end, width), (column, band, below, size) => { tall[column] += \
size; });
        return Math.max(...tall);
    })()""")
    assert drawn == bands["highest"], "no column loses the peak"


def test_a_click_on_a_band_chooses_the_tensor_everywhere(shown, trace):
    size, born, freed = largest(trace)
    row = row_of(shown, size, born)
    shown.show("bands")
    shown.click_at("#bands-canvas", shown.page.evaluate(f"memdiag.bandPoint({row})"))
    shown.until(f"state().tensor === {row}")
    assert born <= shown.state()["event"] < freed
    assert f"event {freed:,}" in shown.page.locator("#bands-under").inner_text()
    shown.show("map")
    shown.until("state().map.chosen >= 0")
    assert f"({size:,} B)" in shown.page.locator("#map-panel").inner_text()
    shown.show("tensors")
    assert shown.page.locator("#tensors-table tr.chosen").count() == 1


def test_pointing_at_a_band_tells_its_stack_and_who_freed_it(shown, trace):
    size, born, freed = largest(trace)
    row = row_of(shown, size, born)
    shown.show("bands")
    point = shown.page.evaluate(f"memdiag.bandPoint({row})")
    shown.page.locator("#bands-canvas").hover(position=point)
    shown.until(f"state().bands.hover === {row}")
    text = shown.page.locator("#bands-tip").inner_text()
    device = trace.devices[0]
    stack = int(device.events.stack[freed])
    assert "freed by" in text
    assert f"event {freed:,}" in text
    by = trace.stacks.label(stack).rsplit("/", 1)[-1] if stack >= 0 else "unknown"
    assert by in text
    assert shown.page.locator("#bands-tip .stack li").count() > 0
    shown.page.mouse.move(5, 5)
    shown.until("state().bands.hover === -1")


def test_the_largest_step_has_its_own_bands(shown, trace):
    shown.show("bands")
    device = trace.devices[0]
    worst = int(device.events.step[int(device.usage.active.argmax())])
    shown.page.locator("#bands-tools button", has_text=f"largest step ({worst})").click()
    shown.until(f"state().bands.step === {worst}")
    state = shown.state()["bands"]
    assert state["highest"] == int(device.usage.active.max())
    assert set(device.events.step[int(state["range"]["from"]) : int(state["range"]["to"])].tolist()) == {worst}
    shown.page.locator("#bands-canvas").press("+")
    shown.until(f"state().bands.range.to - state().bands.range.from < {state['range']['to'] - state['range']['from']}")
    shown.page.locator("#bands-tools button", has_text="whole run").click()
    shown.until("state().bands.step === -1")


def test_the_log_goes_to_its_event(shown, trace):
    shown.show("bands")
    shown.until("state().log.at >= 0")
    event = int(shown.page.locator("#log-rows .log-row.alloc").first.get_attribute("data-event"))
    shown.page.locator(f'#log-rows .log-row[data-event="{event}"]').click()
    shown.until("state().tensor >= 0")
    born = shown.page.evaluate("M.device().tensors.alloc_at[M.chosen.tensor]")
    assert born == event
    assert int(trace.devices[0].events.action[event]) == 0
    made = shown.page.locator("#log-rows .log-row").count()
    assert made < 60, "only what is on the screen is made"


def test_two_thousand_bands_are_drawn_in_time(shown):
    """Two thousand bands are drawn in bounded time; half of them are live in most columns of pixels."""
    shown.show("bands")
    milliseconds = shown.page.evaluate("""(() => {
        const n = 2000;
        const table = (columns) => ({ n: Object.values(columns)[0].length, ...columns });
        const event = Float64Array.from({ length: 2 * n }, (_, i) => i);
        const tensors = { alloc_at: event.slice(0, n), free_completed_at: event.slice(n), block: new \
Float64Array(n).fill(1 << 20) };
        const bands = M.prepareBands(
            { first: 0, end: 2 * n, tensor: table({ row: Int32Array.from({ length: n }, (_, i) => i) }),
              rest: table({ event, bytes: new Float64Array(2 * n) }) }, tensors);
        const canvas = document.createElement("canvas");
        [canvas.width, canvas.height] = [1200, 360];
        const begin = performance.now();
        const parts = M.stackParts(bands, 0, 2 * n, 1200);
        const view = { bands, parts, width: 1200, height: 360, top: n * (1 << 20), colours: () => "#123456" };
        M.paintStack(canvas.getContext("2d"), view, 0, 0);
        return performance.now() - begin;
    })()""")
    print(f"{milliseconds:.0f} ms")
    assert milliseconds < 2000  # tens of milliseconds on an idle machine
