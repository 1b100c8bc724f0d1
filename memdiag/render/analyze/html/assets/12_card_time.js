// The memory of the whole card over time: parts that, with free memory above them, sum to the card at every sample.
(() => {
  "use strict";

  const PARTS = Object.keys(M.colours.card); // from the bottom up
  const bytesOf = (moment, part) => moment[`${part}_bytes`] || 0;

  /** Returns the samples of the card of the chosen device: {at (seconds since the first one), moment}. */
  function samples() {
    const device = (M.data.report.devices || []).find((one) => one.device === M.device().device);
    const moments = (device && device.card_timeline) || [];
    return moments.map((moment) => ({ at: (moment.at_us - moments[0].at_us) / 1e6, moment }));
  }

  M.part("summary", ["device"], () => {
    const points = samples();
    M.$("card-time").hidden = points.length < 2; // the table shows a single sample
    if (points.length < 2) return;
    const parts = PARTS.filter((part) => points.some(({ moment }) => bytesOf(moment, part)));
    const total = points.reduce((most, { moment }) => Math.max(most, moment.total_bytes), 1);
    const fullest = points.reduce((least, point) => (point.moment.free_bytes < least.moment.free_bytes ? point : least));
    M.$("card-time-lead").textContent = M.t("card.lead", {
      total: M.bytes(total),
      free: M.bytes(fullest.moment.free_bytes),
      seconds: fullest.at.toFixed(1),
    });
    draw(points, parts, total, fullest);
    legend(parts, fullest, points);
  });

  function draw(points, parts, total, fullest) {
    const interval = M.niceStep(total);
    const end = Math.max(points[points.length - 1].at * 1.01, 1e-3); // room for the last sample
    const failures = points.filter(({ moment }) => moment.when === "oom");
    const line = (x, colour, type) => ({ xAxis: x, lineStyle: { color: colour, type, width: 1.3 }, label: { show: false } });
    M.chart("card-time-chart").setOption(
      {
        animation: false,
        grid: { left: 66, right: 26, top: 14, bottom: 34, outerBoundsMode: "none" },
        tooltip: M.tooltip({ trigger: "axis", formatter: (found) => tip(points, parts, found[0].axisValue) }),
        xAxis: {
          type: "value",
          min: 0,
          max: end,
          axisLabel: { color: M.css("--muted"), formatter: (value) => `${+value.toFixed(2)} s`, hideOverlap: true, showMaxLabel: false },
          splitLine: { show: false },
          axisLine: { lineStyle: { color: M.css("--line-strong") } },
        },
        yAxis: {
          type: "value",
          min: 0,
          max: Math.ceil(total / interval) * interval,
          interval,
          axisLabel: { color: M.css("--muted"), formatter: (value) => M.short(value) },
          splitLine: { lineStyle: { color: M.css("--line") } },
        },
        series: parts.map((part, i) => ({
          name: part,
          type: "line",
          stack: "card",
          step: "end",
          symbol: "none",
          animation: false,
          data: [...points, { ...points[points.length - 1], at: end }].map(({ at, moment }) => [at, bytesOf(moment, part)]),
          emphasis: { disabled: true },
          lineStyle: { width: 0 },
          itemStyle: { color: M.colours.card[part] },
          areaStyle: { color: M.colours.card[part], opacity: 0.9 },
          markLine: i
            ? undefined
            : {
                silent: true,
                animation: false,
                symbol: "none",
                data: [
                  { yAxis: total, lineStyle: { color: M.css("--ink"), type: "solid", width: 1.2 }, label: { show: false } },
                  line(fullest.at, M.css("--ink"), "dashed"),
                  ...failures.map(({ at }) => line(at, M.css("--failure"), "solid")),
                ],
              },
        })),
      },
      true,
    );
  }

  function tip(points, parts, x) {
    const { at, moment } = points.reduce((last, point) => (point.at <= x ? point : last));
    const lines = [...parts].reverse().map((part) => [M.t(`card.${part}`), M.bytes(bytesOf(moment, part)), M.colours.card[part]]);
    const when = M.t(`card.when.${moment.when}`, { step: moment.step });
    return M.tip(`${at.toFixed(2)} s · ${when}`, [[M.t("card.free"), M.bytes(moment.free_bytes), null], ...lines]);
  }

  function legend(parts, fullest, points) {
    const key = (shape, colour, text) => M.el("span", { class: "key" }, M.el("i", { class: shape, style: { background: colour } }), text);
    M.fill(
      M.$("card-time-legend"),
      [...parts].reverse().map((part) => key("dot", M.colours.card[part], `${M.t(`card.${part}`)}: ${M.bytes(bytesOf(fullest.moment, part))}`)),
      key("stroke dashed", null, M.t("card.fullest", { seconds: fullest.at.toFixed(1) })),
      points.some(({ moment }) => moment.when === "oom") ? key("stroke", M.css("--failure"), M.t("card.when.oom", { step: 0 })) : null,
    );
  }
})();
