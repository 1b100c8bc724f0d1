// The address map: its scrolling, zoom, mouse and keys. The canvas has the size of the screen's part only, and moves along inside a tall
// element.
(() => {
  "use strict";

  const HIGH = 470; // pixels of the map on the page
  let view = null;
  let colour = "";
  let zoom = 1;
  let hover = -1;
  let chosen = -1;
  let paintQueued = false;

  const canvas = () => M.$("map-canvas");
  const scroller = () => M.$("map-scroll");

  M.map = () => ({
    shown: Boolean(view),
    zoom,
    colour,
    perLine: view ? view.perLine : 0,
    request: view ? view.request : null,
    hole: view && view.hole ? view.hole.to - view.hole.from : 0,
    segments: view ? view.layout.segments.length : 0,
    ranges: view ? view.layout.tensor.length : 0,
    blocks: view ? view.layout.tensor.reduce((sum, row) => sum + (row >= 0 ? 1 : 0), 0) : 0,
    lines: view ? view.lines.length : 0,
    labels: view ? view.lines.filter((line) => !line.head && line.end > line.first).map((line) => view.address(view.pieces[line.first])) : [],
    chosen,
    hover,
    sums: view ? view.layout.sums : null,
  });
  /** Returns where on the canvas a range is painted: {x, y} in CSS pixels of its left part, or null where it is scrolled away. */
  M.mapPoint = (range) => {
    for (const line of view ? view.lines : []) {
      for (let p = line.first; p < line.end && !line.head; p++) {
        const piece = view.pieces[p];
        const from = view.layout.start[range];
        if (view.layout.segment[range] === piece.segment && from >= piece.from && from < piece.to) {
          const scale = piece.width / (piece.to - piece.from);
          const wide = (Math.min(from + view.layout.size[range], piece.to) - from) * scale;
          return {
            x: view.left + piece.x + (from - piece.from) * scale + Math.min(wide / 2, 4),
            y: line.y - scroller().scrollTop + M.LINE / 2,
          };
        }
      }
    }
    return null;
  };

  M.part("map", ["device", "instant", "search", "tensor"], (why) => {
    const only = (reason) => [...why].every((one) => one === reason);
    if (view && only("search")) return repaint();
    if (view && only("tensor")) return followTensor();
    build(why.has("device"));
  });

  function build(fresh) {
    if (fresh) [zoom, colour] = [1, ""];
    hover = -1;
    const layout = M.layout();
    // Where most lifetimes are unknown, what a tensor is tells more.
    colour ||= M.knownColouring(M.live().rows, ["lifetimes", "categories"]);
    tools();
    const none = !layout || !layout.segments.length;
    document.querySelector("#map .map-split").hidden = none;
    M.$("map-legend").hidden = none;
    if (none) {
      view = null;
      M.fill(M.$("sums"), M.el("span", { text: M.t(layout ? "map.empty" : "map.no-addresses") }), sums());
      return;
    }
    place(layout);
    legend();
    M.fill(M.$("sums"), sums());
    chosen = rangeOf(M.chosen.tensor);
    repaint();
    M.showPanel(chosen >= 0 ? chosen : -1, layout);
  }

  function place(layout) {
    const wide = scroller().clientWidth - (M.printing() ? 0 : 12);
    const left = wide > 560 ? 104 : 2;
    const width = Math.max(wide - left - 4, 50);
    const request = requestNow();
    const fit = M.fitLine(layout, width, HIGH, request.bytes);
    const laid = M.mapLines(layout, [], width, M.printing() ? fit : fit / zoom, request.bytes); // on paper: all of it
    const height = M.printing() ? Math.min(laid.height, 900) : Math.min(HIGH, Math.max(laid.height, 60));
    scroller().style.height = `${height}px`;
    M.$("map-spacer").style.height = `${laid.height}px`;
    const device = M.device();
    view = {
      layout,
      ...laid,
      order: inOrder(laid.pieces, layout),
      left,
      width: wide,
      height,
      scroll: 0,
      pins: new Set(device.pins || []),
      hits: null,
      hover: -1,
      chosen: -1,
      request,
      hole: request.bytes > 0 ? M.largestHole(layout, request.group) : null,
      label: (head) => head.request ? requestWords() : M.t("map.group", { name: M.groupName(head.group), count: M.count(head.count), bytes: M.bytes(head.bytes) }),
      address: labelOf(layout, laid.perLine),
      colours: M.tensorColours(colour),
    };
  }

  /** Returns the request that the free memory of the instant is seen from: {bytes, group, failed}; bytes 0: none is known. */
  function requestNow() {
    const { instants, ooms } = M.device();
    const row = M.row();
    const failed = (ooms || []).some((oom) => oom.instant === row);
    const bytes = instants.reference_size ? Math.max(instants.reference_size[row], 0) : 0;
    return { bytes, group: instants.reference_group ? instants.reference_group[row] : -1, failed };
  }

  function requestWords() {
    const { request, hole } = view;
    const largest = hole ? hole.to - hole.from : 0;
    const words = M.t(request.failed ? "map.failed-request" : "map.request", { request: M.bytes(request.bytes), largest: M.bytes(largest) });
    return largest < request.bytes ? `${words}, ${M.t("map.missing", { bytes: M.bytes(request.bytes - largest) })}` : words;
  }

  // What stands beside a line: the address where it begins a segment, else how far into its segment it begins. Segments may lie
  // tebibytes apart, so that a distance from the first of them would be the same words on every line.
  function labelOf(layout, perLine) {
    return (piece) =>
      piece.begins ? M.address(piece.from) : `+${M.short(piece.from - layout.segments[piece.segment].start, perLine)}`;
  }

  // Keys go through ranges in the order in which they are seen: pools one after another.
  function inOrder(pieces, layout) {
    const order = [];
    for (const piece of pieces) {
      if (!piece.begins) continue;
      for (let range = layout.segments[piece.segment].first; range < layout.segments[piece.segment].end; range++) order.push(range);
    }
    return Int32Array.from(order);
  }

  /** Returns the words for a pool and stream. */
  M.groupName = (number) => {
    const group = M.device().groups[number];
    if (!group) return M.t("unknown");
    const pool =
      group.pool === "default pool" ? M.t("group.default-pool") : M.t("group.pool", { number: group.pool.replace(/^pool /, "") });
    const stream = group.stream === 0 ? M.t("group.default-stream") : M.t("group.stream", { number: `0x${group.stream.toString(16)}` });
    return M.plain(M.t("group.label", { pool, size: M.t(group.small ? "group.small" : "group.large"), stream }), 120);
  };

  function repaint() {
    if (paintQueued || !view) return;
    paintQueued = true;
    M.soon(() => {
      paintQueued = false;
      if (!view) return;
      Object.assign(view, { scroll: scroller().scrollTop, hits: M.hits(), hover, chosen });
      M.paintMap(canvas(), view);
    });
  }

  function rangeOf(tensor) {
    return tensor < 0 || !M.layout() ? -1 : M.layout().tensor.indexOf(tensor);
  }

  function followTensor() {
    const row = M.chosen.tensor;
    if (chosen >= 0 && view.layout.tensor[chosen] === row) return; // it was chosen here (a free range is no tensor, and stays)
    chosen = rangeOf(row);
    hover = -1;
    M.showPanel(chosen, view.layout);
    if (chosen >= 0) reveal(chosen);
    repaint();
  }

  function reveal(range) {
    const point = M.mapPoint(range);
    if (!point) return;
    const box = scroller();
    if (point.y < M.PITCH || point.y > view.height - M.PITCH) box.scrollTop += point.y - view.height / 2;
  }

  function rangeAtPoint(x, y) {
    const top = y + scroller().scrollTop;
    const line = view.lines.find((one) => !one.head && top >= one.y - 2 && top < one.y + M.PITCH - 2);
    for (let p = line ? line.first : 0; line && p < line.end; p++) {
      const piece = view.pieces[p];
      const inside = x - view.left - piece.x;
      if (inside >= -1 && inside <= piece.width + 1) {
        const address = piece.from + (Math.max(0, Math.min(inside, piece.width)) / piece.width) * (piece.to - piece.from);
        return M.rangeAt(view.layout, piece.segment, Math.min(address, piece.to - 1));
      }
    }
    return -1;
  }

  function pick(range) {
    chosen = range;
    hover = -1;
    const row = range >= 0 ? view.layout.tensor[range] : -1;
    M.$("map-panel").setAttribute("aria-live", "polite");
    M.showPanel(range, view.layout);
    if (range >= 0) reveal(range);
    repaint();
    if (row !== M.chosen.tensor) M.pickTensor(row);
  }
  M.pickRange = (range) => view && pick(range);

  function setZoom(factor, x = -1, y = -1) {
    if (!view) return;
    const box = scroller();
    const anchor = x >= 0 ? rangeAtPoint(x, y) : chosen >= 0 ? chosen : rangeAtPoint(view.left + 2, view.height / 2);
    const most = 2 ** Math.floor(Math.log2(Math.max(1, view.layout.sums.reserved / 65536)));
    zoom = factor ? Math.max(1, Math.min(most, zoom * factor)) : 1;
    place(view.layout);
    box.scrollTop = 0;
    if (anchor >= 0 && zoom > 1) {
      const point = M.mapPoint(anchor);
      if (point) box.scrollTop = point.y - (y >= 0 ? y : view.height / 2);
    }
    tools();
    legend();
    repaint();
  }
  M.zoomMap = setZoom;

  function tools() {
    if (!M.device().has_addresses) return M.fill(M.$("map-tools"));
    M.fill(
      M.$("map-tools"),
      M.colouring(colour, (value) => {
        colour = value;
        view.colours = M.tensorColours(colour);
        tools();
        legend();
        repaint();
      }),
      M.button("+", () => setZoom(2), { "aria-label": M.t("zoom.in"), title: M.t("zoom.in") }),
      M.button("−", () => setZoom(0.5), { "aria-label": M.t("zoom.out"), title: M.t("zoom.out"), disabled: zoom <= 1 }),
      M.button(M.t("zoom.all"), () => setZoom(0), { disabled: zoom <= 1 }),
    );
  }

  function legend() {
    const { key, name, colour: of } = M.colourKeys(colour);
    const bytes = new Map();
    for (const row of M.live().rows) bytes.set(key(row), (bytes.get(key(row)) ?? 0) + M.device().tensors.block[row]);
    const keys = [...bytes].sort((a, b) => b[1] - a[1]);
    const { sums: total } = M.layout();
    M.fill(
      M.$("map-legend"),
      keys.map(([code, sum]) =>
        M.el(
          "span",
          { class: "key" },
          M.el("i", { class: "dot", style: { background: of(code) } }),
          name(code),
          M.el("span", { class: "soft", text: M.bytes(sum) }),
        ),
      ),
      ["stranded", "foreign", "cache"]
        .filter((cause) => total[cause] > 0)
        .map((cause) =>
          M.el(
            "span",
            { class: "key", title: M.t(`why.${cause}`) },
            M.el("i", { class: `hatch ${cause}` }),
            M.t("map.free", { cause: M.t(`word.${cause}`) }),
            M.el("span", { class: "soft", text: M.bytes(total[cause]) }),
          ),
        ),
      M.live().pending.includes(1)
        ? M.el("span", { class: "key", title: M.t("why.pending") }, M.el("i", { class: "dot pending" }), M.t("word.pending"))
        : null,
      view.hole
        ? M.el(
            "span",
            { class: "key", title: M.t("map.hole-why") },
            M.el("i", { class: "hatch hole" }),
            M.t("map.hole"),
            M.el("span", { class: "soft", text: M.bytes(view.hole.to - view.hole.from) }),
          )
        : null,
      M.el("span", { class: "key", id: "map-per-line" }, M.el("i", { class: "line-mark" }), M.t("map.per-line", { bytes: M.short(view.perLine) })),
      (M.device().pins || []).length
        ? M.el("span", { class: "key", title: M.t("map.pin-why") }, M.el("i", { class: "pin", text: "▼" }), M.t("map.pin"))
        : null,
    );
  }

  // The sums that the map must come to. They are compared in the reader's browser, with the numbers that Python counted.
  // Profilers count all bytes of a process, but list only the tensors of their window: there the sums tell how much of it the file explains.
  function sums() {
    const lists = !M.device().has_addresses;
    return M.sums().map(([name, drawn, told]) => {
      if (drawn === told) {
        return M.el("span", { class: "sum good", data: { sum: name } }, `✓ ${M.t(`word.${name}`)} `, M.el("b", { text: M.bytes(drawn) }));
      }
      const text = M.t(lists ? "sums.listed" : "sums.off", { name: M.t(`word.${name}`), drawn: M.bytes(drawn), told: M.bytes(told) });
      return M.el("span", { class: lists ? "sum" : "sum off", data: { sum: name }, text });
    });
  }

  function step(by) {
    const last = view.order.length - 1;
    const at = view.order.indexOf(chosen);
    pick(view.order[at < 0 ? (by > 0 ? 0 : last) : Math.max(0, Math.min(last, at + by))]);
  }

  function jumpLine(by) {
    const point = M.mapPoint(chosen < 0 ? view.order[0] : chosen);
    if (!point) return;
    for (let far = 1; far <= 4; far++) {
      const range = rangeAtPoint(point.x, point.y + by * far * M.PITCH);
      if (range >= 0 && range !== chosen) return pick(range);
    }
  }

  function nextPin(by) {
    const { order, layout } = view;
    const start = Math.max(order.indexOf(chosen), by > 0 ? -1 : 0);
    for (let far = 1; far <= order.length; far++) {
      const range = order[(start + by * far + 2 * order.length) % order.length];
      if (layout.tensor[range] >= 0 && view.pins.has(layout.tensor[range])) return pick(range);
    }
  }

  const KEYS = {
    ArrowRight: () => step(1),
    ArrowLeft: () => step(-1),
    ArrowDown: () => jumpLine(1),
    ArrowUp: () => jumpLine(-1),
    Home: () => pick(view.order[0]),
    End: () => pick(view.order[view.order.length - 1]),
    "+": () => setZoom(2),
    "=": () => setZoom(2),
    "-": () => setZoom(0.5),
    0: () => setZoom(0),
    n: () => nextPin(1),
    N: () => nextPin(-1),
    Escape: () => pick(-1),
  };

  M.startMap = () => {
    scroller().addEventListener("scroll", repaint, { passive: true });
    canvas().addEventListener("mousemove", (event) => {
      if (!view) return;
      const range = rangeAtPoint(event.offsetX, event.offsetY);
      if (range === hover) return;
      hover = range;
      M.$("map-panel").setAttribute("aria-live", "off");
      M.showPanel(hover >= 0 ? hover : chosen, view.layout);
      repaint();
    });
    canvas().addEventListener("mouseleave", () => {
      hover = -1;
      if (view) M.showPanel(chosen, view.layout);
      repaint();
    });
    canvas().addEventListener("click", (event) => view && pick(rangeAtPoint(event.offsetX, event.offsetY)));
    canvas().addEventListener(
      "wheel",
      (event) => {
        if (!event.ctrlKey) return; // plain scrolling stays scrolling
        event.preventDefault();
        setZoom(event.deltaY < 0 ? 2 : 0.5, event.offsetX, event.offsetY);
      },
      { passive: false },
    );
    canvas().addEventListener("keydown", (event) => {
      if (!view || event.ctrlKey || event.metaKey || event.altKey || !Object.hasOwn(KEYS, event.key)) return;
      if (event.key === "Escape" && chosen < 0) return; // nothing to let go of here: it clears the search
      event.preventDefault();
      event.stopPropagation();
      KEYS[event.key]();
    });
    new ResizeObserver(() => {
      if (!view || scroller().clientWidth - 12 === view.width) return;
      place(view.layout);
      repaint();
    }).observe(scroller());
  };
})();
