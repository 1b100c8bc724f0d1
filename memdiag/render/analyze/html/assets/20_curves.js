// What the timeline draws: curves, what they consist of, phases, steps and marks, as series of ECharts on two grids with one axis.
(() => {
  "use strict";

  const CURVES = [
    ["reserved", "--curve-reserved"],
    ["active", "--curve-active"],
    ["allocated", "--curve-allocated"],
    ["requested", "--curve-requested"],
  ];
  const MOST_SPANS = 20_000; // phases at once: of more, the longest ones; narrower ones than a pixel are not drawn
  const NEAR = 1.5; // the capacity of the device is drawn where it is at most so many times the peak

  M.time = { axis: "event" }; // "event" or "time": what the horizontal axis counts
  const xOf = (table, i) => (M.time.axis === "time" ? (table.time_us[i] - origin()) / 1e6 : table.event[i]);
  const origin = () => M.device().curve.time_us[0];

  function xMax() {
    const { curve, num_events } = M.device();
    return M.time.axis === "time" ? Math.max(xOf(curve, curve.n - 1), 1e-6) : Math.max(num_events, curve.event[curve.n - 1]);
  }

  function line(name, colour, table, values, more) {
    // x, y, x, y …: tens of thousands of points as pairs of their own would take most of the memory of the page.
    const last = table.n && M.time.axis === "event" ? 1 : 0; // the last value holds until the end of the trace
    const data = new Float64Array(2 * (table.n + last));
    for (let i = 0; i < table.n; i++) {
      data[2 * i] = xOf(table, i);
      data[2 * i + 1] = values[i] < 0 ? NaN : values[i];
    }
    if (last) data.set([xMax(), data[2 * table.n - 1]], 2 * table.n);
    return {
      id: name,
      name,
      type: "line",
      step: "end",
      symbol: "none",
      data,
      dimensions: ["x", "y"],
      sampling: "minmax",
      animation: false,
      itemStyle: { color: colour },
      lineStyle: { color: colour, width: 1.5 },
      emphasis: { disabled: true },
      ...more,
    };
  }

  function curves() {
    const { curve } = M.device();
    return CURVES.filter(([name]) => curve[name]).map(([name, colour]) => {
      const more = name === "requested" ? { lineStyle: { color: M.css(colour), width: 1.2, type: [3, 3] } } : {};
      if (name === "reserved" || name === "allocated")
        more.areaStyle = { color: M.css(colour), opacity: name === "allocated" ? 0.28 : 0.1 };
      return line(name, M.css(colour), curve, curve[name], { xAxisIndex: 0, yAxisIndex: 0, z: name === "requested" ? 6 : 5, ...more });
    });
  }

  function stacked() {
    const { instants, categories_at: at } = M.device();
    return M.data.categories
      .map((name, code) => [name, at && at[code]])
      .filter(([, values]) => values && values.some((value) => value > 0))
      .map(([name, values]) => {
        const colour = M.colours.category[name] ?? "#888";
        return line(`category ${name}`, colour, instants, values, {
          xAxisIndex: 1,
          yAxisIndex: 1,
          stack: "all",
          sampling: undefined,
          lineStyle: { width: 0 },
          areaStyle: { color: colour, opacity: 0.9 },
        });
      });
  }

  // Phases as bands behind the curves and as a ribbon under them. As a custom series they are clipped and skipped cheaply.
  function bands() {
    const spans = M.device().phase_spans;
    const data = [];
    const at = (event) => (M.time.axis === "time" ? timeOf(event) : event);
    for (let i = 0; i < spans.n; i++) if (spans.phase[i] > 0) data.push([at(spans.start[i]), at(spans.end[i]), spans.phase[i]]);
    const kept = data.length > MOST_SPANS ? data.sort((a, b) => b[1] - b[0] - (a[1] - a[0])).slice(0, MOST_SPANS) : data;
    return {
      id: "phases",
      type: "custom",
      data: kept,
      silent: true,
      xAxisIndex: 0,
      yAxisIndex: 0,
      z: 0,
      animation: false,
      clip: false,
      encode: { x: [0, 1] },
      tooltip: { show: false },
      renderItem: (params, api) => {
        const left = api.coord([api.value(0), 0])[0];
        const width = api.coord([api.value(1), 0])[0] - left;
        const box = params.coordSys;
        const from = Math.max(left, box.x);
        const to = Math.min(left + width, box.x + box.width);
        if (to - from < 0.6) return null;
        const colour = M.colours.phase[M.data.phases[api.value(2)]] ?? "#999";
        return {
          type: "group",
          children: [
            { type: "rect", shape: { x: from, y: box.y, width: to - from, height: box.height }, style: { fill: colour, opacity: 0.1 } },
            { type: "rect", shape: { x: from, y: box.y + box.height + 4, width: to - from, height: 6 }, style: { fill: colour } },
          ],
        };
      },
    };
  }

  function timeOf(event) {
    const { curve } = M.device();
    return xOf(curve, Math.max(0, M.before(curve.event, event, curve.n)));
  }

  function stepLines() {
    const { steps } = M.device();
    const data = [];
    for (let i = 0; i < steps.n; i++) data.push([M.time.axis === "time" ? timeOf(steps.event[i]) : steps.event[i], steps.step[i]]);
    return {
      id: "steps",
      type: "custom",
      data,
      silent: true,
      xAxisIndex: 0,
      yAxisIndex: 0,
      z: 1,
      animation: false,
      encode: { x: [0] },
      tooltip: { show: false },
      renderItem: (params, api) => {
        const [x] = api.coord([api.value(0), 0]);
        const box = params.coordSys;
        if (x < box.x || x > box.x + box.width) return null;
        const next = params.dataIndex + 1 < data.length ? api.coord([data[params.dataIndex + 1][0], 0])[0] : box.x + box.width;
        const label = M.t("at.step", { step: api.value(1) });
        const roomy = next - x > label.length * 7;
        const children =
          next - x > 3
            ? [
                {
                  type: "line",
                  shape: { x1: x, y1: box.y, x2: x, y2: box.y + box.height },
                  style: { stroke: M.css("--line-strong"), lineWidth: 1, lineDash: [2, 3] },
                },
              ]
            : [];
        if (roomy)
          children.push({
            type: "text",
            style: { text: label, x: x + 4, y: box.y + 3, fill: M.css("--muted"), font: "11px system-ui, sans-serif" },
          });
        return { type: "group", children };
      },
    };
  }

  function marks() {
    const device = M.device();
    const { curve, instants } = device;
    const yAt = (event) => {
      const i = Math.max(0, M.before(curve.event, event, curve.n));
      return [M.time.axis === "time" ? xOf(curve, i) : event, (curve.reserved ?? curve.allocated)[i]];
    };
    const mark = (id, symbol, size, colour, data) => ({
      id,
      name: id,
      type: "scatter",
      symbol,
      symbolSize: size,
      data,
      xAxisIndex: 0,
      yAxisIndex: 0,
      z: 10,
      animation: false,
      tooltip: { show: false },
      itemStyle: { color: colour, borderColor: M.css("--card"), borderWidth: 1 },
      emphasis: { disabled: true },
    });
    const out = [
      mark("retries", "triangle", 10, M.css("--retry"), (device.retries || []).map(yAt)),
      mark(
        "ooms",
        "path://M2 0 L5 3 L8 0 L10 2 L7 5 L10 8 L8 10 L5 7 L2 10 L0 8 L3 5 L0 2 Z",
        13,
        M.css("--failure"),
        (device.ooms || []).map((oom) => yAt(oom.event)),
      ),
    ];
    out[1].z = 12; // a failure is never hidden by the mark of the peak
    if (device.peak_instant !== null && device.peak_instant !== undefined) {
      const last = xOf(instants, device.peak_instant) > 0.94 * xMax(); // no room to the right of it
      out.push({
        ...mark("peak", "circle", 9, M.css("--ink"), [yAt(instants.event[device.peak_instant])]),
        label: {
          show: true,
          position: last ? [-32, -15] : [8, -15],
          formatter: () => M.t("timeline.peak"),
          color: M.css("--ink"),
          fontWeight: 600,
          fontSize: 11,
        },
      });
    }
    const capacity = M.time.capacity();
    if (capacity) {
      out.push({
        id: "capacity",
        name: "capacity",
        type: "line",
        data: [],
        xAxisIndex: 0,
        yAxisIndex: 0,
        z: 7,
        markLine: {
          silent: true,
          animation: false,
          symbol: "none",
          data: [{ yAxis: capacity }],
          lineStyle: { color: M.css("--critical"), type: [6, 4], width: 1.2 },
          label: {
            formatter: () => M.t("timeline.capacity", { capacity: M.short(capacity) }),
            position: "insideStartTop",
            color: M.css("--critical"),
            fontSize: 11,
          },
        },
      });
    }
    return out;
  }

  /** Returns the bytes of the device where they are near enough to what was used to be drawn, else 0. */
  M.time.capacity = () => {
    const { capacity_bytes: capacity, curve } = M.device();
    const most = (curve.reserved ?? curve.allocated).reduce((a, b) => Math.max(a, b), 0);
    return capacity && capacity <= NEAR * most ? capacity : 0;
  };

  function axes(max) {
    const shared = {
      axisLine: { lineStyle: { color: M.css("--line-strong") } },
      axisTick: { show: false },
      splitLine: { lineStyle: { color: M.css("--line") } },
    };
    const x = (gridIndex, labels) => ({
      gridIndex,
      type: "value",
      min: 0,
      max: xMax(),
      ...shared,
      splitLine: { show: false },
      axisLabel: {
        show: labels,
        color: M.css("--muted"),
        hideOverlap: true,
        formatter: (value) => (M.time.axis === "time" ? M.us(value * 1e6) : M.count(value)),
      },
      axisPointer: { show: true, type: "line", label: { show: false }, lineStyle: { color: M.css("--muted"), type: "dashed" } },
    });
    const interval = M.niceStep(max);
    const y = (gridIndex) => ({
      gridIndex,
      type: "value",
      min: 0,
      max: Math.ceil((max * 1.08) / interval) * interval,
      interval,
      ...shared,
      axisLabel: { color: M.css("--muted"), formatter: (value) => M.short(value) },
    });
    return { xAxis: [x(0, false), x(1, true)], yAxis: [y(0), { ...y(1), interval: interval * 2 }] };
  }

  /** Returns a step between the lines of an axis of bytes that reads well: 1, 2, 4, 8 … or 5, 10, 20 … of a unit. */
  M.niceStep = (max) => {
    const power = 2 ** (10 * Math.floor(Math.log2(Math.max(max, 1)) / 10));
    const units = Math.max(max, 1) / power / 4;
    const nice = [0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 256].find((step) => step >= units) ?? 256;
    return Math.max(nice * power, 1);
  };

  Object.assign(M.time, { CURVES, xOf, xMax, origin, curves, stacked, bands, stepLines, marks, axes });
})();
