// The flame graph: who asked for the bytes, outermost call on top. A click, or the keys, zoom into a call.
(() => {
  "use strict";

  const HIGH = 21; // pixels of a frame
  const WARM = ["#f2b266", "#f0a35a", "#e9bd74", "#f4c387", "#e8ad6b", "#f3d08f"]; // of the program
  const COOL = ["#a8cfd6", "#b5d6dc", "#9cc7cf", "#bedde2"]; // of libraries; PyTorch itself is grey
  let measure = "bytes-now";
  let tree = null;
  let top = null;
  let boxes = [];
  let focus = -1;
  let whole = false; // with PyTorch's own frames

  M.flame = () => ({
    measure,
    total: tree ? tree.value : 0,
    boxes: boxes.length,
    zoomed: Boolean(top && top.parent),
    top: top ? M.frameText(top) : "",
    focus,
  });

  M.part("flame", ["device", "instant", "search"], (why) => {
    const offered = M.measures();
    if (!offered.includes(measure)) measure = offered[0];
    const follows = measure === "bytes-now" && why.has("instant");
    if (!tree || follows || why.has("first") || why.has("device")) rebuild();
    else show();
  });

  function rebuild() {
    tree = M.flameTree(measure, whole);
    top = tree;
    focus = -1;
    show();
  }

  function show() {
    tools();
    const place = M.$("flame-chart");
    const width = place.clientWidth || 800;
    boxes = M.flameBoxes(top, 1 / width);
    const depth = boxes.reduce((most, box) => Math.max(most, box.depth), 0) + 1;
    place.style.height = `${depth * HIGH + 8}px`;
    place.setAttribute("aria-label", M.t("flame.aria"));
    const chart = M.chart("flame-chart");
    chart.clear(); // what it holds belongs to the boxes of before
    chart.resize();
    chart.setOption(
      {
        animation: false,
        grid: { left: 0, right: 0, top: 2, bottom: 2 },
        xAxis: { type: "value", min: 0, max: 1, show: false },
        yAxis: { type: "value", min: 0, max: depth, inverse: true, show: false },
        tooltip: M.tooltip({ formatter: (info) => tip(boxes[info.dataIndex]) }),
        series: [
          {
            type: "custom",
            animation: false,
            encode: { x: [0, 1], y: [2] },
            data: boxes.map((box) => [box.from, box.to, box.depth]),
            renderItem: (params, api) => paint(params.dataIndex, api),
          },
        ],
      },
      true,
    );
    chart.off("click");
    chart.on("click", (info) => zoomTo(info.dataIndex));
    under();
  }

  function colourOf(node, hits) {
    if (node.frame === null || node.frame < 0) return M.css("--chip");
    if (hits) return hits[node.frame] ? M.colours.line[0] : M.css("--chip");
    const frame = M.data.frames[node.frame];
    if (M.isPyTorch(node.frame)) return M.css("--frame-library");
    let hash = 0;
    for (let i = 0; i < Math.min(frame.length, 400); i++) hash = (hash * 31 + frame.charCodeAt(i)) | 0;
    const colours = M.isLibrary(node.frame) ? COOL : WARM;
    return colours[Math.abs(hash) % colours.length];
  }

  function paint(index, api) {
    const { node } = boxes[index];
    const [x, y] = api.coord([api.value(0), api.value(2)]);
    const [end] = api.coord([api.value(1), api.value(2)]);
    const width = Math.max(end - x - 1, 0.7);
    const hits = M.frameHits();
    const fill = colourOf(node, hits);
    const dark = fill === M.colours.line[0];
    const own = node.frame === null || node.frame < 0 || (hits && !dark) || fill === M.css("--frame-library");
    const children = [
      {
        type: "rect",
        shape: { x, y, width, height: HIGH - 2, r: 2 },
        style: {
          fill,
          opacity: top.parent && boxes[index].depth < top.depth ? 0.55 : 1,
          stroke: index === focus ? M.css("--ink") : undefined,
          lineWidth: index === focus ? 2 : 0,
        },
      },
    ];
    if (width > 34) {
      const text = M.plain(short(M.frameText(node)), 160);
      children.push({
        type: "text",
        silent: true,
        style: {
          text,
          x: x + 5,
          y: y + (HIGH - 2) / 2,
          verticalAlign: "middle",
          width: width - 9,
          overflow: "truncate",
          ellipsis: "…",
          fill: dark ? "#fff" : own ? M.css("--ink") : "#2b1d0a",
          font: "12px system-ui, sans-serif",
        },
      });
    }
    return { type: "group", children };
  }

  // "/a/b/train.py:86 forward" -> "forward  train.py:86": what is called comes first, and the folder is in the tooltip.
  function short(frame) {
    const text = frame.length > 600 ? frame.slice(-600) : frame; // a name may have a megabyte, and patterns take their time
    const match = /^(.*?)([^/\\]+:\d+) (.+)$/s.exec(text);
    return match ? `${match[3]}  ${match[2]}` : text;
  }

  function tip(box) {
    const { write } = M.MEASURES[measure];
    const { node } = box;
    const lines = [
      [M.t("flame.value"), write(node.value)],
      [M.t("flame.share"), M.percent(node.value, tree.value)],
    ];
    if (node.own > 0 && node.children.length) lines.push([M.t("flame.own"), write(node.own)]);
    return M.tip(M.plain(M.frameText(node), 240), lines);
  }

  function under() {
    const { write } = M.MEASURES[measure];
    const node = focus >= 0 && boxes[focus] ? boxes[focus].node : top;
    M.$("flame-under").textContent = tree.value
      ? `${M.plain(M.frameText(node), 300)}: ${write(node.value)} (${M.percent(node.value, tree.value)})`
      : M.t("flame.empty");
  }

  function zoomTo(index) {
    if (!boxes[index]) return;
    top = boxes[index].node;
    focus = boxes.findIndex((box) => box.node === top);
    show();
    focus = boxes.findIndex((box) => box.node === top);
    repaint();
  }

  function zoomOut() {
    top = top.parent ?? tree;
    show();
  }

  function repaint() {
    M.chart("flame-chart").setOption({ series: [{ data: boxes.map((box) => [box.from, box.to, box.depth]) }] });
    under();
  }

  function tools() {
    M.fill(
      M.$("flame-tools"),
      M.choice(
        M.t("flame.measure"),
        M.measures().map((name) => [name, M.t(`flame.${name}`)]),
        measure,
        (chosen) => {
          measure = chosen;
          rebuild();
        },
      ),
      M.button(
        M.t("flame.pytorch"),
        () => {
          whole = !whole;
          rebuild();
        },
        { "aria-pressed": String(whole), class: `tool${whole ? " on" : ""}` },
      ),
      M.button(M.t("flame.out"), zoomOut, { disabled: !top || !top.parent }),
      M.button(
        M.t("zoom.all"),
        () => {
          top = tree;
          focus = -1;
          show();
        },
        { disabled: !top || !top.parent },
      ),
    );
  }

  function move(key) {
    const now = boxes[Math.max(focus, 0)];
    const same = boxes
      .map((box, i) => [box, i])
      .filter(([box]) => box.depth === now.depth)
      .sort((a, b) => a[0].from - b[0].from);
    const at = same.findIndex(([box]) => box === now);
    const to = {
      ArrowLeft: () => same[at - 1]?.[1],
      ArrowRight: () => same[at + 1]?.[1],
      ArrowUp: () => boxes.findIndex((box) => box.depth === now.depth - 1 && box.from <= now.from + 1e-9 && box.to >= now.to - 1e-9),
      ArrowDown: () => boxes.findIndex((box) => box.depth === now.depth + 1 && box.from >= now.from - 1e-9 && box.to <= now.to + 1e-9),
    }[key]();
    if (to === undefined || to < 0) return;
    focus = to;
    repaint();
  }

  M.startFlame = () => {
    M.$("flame-chart").addEventListener("keydown", (event) => {
      if (!tree || event.ctrlKey || event.metaKey || event.altKey) return;
      if (event.key.startsWith("Arrow")) move(event.key);
      else if (event.key === "Enter" || event.key === " ") zoomTo(focus);
      else if (event.key === "Backspace" || event.key === "Escape") zoomOut();
      else return;
      event.preventDefault();
      event.stopPropagation();
    });
    let width = 0;
    new ResizeObserver(([entry]) => {
      if (tree && Math.abs(entry.contentRect.width - width) > 1) show();
      width = entry.contentRect.width;
    }).observe(M.$("flame-chart"));
  };
})();
