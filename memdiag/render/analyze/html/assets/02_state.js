// What is chosen (device, instant, tensor, search, language, theme), and the parts of the page that follow it. A part is drawn only when
// it is
// near the screen, or when the page is printed: what nobody looks at costs nothing.
(() => {
  "use strict";

  M.chosen = { device: 0, row: 0, tensor: -1, query: "", theme: "auto" };
  M.device = () => M.data.devices[M.chosen.device];
  M.row = () => M.chosen.row;
  M.event = () => M.device().instants.event[M.chosen.row];

  const parts = [];
  let queued = false;

  /** Makes a part: draw(reasons) is called when one of the reasons it needs has come up and its section is near the screen. */
  M.part = (id, needs, draw) => {
    parts.push({ id, needs: new Set(["first", "lang", "theme", "paper", ...needs]), draw, why: new Set(["first"]), near: false, drawn: false });
  };

  /** Tells all parts that something changed: "device", "instant", "tensor", "search", "lang", "theme". */
  M.tell = (reason) => {
    for (const part of parts) if (part.needs.has(reason)) part.why.add(reason);
    queue();
  };

  function queue() {
    if (queued) return;
    queued = true;
    requestAnimationFrame(() => {
      queued = false;
      flush(false);
    });
  }

  function flush(all) {
    for (const part of parts) {
      if (!part.why.size || !(all || part.near)) continue;
      const why = part.why;
      part.why = new Set();
      part.drawn = true;
      part.draw(why);
    }
  }

  M.drawAll = () => flush(true);

  /**
   * Shows a section. What lies above it is drawn first: else it would grow while one scrolls, and the section would not be where one
   * lands.
   */
  M.goTo = (target) => {
    const element = M.$(target);
    for (const part of parts) {
      const place = M.$(part.id);
      if (
        place === element ||
        place.compareDocumentPosition(element) & (Node.DOCUMENT_POSITION_FOLLOWING | Node.DOCUMENT_POSITION_CONTAINED_BY)
      )
        part.near = true;
    }
    flush(false);
    (M.$(target) ?? element).scrollIntoView({ block: "start" });
  };
  M.drawn = () => parts.filter((part) => part.drawn && !part.why.size).map((part) => part.id);

  M.watch = () => {
    const seen = new IntersectionObserver(
      (entries) => {
        for (const entry of entries) {
          for (const part of parts) if (part.id === entry.target.id) part.near = entry.isIntersecting;
        }
        queue();
      },
      { rootMargin: "300px" },
    );
    for (const id of new Set(parts.map((part) => part.id))) seen.observe(M.$(id));
  };

  /** Chooses an instant (a row of the device's instants); the chosen tensor stays only if it is there then. */
  M.choose = (row) => {
    const device = M.device();
    const to = Math.max(0, Math.min(device.instants.n - 1, row));
    if (to === M.chosen.row) return;
    M.chosen.row = to;
    const { tensors, instants } = device;
    const mine = M.chosen.tensor;
    const at = instants.event[to];
    if (mine >= 0 && !(tensors.alloc_at[mine] <= at && at < tensors.free_completed_at[mine])) M.chosen.tensor = -1;
    M.tell("instant");
  };

  M.pickTensor = (row) => {
    M.chosen.tensor = row;
    M.tell("tensor");
  };

  M.pickDevice = (index) => {
    M.chosen.device = index;
    const device = M.device();
    M.chosen.row = Math.max(0, Math.min(device.instants.n - 1, device.chosen_instant ?? device.peak_instant ?? 0));
    M.chosen.tensor = -1;
    M.tell("device");
  };

  // ECharts: one instance for a place, made anew when the theme changes; sizes follow the place.
  const charts = new Map();
  const resized = new ResizeObserver((entries) => {
    for (const entry of entries) {
      const chart = charts.get(entry.target.id);
      if (chart && entry.contentRect.width > 0) chart.resize();
    }
  });

  /** Returns the ECharts instance of a place. */
  M.chart = (id) => {
    let chart = charts.get(id);
    if (!chart) {
      chart = echarts.init(M.$(id), { textStyle: { fontFamily: getComputedStyle(document.body).fontFamily } }, { renderer: "canvas" });
      charts.set(id, chart);
      resized.observe(M.$(id));
    }
    return chart;
  };

  /** Gives every chart the width of its place, and paints it now: paper does not wait for the next frame. */
  M.settleCharts = () => {
    for (const chart of charts.values()) {
      chart.resize();
      chart.getZr().refreshImmediately();
    }
  };
  M.printing = () => document.documentElement.classList.contains("printing");

  /** Calls draw in the next frame; at once where the page is being printed. */
  M.soon = (draw) => (M.printing() ? draw() : requestAnimationFrame(draw));

  /** Returns the tooltip settings that all charts share; formatters return elements, never text that is read as HTML. */
  M.tooltip = (more) => ({
    confine: true,
    backgroundColor: M.css("--card"),
    borderColor: M.css("--line"),
    textStyle: { color: M.css("--ink"), fontSize: 12.5 },
    extraCssText: "box-shadow:0 4px 16px rgba(0,0,0,.18);max-width:420px;white-space:normal;",
    transitionDuration: 0,
    ...more,
  });

  /** Returns an element with a title and lines of name and value. */
  M.tip = (title, lines) =>
    M.el(
      "div",
      { class: "tip" },
      M.el("b", { text: title }),
      lines.map(([name, value, colour]) =>
        M.el(
          "div",
          { class: "tip-line" },
          colour ? M.el("i", { style: { background: colour } }) : null,
          M.el("span", { text: name }),
          M.el("span", { class: "num", text: value }),
        ),
      ),
    );
})();
