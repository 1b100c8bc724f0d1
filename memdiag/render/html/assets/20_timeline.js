// Memory over the trace: the curves above, what they consist of below, on one axis. A click or the arrow keys choose the instant that the rest shows.
(() => {
  "use strict";

  const CURVES = [["reserved", "--curve-reserved"], ["active", "--curve-active"], ["allocated", "--curve-allocated"], ["requested", "--curve-requested"]];
  const MOST_SPANS = 3000; // phases drawn at once; narrower ones than a pixel are left out

  let axis = "event";
  const hidden = new Set(["active"]);
  let zoom = { start: 0, end: 100 };

  const xOf = (table, i) => (axis === "time" ? (table.time_us[i] - origin()) / 1e6 : table.event[i]);
  const origin = () => M.device().curve.time_us[0];
  const hasHistory = () => M.device().curve.n > 1;

  M.timeline = () => ({ axis, zoom: { ...zoom }, hidden: [...hidden] });

  function xMax() {
    const { curve, num_events } = M.device();
    return axis === "time" ? Math.max(xOf(curve, curve.n - 1), 1e-6) : Math.max(num_events, curve.event[curve.n - 1]);
  }

  function line(name, colour, table, values, more) {
    // x, y, x, y …: tens of thousands of points as pairs of their own would take most of the memory of the page.
    const last = table.n && axis === "event" ? 1 : 0; // the last value holds until the end of the trace
    const data = new Float64Array(2 * (table.n + last));
    for (let i = 0; i < table.n; i++) {
      data[2 * i] = xOf(table, i);
      data[2 * i + 1] = values[i] < 0 ? NaN : values[i];
    }
    if (last) data.set([xMax(), data[2 * table.n - 1]], 2 * table.n);
    return {
      id: name, name, type: "line", step: "end", symbol: "none", data, dimensions: ["x", "y"], sampling: "minmax", animation: false, itemStyle: { color: colour },
      lineStyle: { color: colour, width: 1.5 }, emphasis: { disabled: true }, ...more,
    };
  }

  function curves() {
    const { curve } = M.device();
    return CURVES.filter(([name]) => curve[name]).map(([name, colour]) => {
      const more = name === "requested" ? { lineStyle: { color: M.css(colour), width: 1.2, type: [3, 3] } } : {};
      if (name === "reserved" || name === "allocated") more.areaStyle = { color: M.css(colour), opacity: name === "allocated" ? 0.28 : 0.1 };
      return line(name, M.css(colour), curve, curve[name], { xAxisIndex: 0, yAxisIndex: 0, z: name === "requested" ? 6 : 5, ...more });
    });
  }

  function stacked() {
    const { instants, categories_at: at } = M.device();
    return M.data.categories
      .map((name, code) => [name, at && at[code]])
      .filter(([, values]) => values && values.some((value) => value > 0))
      .map(([name, values]) => {
        const colour = M.CATEGORIES[name] ?? "#888";
        return line(`category ${name}`, colour, instants, values, {
          xAxisIndex: 1, yAxisIndex: 1, stack: "all", sampling: undefined, lineStyle: { width: 0 }, areaStyle: { color: colour, opacity: 0.9 },
        });
      });
  }

  // Phases as bands behind the curves and as a ribbon under them. As a custom series they are clipped and skipped cheaply.
  function bands() {
    const spans = M.device().phase_spans;
    const data = [];
    const at = (event) => (axis === "time" ? timeOf(event) : event);
    for (let i = 0; i < spans.n; i++) if (spans.phase[i] > 0) data.push([at(spans.start[i]), at(spans.end[i]), spans.phase[i]]);
    const step = Math.ceil(data.length / MOST_SPANS) || 1;
    const kept = step > 1 ? data.filter((_, i) => i % step === 0) : data;
    return {
      id: "phases", type: "custom", data: kept, silent: true, xAxisIndex: 0, yAxisIndex: 0, z: 0, animation: false, clip: false, encode: { x: [0, 1] }, tooltip: { show: false },
      renderItem: (params, api) => {
        const left = api.coord([api.value(0), 0])[0];
        const width = api.coord([api.value(1), 0])[0] - left;
        const box = params.coordSys;
        const from = Math.max(left, box.x);
        const to = Math.min(left + width, box.x + box.width);
        if (to - from < 0.6) return null;
        const colour = M.PHASES[M.data.phases[api.value(2)]] ?? "#999";
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
    for (let i = 0; i < steps.n; i++) data.push([axis === "time" ? timeOf(steps.event[i]) : steps.event[i], steps.step[i]]);
    return {
      id: "steps", type: "custom", data, silent: true, xAxisIndex: 0, yAxisIndex: 0, z: 1, animation: false, encode: { x: [0] }, tooltip: { show: false },
      renderItem: (params, api) => {
        const [x] = api.coord([api.value(0), 0]);
        const box = params.coordSys;
        if (x < box.x || x > box.x + box.width) return null;
        const next = params.dataIndex + 1 < data.length ? api.coord([data[params.dataIndex + 1][0], 0])[0] : box.x + box.width;
        const label = M.t("at.step", { step: api.value(1) });
        const roomy = next - x > label.length * 7;
        const children = next - x > 3 ? [{ type: "line", shape: { x1: x, y1: box.y, x2: x, y2: box.y + box.height }, style: { stroke: M.css("--line-strong"), lineWidth: 1, lineDash: [2, 3] } }] : [];
        if (roomy) children.push({ type: "text", style: { text: label, x: x + 4, y: box.y + 3, fill: M.css("--muted"), font: "11px system-ui, sans-serif" } });
        return { type: "group", children };
      },
    };
  }

  function marks() {
    const device = M.device();
    const { curve, instants } = device;
    const yAt = (event) => {
      const i = Math.max(0, M.before(curve.event, event, curve.n));
      return [axis === "time" ? xOf(curve, i) : event, (curve.reserved ?? curve.allocated)[i]];
    };
    const mark = (id, symbol, size, colour, data) => ({
      id, name: id, type: "scatter", symbol, symbolSize: size, data, xAxisIndex: 0, yAxisIndex: 0, z: 10, animation: false, tooltip: { show: false },
      itemStyle: { color: colour, borderColor: M.css("--card"), borderWidth: 1 }, emphasis: { disabled: true },
    });
    const out = [
      mark("retries", "triangle", 10, "#e69f00", (device.retries || []).map(yAt)),
      mark("ooms", "path://M2 0 L5 3 L8 0 L10 2 L7 5 L10 8 L8 10 L5 7 L2 10 L0 8 L3 5 L0 2 Z", 13, "#c8102e", (device.ooms || []).map((oom) => yAt(oom.event))),
    ];
    out[1].z = 12; // a failure is never hidden by the mark of the peak
    if (device.peak_instant !== null && device.peak_instant !== undefined) {
      out.push({
        ...mark("peak", "circle", 9, M.css("--ink"), [yAt(instants.event[device.peak_instant])]),
        label: { show: true, position: [8, -15], formatter: () => M.t("timeline.peak"), color: M.css("--ink"), fontWeight: 600, fontSize: 11 },
      });
    }
    return out;
  }

  function axes(max) {
    const shared = { axisLine: { lineStyle: { color: M.css("--line-strong") } }, axisTick: { show: false }, splitLine: { lineStyle: { color: M.css("--line") } } };
    const x = (gridIndex, labels) => ({
      gridIndex, type: "value", min: 0, max: xMax(), ...shared, splitLine: { show: false },
      axisLabel: { show: labels, color: M.css("--muted"), hideOverlap: true, formatter: (value) => (axis === "time" ? M.us(value * 1e6) : M.count(value)) },
      axisPointer: { show: true, type: "line", label: { show: false }, lineStyle: { color: M.css("--muted"), type: "dashed" } },
    });
    const interval = M.niceStep(max);
    const y = (gridIndex) => ({
      gridIndex, type: "value", min: 0, max: Math.ceil((max * 1.08) / interval) * interval, interval, ...shared, axisLabel: { color: M.css("--muted"), formatter: (value) => M.short(value) },
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

  M.part("timeline", ["device"], draw);

  function draw(why) {
    const place = M.$("timeline-chart");
    tools();
    if (!hasHistory()) {
      place.parentElement.hidden = true;
      M.$("cursor").hidden = true;
      M.fill(M.$("timeline-legend"), M.el("p", { class: "lead", text: M.t("timeline.none") }));
      return;
    }
    place.parentElement.hidden = false;
    if (why.has("device")) zoom = { start: 0, end: 100 };
    if (!M.device().has_time) axis = "event";
    const chart = M.chart("timeline-chart");
    const { curve } = M.device();
    const max = (curve.reserved ?? curve.allocated).reduce((most, value) => Math.max(most, value), curve.active ? curve.active.reduce((a, b) => Math.max(a, b), 1) : 1);
    const left = 66;
    chart.setOption(
      {
        animation: false, // ECharts 6 narrows a grid for the labels of its axis unless told not to; the two must stay in line.
        grid: [{ left, right: 26, top: 26, height: 250, outerBoundsMode: "none" }, { left, right: 26, top: 300, height: 116, outerBoundsMode: "none" }], ...axes(max),
        axisPointer: { link: [{ xAxisIndex: "all" }] },
        tooltip: M.tooltip({ trigger: "axis", formatter: (points) => tip(points[0].axisValue) }),
        legend: { show: false, selected: Object.fromEntries([...hidden].map((name) => [name, false])) },
        dataZoom: [
          { type: "inside", xAxisIndex: [0, 1], ...zoom, zoomOnMouseWheel: "ctrl", moveOnMouseWheel: false, moveOnMouseMove: true, filterMode: "weakFilter" },
          {
            type: "slider", xAxisIndex: [0, 1], ...zoom, height: 26, bottom: 8, left, right: 26, filterMode: "weakFilter", showDetail: false, brushSelect: true,
            borderColor: M.css("--line"), fillerColor: M.css("--select"), handleStyle: { color: M.css("--accent") }, moveHandleSize: 6,
            dataBackground: { lineStyle: { color: M.css("--muted") }, areaStyle: { color: M.css("--muted"), opacity: 0.15 } },
          },
        ],
        series: [bands(), stepLines(), ...curves(), ...stacked(), ...marks()],
      },
      true,
    );
    chart.off("datazoom");
    chart.on("datazoom", () => {
      const { start, end } = chart.getOption().dataZoom[0];
      zoom = { start, end };
      placeCursor();
    });
    chart.off("finished");
    chart.on("finished", placeCursor);
    chart.getZr().off("click");
    chart.getZr().on("click", (event) => {
      const point = [event.offsetX, event.offsetY];
      if (!chart.containPixel({ gridIndex: 0 }, point) && !chart.containPixel({ gridIndex: 1 }, point)) return;
      M.choose(M.rowAtPixel(event.offsetX));
    });
    legend();
    placeCursor();
  }

  /** Returns the instant at a pixel of the chart; a mark within a few pixels (the peak, a failure) is meant by who clicks on it. */
  M.rowAtPixel = (pixel) => {
    const device = M.device();
    const chart = M.chart("timeline-chart");
    const { instants } = device;
    const special = [device.peak_instant, device.peak_allocated_instant, ...(device.ooms || []).map((oom) => oom.instant)].filter((row) => row !== null && row !== undefined && row >= 0);
    const near = special.find((row) => Math.abs(chart.convertToPixel({ xAxisIndex: 0 }, xOf(instants, row)) - pixel) <= 6);
    if (near !== undefined) return near;
    const x = chart.convertFromPixel({ xAxisIndex: 0 }, pixel);
    return axis === "time" ? M.nearest(instants.time_us, x * 1e6 + origin(), instants.n) : M.nearest(instants.event, x, instants.n);
  };

  /** Returns where an instant is on the chart, in CSS pixels from its corner; null where there is no chart. */
  M.instantPoint = (row) => {
    const device = M.device();
    if (!hasHistory() || !M.drawn().includes("timeline")) return null;
    const y = (device.instants.reserved ?? device.instants.allocated)[row];
    const [left, top] = M.chart("timeline-chart").convertToPixel({ gridIndex: 0 }, [xOf(device.instants, row), Math.max(y, 0)]);
    return { x: left, y: top };
  };

  M.part("timeline", ["instant"], () => {
    follow();
    placeCursor();
  });

  // An instant chosen by keys may be outside of what is zoomed to: the window moves along.
  function follow() {
    if (!hasHistory() || !M.drawn().includes("timeline")) return;
    const at = (100 * xOf(M.device().instants, M.row())) / xMax();
    if (at >= zoom.start && at <= zoom.end) return;
    const width = zoom.end - zoom.start;
    const start = Math.max(0, Math.min(100 - width, at - width / 2));
    M.chart("timeline-chart").dispatchAction({ type: "dataZoom", start, end: start + width });
  }

  function placeCursor() {
    const cursor = M.$("cursor");
    const place = M.$("timeline-chart");
    M.describeSlider(place);
    if (!hasHistory() || !M.drawn().includes("timeline")) return;
    const chart = M.chart("timeline-chart");
    const x = chart.convertToPixel({ xAxisIndex: 0 }, xOf(M.device().instants, M.row()));
    cursor.hidden = !(x >= 65 && x <= chart.getWidth() - 25);
    cursor.style.left = `${x}px`;
  }

  M.describeSlider = (place) => {
    const { instants } = M.device();
    place.setAttribute("aria-label", M.t("timeline.aria"));
    place.setAttribute("aria-valuemin", "0");
    place.setAttribute("aria-valuemax", String(instants.n - 1));
    place.setAttribute("aria-valuenow", String(M.row()));
    place.setAttribute("aria-valuetext", M.instantWords().join(", "));
  };

  function tip(x) {
    const device = M.device();
    const { curve, instants } = device;
    const i = Math.max(0, axis === "time" ? M.before(curve.time_us, x * 1e6 + origin(), curve.n) : M.before(curve.event, x, curve.n));
    const row = axis === "time" ? M.nearest(instants.time_us, x * 1e6 + origin(), instants.n) : M.nearest(instants.event, x, instants.n);
    const lines = CURVES.filter(([name]) => curve[name] && curve[name][i] >= 0).map(([name, colour]) => [M.t(`word.${name}`), M.bytes(curve[name][i]), M.css(colour)]);
    const kinds = M.data.categories
      .map((name, code) => [M.word("categories", code), device.categories_at && device.categories_at[code] ? device.categories_at[code][row] : 0, M.CATEGORIES[name]])
      .filter(([, bytes]) => bytes > 0).sort((a, b) => b[1] - a[1]).slice(0, 5)
      .map(([name, bytes, colour]) => [name, M.bytes(bytes), colour]);
    const when = device.has_time ? ` · ${M.us(curve.time_us[i] - origin())}` : "";
    return M.tip(`${M.t("at.event", { event: M.count(curve.event[i]) })}${when}`, [...lines, ...kinds]);
  }

  function legend() {
    const device = M.device();
    const chart = M.chart("timeline-chart");
    const toggle = (name, label, colour, shape) =>
      M.el(
        "button",
        {
          type: "button", class: "key", "aria-pressed": String(!hidden.has(name)), data: { curve: name },
          on: {
            click: () => {
              if (!hidden.delete(name)) hidden.add(name);
              chart.dispatchAction({ type: hidden.has(name) ? "legendUnSelect" : "legendSelect", name });
              legend();
            },
          },
        },
        M.el("i", { class: shape, style: { background: colour } }), label,
      );
    const still = (label, colour, shape) => M.el("span", { class: "key" }, M.el("i", { class: shape, style: { background: colour } }), label);
    const phases = [...new Set(device.phase_spans.phase || [])].filter((code) => code > 0).sort();
    M.fill(
      M.$("timeline-legend"),
      CURVES.filter(([name]) => device.curve[name]).map(([name, colour]) => toggle(name, M.t(`word.${name}`), M.css(colour), "stroke")),
      M.el("span", { class: "apart" }),
      stacked().map((one) => toggle(one.name, M.word("categories", M.data.categories.indexOf(one.name.slice(9))), one.itemStyle.color, "dot")),
      M.el("span", { class: "apart" }),
      phases.map((code) => still(M.word("phases", code), M.PHASES[M.data.phases[code]] ?? "#999", "band")),
      device.retries && device.retries.length ? still(M.t("timeline.retries", { count: device.retries.length }), "#e69f00", "up") : null,
      device.ooms && device.ooms.length ? still(M.t("timeline.ooms", { count: device.ooms.length }), "#c8102e", "cross") : null,
    );
  }

  /** Zooms the timeline by a factor around the chosen instant; 0 shows all of it. */
  M.zoomTimeline = (factor) => {
    if (!hasHistory()) return;
    const chart = M.chart("timeline-chart");
    const centre = (100 * xOf(M.device().instants, M.row())) / xMax();
    const width = factor ? Math.min(100, Math.max(0.01, (zoom.end - zoom.start) * factor)) : 100;
    const start = Math.max(0, Math.min(100 - width, centre - width / 2));
    chart.dispatchAction({ type: "dataZoom", start, end: start + width });
  };

  function tools() {
    M.fill(
      M.$("timeline-tools"),
      M.device().has_time && hasHistory()
        ? M.choice(M.t("timeline.axis"), [["event", M.t("timeline.by-event")], ["time", M.t("timeline.by-time")]], axis, (chosen) => {
            axis = chosen;
            draw(new Set());
          })
        : null,
      hasHistory() ? M.button("+", () => M.zoomTimeline(0.5), { "aria-label": M.t("zoom.in"), title: M.t("zoom.in") }) : null,
      hasHistory() ? M.button("−", () => M.zoomTimeline(2), { "aria-label": M.t("zoom.out"), title: M.t("zoom.out") }) : null,
      hasHistory() ? M.button(M.t("zoom.all"), () => M.zoomTimeline(0)) : null,
    );
  }
})();
