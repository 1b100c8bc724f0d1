// Memory over the trace: the curves above, what they consist of below, on one axis. A click or the arrow keys choose the instant that the
// rest shows.
(() => {
  "use strict";

  const { CURVES, xOf, xMax, origin } = M.time;
  const hidden = new Set(["active"]);
  let zoom = { start: 0, end: 100 };

  const hasHistory = () => M.device().curve.n > 1;

  M.timeline = () => ({ axis: M.time.axis, zoom: { ...zoom }, hidden: [...hidden] });

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
    if (!M.device().has_time) M.time.axis = "event";
    const chart = M.chart("timeline-chart");
    const { curve } = M.device();
    const top = (values) => (values ? values.reduce((most, value) => Math.max(most, value), 1) : 1);
    const max = Math.max(top(curve.reserved), top(curve.allocated), top(curve.active), M.time.capacity() / 1.06);
    const left = 66;
    chart.setOption(
      {
        animation: false,
        // ECharts 6 narrows a grid for the labels of its axis unless told not to; the two must stay in line.
        grid: [
          { left, right: 26, top: 26, height: 250, outerBoundsMode: "none" },
          { left, right: 26, top: 300, height: 116, outerBoundsMode: "none" },
        ],
        ...M.time.axes(max),
        axisPointer: { link: [{ xAxisIndex: "all" }] },
        tooltip: M.tooltip({ trigger: "axis", formatter: (points) => tip(points[0].axisValue) }),
        legend: { show: false, selected: Object.fromEntries([...hidden].map((name) => [name, false])) },
        dataZoom: [
          {
            type: "inside",
            xAxisIndex: [0, 1],
            ...zoom,
            zoomOnMouseWheel: "ctrl",
            moveOnMouseWheel: false,
            moveOnMouseMove: true,
            filterMode: "weakFilter",
          },
          {
            type: "slider",
            xAxisIndex: [0, 1],
            ...zoom,
            height: 26,
            bottom: 8,
            left,
            right: 26,
            filterMode: "weakFilter",
            showDetail: false,
            brushSelect: true,
            borderColor: M.css("--line"),
            fillerColor: M.css("--select"),
            handleStyle: { color: M.css("--accent") },
            moveHandleSize: 6,
            dataBackground: { lineStyle: { color: M.css("--muted") }, areaStyle: { color: M.css("--muted"), opacity: 0.15 } },
          },
        ],
        series: [M.time.bands(), M.time.stepLines(), ...M.time.curves(), ...M.time.stacked(), ...M.time.marks()],
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
    const special = [device.peak_instant, device.peak_allocated_instant, ...(device.ooms || []).map((oom) => oom.instant)].filter(
      (row) => row !== null && row !== undefined && row >= 0,
    );
    const near = special.find((row) => Math.abs(chart.convertToPixel({ xAxisIndex: 0 }, xOf(instants, row)) - pixel) <= 6);
    if (near !== undefined) return near;
    const x = chart.convertFromPixel({ xAxisIndex: 0 }, pixel);
    return M.time.axis === "time" ? M.nearest(instants.time_us, x * 1e6 + origin(), instants.n) : M.nearest(instants.event, x, instants.n);
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
    const i = Math.max(
      0,
      M.time.axis === "time" ? M.before(curve.time_us, x * 1e6 + origin(), curve.n) : M.before(curve.event, x, curve.n),
    );
    const row =
      M.time.axis === "time" ? M.nearest(instants.time_us, x * 1e6 + origin(), instants.n) : M.nearest(instants.event, x, instants.n);
    const lines = CURVES.filter(([name]) => curve[name] && curve[name][i] >= 0).map(([name, colour]) => [
      M.t(`word.${name}`),
      M.bytes(curve[name][i]),
      M.css(colour),
    ]);
    const kinds = M.data.categories
      .map((name, code) => [
        M.word("categories", code),
        device.categories_at && device.categories_at[code] ? device.categories_at[code][row] : 0,
        M.colours.category[name],
      ])
      .filter(([, bytes]) => bytes > 0)
      .sort((a, b) => b[1] - a[1])
      .slice(0, 5)
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
          type: "button",
          class: "key",
          "aria-pressed": String(!hidden.has(name)),
          data: { curve: name },
          on: {
            click: () => {
              if (!hidden.delete(name)) hidden.add(name);
              chart.dispatchAction({ type: hidden.has(name) ? "legendUnSelect" : "legendSelect", name });
              legend();
            },
          },
        },
        M.el("i", { class: shape, style: { background: colour } }),
        label,
      );
    const still = (label, colour, shape) =>
      M.el("span", { class: "key" }, M.el("i", { class: shape, style: { background: colour } }), label);
    const phases = [...new Set(device.phase_spans.phase || [])].filter((code) => code > 0).sort();
    M.fill(
      M.$("timeline-legend"),
      CURVES.filter(([name]) => device.curve[name]).map(([name, colour]) => toggle(name, M.t(`word.${name}`), M.css(colour), "stroke")),
      M.el("span", { class: "apart" }),
      M.time
        .stacked()
        .map((one) => toggle(one.name, M.word("categories", M.data.categories.indexOf(one.name.slice(9))), one.itemStyle.color, "dot")),
      M.el("span", { class: "apart" }),
      phases.map((code) => still(M.word("phases", code), M.colours.phase[M.data.phases[code]] ?? "#999", "band")),
      device.retries && device.retries.length ? still(M.t("timeline.retries", { count: device.retries.length }), M.css("--retry"), "up") : null,
      device.ooms && device.ooms.length ? still(M.t("timeline.ooms", { count: device.ooms.length }), M.css("--failure"), "cross") : null,
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
        ? M.choice(
            M.t("timeline.axis"),
            [
              ["event", M.t("timeline.by-event")],
              ["time", M.t("timeline.by-time")],
            ],
            M.time.axis,
            (chosen) => {
              M.time.axis = chosen;
              draw(new Set());
            },
          )
        : null,
      hasHistory() ? M.button("+", () => M.zoomTimeline(0.5), { "aria-label": M.t("zoom.in"), title: M.t("zoom.in") }) : null,
      hasHistory() ? M.button("−", () => M.zoomTimeline(2), { "aria-label": M.t("zoom.out"), title: M.t("zoom.out") }) : null,
      hasHistory() ? M.button(M.t("zoom.all"), () => M.zoomTimeline(0)) : null,
    );
  }
})();
