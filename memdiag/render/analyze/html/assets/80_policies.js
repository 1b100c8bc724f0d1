// The same run under other settings: curves over each other, and what each would cost. All of it was replayed in Python.
(() => {
  "use strict";

  const mine = () => (M.data.simulated || []).filter((one) => one.device === M.device().device);
  const hidden = new Set();

  M.part("policies", ["device"], () => {
    const curves = mine();
    M.$("policies-chart").hidden = !curves.length;
    const changes = M.data.what_if || [];
    M.fill(
      M.$("policies-table"),
      curves.length ? table(curves) : M.el("p", { class: "lead", text: M.t("policies.none") }),
      changes.length ? whatIf(changes) : null,
    );
    if (curves.length) chart(curves);
  });

  const colour = (curve, i) =>
    curve.is_recorded ? M.css("--ink") : curve.policy === "bound" ? M.css("--muted") : M.colours.line[i % M.colours.line.length];
  const label = (curve) =>
    curve.is_recorded ? M.t("policies.recorded") : curve.policy === "bound" ? M.t("policies.bound") : M.plain(curve.label, 200);

  function chart(curves) {
    const peak = curves.reduce((most, curve) => Math.max(most, curve.peak_reserved), 1);
    const interval = M.niceStep(peak);
    const last = curves.reduce((most, { event }) => Math.max(most, event.n ? event.event[event.n - 1] : 0), 1);
    const points = ({ event }) => Array.from({ length: event.n }, (_, i) => [event.event[i], event.reserved[i]]);
    M.chart("policies-chart").setOption(
      {
        animation: false,
        grid: { left: 66, right: 26, top: 14, bottom: 64, outerBoundsMode: "none" },
        legend: { show: false, selected: Object.fromEntries(curves.map((_, i) => [String(i), !hidden.has(i)])) },
        tooltip: M.tooltip({ trigger: "axis", formatter: (found) => tip(curves, found[0].axisValue) }),
        xAxis: {
          type: "value",
          min: 0,
          max: last,
          axisLabel: { color: M.css("--muted"), formatter: (value) => M.count(value), hideOverlap: true },
          splitLine: { show: false },
          axisLine: { lineStyle: { color: M.css("--line-strong") } },
        },
        yAxis: {
          type: "value",
          min: 0,
          max: Math.ceil((peak * 1.05) / interval) * interval,
          interval,
          axisLabel: { color: M.css("--muted"), formatter: (value) => M.short(value) },
          splitLine: { lineStyle: { color: M.css("--line") } },
        },
        dataZoom: [
          { type: "inside", zoomOnMouseWheel: "ctrl", moveOnMouseWheel: false, filterMode: "weakFilter" },
          {
            type: "slider",
            height: 22,
            bottom: 8,
            left: 66,
            right: 26,
            showDetail: false,
            filterMode: "weakFilter",
            borderColor: M.css("--line"),
            fillerColor: M.css("--select"),
            handleStyle: { color: M.css("--accent") },
            dataBackground: { lineStyle: { opacity: 0 }, areaStyle: { opacity: 0 } },
          },
        ],
        series: curves.map((curve, i) => ({
          name: String(i),
          type: "line",
          step: "end",
          symbol: "none",
          sampling: "minmax",
          animation: false,
          data: points(curve),
          z: curve.is_recorded ? 4 : 5,
          emphasis: { disabled: true },
          lineStyle: { color: colour(curve, i), width: curve.is_recorded ? 2.5 : 1.6, type: curve.policy === "bound" ? "dashed" : "solid" },
          itemStyle: { color: colour(curve, i) },
        })),
      },
      true,
    );
  }

  function tip(curves, x) {
    return M.tip(
      M.t("at.event", { event: M.count(x) }),
      curves
        .map((curve, i) => [
          label(curve).slice(0, 60),
          M.bytes(curve.event.reserved[Math.max(0, M.before(curve.event.event, x, curve.event.n))]),
          colour(curve, i),
        ])
        .filter((_, i) => !hidden.has(i)),
    );
  }

  function table(curves) {
    const base = curves.find((curve) => curve.is_recorded) ?? curves[0];
    const row = (curve, i) => {
      const saved = base.peak_reserved - curve.peak_reserved;
      return M.el(
        "tr",
        {},
        M.el(
          "td",
          {},
          M.el(
            "button",
            {
              type: "button",
              class: "key",
              "aria-pressed": String(!hidden.has(i)),
              on: {
                click: () => {
                  if (!hidden.delete(i)) hidden.add(i);
                  chart(curves);
                  M.fill(M.$("policies-table").querySelector(".curves").parentElement, table(curves));
                },
              },
            },
            M.el("i", {
              class: `stroke${curve.policy === "bound" ? " dashed" : ""}`,
              style: { background: curve.policy === "bound" ? null : colour(curve, i) },
            }),
            M.el("span", { class: curve.is_recorded || curve.policy === "bound" ? "" : "code", text: label(curve) }),
          ),
        ),
        M.el("td", { class: "num", text: M.bytes(curve.peak_reserved) }),
        M.el("td", {
          class: `num ${saved > 0 ? "good" : saved < 0 ? "worse" : ""}`,
          text: curve === base ? "–" : `${saved > 0 ? "−" : saved < 0 ? "+" : ""}${M.bytes(Math.abs(saved))}`,
        }),
        M.el("td", { class: `num ${curve.num_ooms ? "worse" : ""}`, text: M.count(curve.num_ooms) }),
      );
    };
    return M.el(
      "div",
      { class: "curves-box" },
      M.el(
        "table",
        { class: "rows curves" },
        M.el(
          "thead",
          {},
          M.el(
            "tr",
            {},
            ["policies.setting", "word.reserved-peak", "policies.difference", "policies.failed"].map((key, i) =>
              M.el("th", { scope: "col", class: i ? "num" : "", text: M.t(key) }),
            ),
          ),
        ),
        M.el("tbody", {}, curves.map(row)),
      ),
    );
  }

  function whatIf(changes) {
    return M.el(
      "div",
      {},
      M.el("h3", { text: M.t("policies.what-if") }),
      M.data.what_if_words ? M.el("p", { class: "lead", text: M.plain(M.data.what_if_words, 600) }) : null,
      M.el(
        "table",
        { class: "rows" },
        M.el(
          "thead",
          {},
          M.el(
            "tr",
            {},
            ["policies.change", "policies.saves", "policies.peak", "policies.fate"].map((key) =>
              M.el("th", { scope: "col", text: M.t(key) }),
            ),
          ),
        ),
        M.el(
          "tbody",
          {},
          changes.map((one) =>
            M.el(
              "tr",
              {},
              M.el("td", { class: "code", text: M.plain(one.change, 600) }),
              ["saves", "peak", "fate"].map((key) => M.el("td", { text: M.plain(one[key] ?? "", 300) })),
            ),
          ),
        ),
      ),
    );
  }
})();
