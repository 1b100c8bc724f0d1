// The live bytes of the instant as areas: what they are, in which part of the model, tensors of like names, each tensor.
(() => {
  "use strict";

  const MOST = 40; // areas on one level of one branch; the smaller ones are one area
  const LABELLED = 0.004; // share of the area that has room for a name
  const DEEP = 3; // levels shown at once; single tensors appear when one goes in

  let path = []; // keys of the areas that were gone into
  let shown = null;

  M.tree = () => ({ path: [...path], value: shown ? shown.bytes : 0 });

  M.part("tree", ["device", "instant", "search"], () => draw());

  const levels = () => (M.data.modules.length ? LEVELS : [LEVELS[0], LEVELS[2]]);

  // Numbers of layers and parameters differ, the tensors are alike: layers.3.mlp.weight and layers.4.mlp.weight are layers.*.mlp.weight.
  const LEVELS = [
    (row) => M.word("categories", M.categoryOf(row)),
    (row) => M.moduleName(row) || M.t("tree.no-module"),
    (row) =>
      M.tensorName(row)
        ? M.tensorName(row).slice(0, 400).replace(/\d+/g, "*")
        : M.place(M.device().tensors.stack?.[row] ?? -1) || M.t("tree.unnamed"),
  ];

  /** Returns [{key, rows, bytes}], most bytes first. */
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

  function draw() {
    // What was gone into may not be there at another instant: then as far as it goes.
    let branch = { key: "", rows: [...M.live().rows], bytes: M.live().active };
    const valid = [];
    for (const key of path) {
      if (valid.length >= levels().length) break;
      const next = grouped(branch.rows, levels()[valid.length]).find((one) => one.key === key);
      if (!next) break;
      branch = next;
      valid.push(key);
    }
    path = valid;
    shown = branch;
    way();
    const chart = M.chart("tree-chart");
    const line = (width, gap) => ({ itemStyle: { borderWidth: width, gapWidth: gap, borderColor: M.css("--card") } });
    chart.setOption(
      {
        animation: false,
        tooltip: M.tooltip({ formatter: (info) => (info.data && info.data.rows ? tip(info.data) : "") }),
        series: [
          {
            type: "treemap",
            data: branches(branch.rows, path.length),
            roam: false,
            nodeClick: false,
            left: 0,
            right: 0,
            top: 0,
            bottom: 0,
            visibleMin: 12,
            childrenVisibleMin: 900,
            animation: false,
            breadcrumb: { show: false },
            label: { show: true, fontSize: 11.5, overflow: "truncate", position: "insideTopLeft" },
            upperLabel: { show: true, height: 19, fontSize: 11.5, overflow: "truncate" },
            levels: [line(0, 3), line(2, 2), line(1, 1), line(1, 1), line(0, 1)],
          },
        ],
      },
      true,
    );
    chart.off("click");
    chart.on("click", ({ data }) => {
      if (!data || !data.rows) return;
      if (data.rows.length === 1) M.pickTensor(data.rows[0]);
      else if (data.path) go(data.path);
    });
  }

  function go(to) {
    path = to;
    draw();
  }

  function way() {
    const link = (text, to) => M.el("button", { type: "button", class: "link", text: M.plain(text, 80), on: { click: () => go(to) } });
    const last = path.length;
    const names = [M.t("tree.all"), ...path];
    M.fill(
      M.$("tree-path"),
      names.map((name, i) => [
        i ? M.el("span", { class: "soft", "aria-hidden": "true", text: "›" }) : null,
        i < last ? link(name, path.slice(0, i)) : M.el("span", { "aria-current": "true", text: M.plain(name, 80) }),
      ]),
      M.el("span", { class: "soft", text: M.bytes(shown.bytes) }),
      ways().length ? M.el("span", { class: "apart" }) : null,
      // The way in for who has no mouse, and for areas too small to hit.
      ways().map((one) =>
        M.el("button", {
          type: "button",
          class: "chip",
          text: `${M.plain(one.key, 40)} ${M.short(one.bytes)}`,
          on: { click: () => go([...path, one.key]) },
        }),
      ),
    );
  }

  const ways = () =>
    path.length < levels().length
      ? grouped(shown.rows, levels()[path.length])
          .filter((one) => one.rows.length > 1)
          .slice(0, 8)
      : [];

  function branches(rows, level, above = path) {
    if (level >= levels().length) return leaves(rows);
    const found = grouped(rows, levels()[level]);
    const out = found.slice(0, MOST).map((one, i) => {
      const deeper = one.rows.length > 1 && above.length + 1 - path.length < DEEP;
      const inside = deeper ? branches(one.rows, level + 1, [...above, one.key]) : undefined;
      const name = one.rows.length > 1 && !inside ? `${one.rows.length} × ${one.key}` : one.key;
      return node(name, one.rows, one.bytes, { children: inside, path: [...above, one.key], paler: inside ? 0 : i % 2 ? 0.22 : 0.1 });
    });
    const rest = found.slice(MOST);
    return rest.length ? [...out, sumOf(rest.flatMap((one) => one.rows))] : out;
  }

  function leaves(rows) {
    const { block } = M.device().tensors;
    const sorted = [...rows].sort((a, b) => block[b] - block[a] || a - b);
    const cut = sorted.length > MOST + 1 ? MOST : sorted.length;
    const out = sorted.slice(0, cut).map((row) => node(M.titleOf(row), [row], block[row], { paler: 0.1 }));
    return cut < sorted.length ? [...out, sumOf(sorted.slice(cut))] : out;
  }

  function sumOf(rows) {
    const { block } = M.device().tensors;
    return node(
      M.t("tree.more", { count: M.count(rows.length) }),
      rows,
      rows.reduce((sum, row) => sum + block[row], 0),
      { paler: 0.3 },
    );
  }

  function node(name, rows, bytes, { children, path: to, paler }) {
    const hits = M.hits();
    const hit = hits && rows.some((row) => hits[row]);
    const kind = M.data.categories[M.categoryOf(rows[0])];
    const plain = M.colours.category[kind] ?? "#888888";
    const dim = hits && !hit;
    const colour = dim ? M.mix(plain, M.css("--card"), 0.75) : M.mix(plain, "#ffffff", paler);
    const ink = dim ? M.css("--ink") : M.inkOn(colour);
    const text = bytes / shown.bytes >= LABELLED ? `${M.plain(name, 90)}  ${M.short(bytes)}` : "";
    return {
      name: M.plain(name, 90),
      value: bytes,
      rows,
      path: to,
      children,
      label: { formatter: () => text, color: ink },
      upperLabel: { formatter: () => text, color: ink },
      itemStyle: { color: colour, borderColor: children ? colour : M.css("--card") },
    };
  }

  function tip({ name, rows, value }) {
    const lines = [
      [M.t("panel.size"), M.bytes(value)],
      [M.t("tree.share"), M.percent(value, M.live().active)],
    ];
    if (rows.length > 1) return M.tip(name, [...lines, [M.t("tree.tensors"), M.count(rows.length)]]);
    lines.push([M.t("panel.lifetime"), M.lifetimeWords(rows[0])]);
    const place = M.device().tensors.stack ? M.place(M.device().tensors.stack[rows[0]]) : "";
    return M.tip(name, place ? [...lines, [M.t("tensors.where"), M.plain(place, 90)]] : lines);
  }
})();
