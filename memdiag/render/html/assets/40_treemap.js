// The live bytes of the instant as areas: what they are, in which part of the model, tensor by tensor.
(() => {
  "use strict";

  const MOST_TENSORS = 40; // of a module; the smaller ones are one area
  const MOST_MODULES = 60; // of a category

  M.part("tree", ["device", "instant", "search"], () => {
    const chart = M.chart("tree-chart");
    chart.setOption(
      {
        animation: false,
        tooltip: M.tooltip({ formatter: (info) => tip(info) }),
        series: [
          {
            type: "treemap", data: categories(), roam: false, nodeClick: "zoomToNode", left: 0, right: 0, top: 0, bottom: 30, visibleMin: 6, animation: false,
            breadcrumb: {
              bottom: 0, height: 22, left: 0, itemStyle: { color: M.css("--chip"), borderColor: M.css("--line"), textStyle: { color: M.css("--ink") } },
              emphasis: { itemStyle: { color: M.css("--select"), textStyle: { color: M.css("--ink") } } },
            },
            name: M.t("tree.all"), label: { show: true, formatter: label, fontSize: 11, overflow: "truncate", color: "#10151b" },
            upperLabel: { show: true, height: 18, formatter: label, color: "#10151b", fontSize: 11, overflow: "truncate" },
            itemStyle: { borderColor: M.css("--card"), borderWidth: 1, gapWidth: 1 },
            levels: [
              { itemStyle: { borderWidth: 0, gapWidth: 3 }, upperLabel: { show: false } },
              { itemStyle: { borderWidth: 2, gapWidth: 2 }, upperLabel: { fontWeight: 600, height: 20 } },
              { itemStyle: { borderWidth: 1, gapWidth: 1, borderColorSaturation: 0.4 } },
              { itemStyle: { borderWidth: 0, gapWidth: 1 } },
            ],
          },
        ],
      },
      true,
    );
    chart.off("click");
    chart.on("click", (info) => {
      if (info.data && info.data.row >= 0) M.pickTensor(info.data.row);
    });
  });

  const label = (info) => `${info.name}  ${M.short(info.value)}`;

  function tip(info) {
    const lines = [[M.t("panel.size"), M.bytes(info.value)]];
    const all = M.live().active;
    lines.push([M.t("tree.share"), M.percent(info.value, all)]);
    if (info.data && info.data.count) lines.push([M.t("tree.tensors"), M.count(info.data.count)]);
    if (info.data && info.data.row >= 0) {
      lines.push([M.t("panel.lifetime"), M.word("lifetimes", M.lifetimeOf(info.data.row))]);
      const place = M.device().tensors.stack ? M.place(M.device().tensors.stack[info.data.row]) : "";
      if (place) lines.push([M.t("tensors.where"), M.plain(place, 90)]);
    }
    return M.tip(M.plain(info.name || M.t("tree.all"), 120), lines);
  }

  /** Returns keys and lists of rows, most bytes first. */
  function grouped(rows, keyOf) {
    const { block } = M.device().tensors;
    const groups = new Map();
    for (const row of rows) {
      const key = keyOf(row);
      const one = groups.get(key) ?? groups.set(key, { key, rows: [], bytes: 0 }).get(key);
      one.rows.push(row);
      one.bytes += block[row];
    }
    return [...groups.values()].sort((a, b) => b.bytes - a.bytes);
  }

  const node = (name, rows, bytes, more) => ({ name: M.plain(name, 90), value: bytes, count: rows.length, row: -1, ...more });

  function categories() {
    return grouped(M.live().rows, M.categoryOf).map(({ key, rows, bytes }) => {
      const colour = M.CATEGORIES[M.data.categories[key]] ?? "#888";
      return node(M.word("categories", key), rows, bytes, { children: modules(rows, colour), itemStyle: { color: colour, borderColor: colour } });
    });
  }

  function modules(rows, colour) {
    const found = grouped(rows, (row) => M.moduleName(row) || M.t("tree.no-module"));
    const out = found.slice(0, MOST_MODULES).map((one) => node(one.key, one.rows, one.bytes, { children: tensors(one.rows, colour), itemStyle: { color: colour, borderColor: colour } }));
    const rest = found.slice(MOST_MODULES).flatMap((one) => one.rows);
    return rest.length ? [...out, sumOf(rest, colour)] : out;
  }

  function tensors(rows, colour) {
    const { block } = M.device().tensors;
    const hits = M.hits();
    const sorted = [...rows].sort((a, b) => block[b] - block[a] || a - b);
    const shown = sorted.length > MOST_TENSORS + 1 ? sorted.slice(0, MOST_TENSORS) : sorted;
    const out = shown.map((row) => {
      const dim = hits && !hits[row];
      return node(M.titleOf(row), [row], block[row], {
        row, itemStyle: { color: colour, opacity: dim ? 0.2 : 0.82, borderColor: hits && hits[row] ? M.css("--ink") : undefined, borderWidth: hits && hits[row] ? 2 : 0 },
      });
    });
    return shown.length < sorted.length ? [...out, sumOf(sorted.slice(shown.length), colour, hits ? 0.2 : 0.45)] : out;
  }

  function sumOf(rows, colour, opacity = 0.45) {
    const { block } = M.device().tensors;
    return node(M.t("tree.more", { count: M.count(rows.length) }), rows, rows.reduce((sum, row) => sum + block[row], 0), { itemStyle: { color: colour, opacity } });
  }
})();
