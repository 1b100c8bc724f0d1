// Tensors over time: the largest ones as bands, stacked in the order of allocation. A click on a band chooses its tensor on the whole
// page, and the instant nearest to the click at which it is live.
(() => {
  "use strict";

  const { BANDS_HIGH: HIGH, BANDS_LEFT: LEFT, BANDS_RIGHT: RIGHT, STRIP } = M;
  const BELOW = 22; // pixels, for the labels of the axis
  const MANY_STEPS = 12; // with more, the step that needs most is what the page opens with

  let view = null;
  let set = -1; // which selection: an index of device.bands
  let range = null; // the events that are shown
  let colour = "";
  let hover = -1;
  let dragged = null;
  let queued = false;

  const canvas = () => M.$("bands-canvas");
  const sets = () => M.device().bands || [];

  M.bands = () => ({
    shown: Boolean(view),
    step: view ? view.bands.step : null,
    count: view ? view.bands.rows.length : 0,
    range: range && { ...range },
    colour,
    hover: hover >= 0 && view ? view.bands.rows[hover] : -1,
    highest: view ? view.bands.height.reduce((most, bytes) => Math.max(most, bytes), 0) : 0,
    steps: M.device().envelope.n,
  });

  M.part("bands", ["device", "instant", "search", "tensor"], (why) => {
    if (why.has("device")) [set, range, colour] = [-1, null, ""];
    if (why.has("device") || why.has("lang") || why.has("theme") || why.has("first") || why.has("search") || why.has("paper") || !view) return build();
    overlay();
    under();
  });

  function build() {
    const none = !sets().length || !sets()[0].rest.n || M.device().num_events < 2 || !sets()[0].tensor.n;
    M.$("bands-body").hidden = none;
    if (none) {
      view = null;
      M.fill(M.$("bands-tools"));
      M.fill(M.$("bands-legend"), M.el("p", { class: "lead", text: M.t("bands.none") }));
      return M.fill(M.$("bands-under"));
    }
    if (set < 0) set = sets().length > 1 && M.device().envelope.n > MANY_STEPS ? 1 : 0;
    const bands = M.prepareBands(sets()[set], M.device().tensors);
    range ??= { from: Math.max(bands.first, 0), to: bands.end };
    colour ||= M.knownColouring(bands.rows);
    view = { bands, xOf, yOf };
    tools();
    legend();
    paint();
    under();
  }

  // What is drawn below the marks is kept as a picture; marks move without it.
  function paint() {
    const { bands } = view;
    const ratio = Math.min(window.devicePixelRatio || 1, 2);
    const wide = Math.max(canvas().parentElement.clientWidth, 200);
    const steps = M.device().envelope.n;
    const top = steps ? STRIP + 26 : 8;
    const width = Math.max(Math.round((wide - LEFT - RIGHT) * ratio), 20);
    const parts = M.stackParts(bands, range.from, range.to, width);
    const highest = parts.reduce((most, part) => Math.max(most, bands.height[part]), 1);
    Object.assign(view, { wide, ratio, parts, width, height: HIGH * ratio, plotTop: top, top: highest * 1.04, tall: top + HIGH + BELOW });
    canvas().width = Math.round(wide * ratio);
    canvas().height = Math.round(view.tall * ratio);
    Object.assign(canvas().style, { width: `${wide}px`, height: `${view.tall}px` });
    canvas().setAttribute("aria-label", M.t("bands.aria"));
    const ink = canvas().getContext("2d");
    const card = M.css("--card");
    const hits = M.hits();
    const rest = M.mix(M.colours.category.unknown, card, 0.6);
    const table = M.tensorColours(colour);
    view.colours = (band) => {
      if (band < 0) return rest;
      const row = bands.rows[band];
      const plain = table(row);
      return hits && !hits[row] ? M.mix(plain, card, 0.78) : plain;
    };
    ink.setTransform(1, 0, 0, 1, 0, 0);
    ink.clearRect(0, 0, canvas().width, canvas().height);
    M.paintStack(ink, view, Math.round(LEFT * ratio), Math.round(top * ratio));
    ink.setTransform(ratio, 0, 0, ratio, 0, 0);
    M.bandAxes(ink, view, range);
    if (steps) M.stepStrip(ink, view);
    view.picture = document.createElement("canvas");
    view.picture.width = canvas().width;
    view.picture.height = canvas().height;
    view.picture.getContext("2d").drawImage(canvas(), 0, 0);
    marks(ink);
  }

  const xOf = (event) => LEFT + ((event - range.from) / Math.max(range.to - range.from, 1)) * (view.wide - LEFT - RIGHT);
  const yOf = (bytes) => view.plotTop + HIGH * (1 - bytes / view.top);
  const eventAt = (x) => range.from + ((x - LEFT) / Math.max(view.wide - LEFT - RIGHT, 1)) * (range.to - range.from);

  function overlay() {
    if (queued || !view) return;
    queued = true;
    M.soon(() => {
      queued = false;
      if (!view?.picture) return;
      const ink = canvas().getContext("2d");
      ink.setTransform(1, 0, 0, 1, 0, 0);
      ink.clearRect(0, 0, canvas().width, canvas().height);
      ink.drawImage(view.picture, 0, 0);
      ink.setTransform(view.ratio, 0, 0, view.ratio, 0, 0);
      marks(ink);
    });
  }

  function marks(ink) {
    const event = M.event();
    if (event >= range.from && event <= range.to) {
      ink.fillStyle = M.css("--accent");
      ink.fillRect(Math.round(xOf(event)) - 1, view.plotTop - 2, 2, HIGH + 4);
    }
    const chosen = view.bands.rows.indexOf(M.chosen.tensor);
    for (const [band, wide] of [
      [chosen, 2.5],
      [hover, 1.5],
    ]) {
      if (band < 0) continue;
      const points = M.outlineOf(view.bands, view.parts, band);
      if (!points.length) continue;
      const x = (column) => LEFT + column / view.ratio;
      ink.strokeStyle = M.css("--ink");
      ink.lineWidth = wide;
      ink.beginPath();
      for (const [column, upper] of points) ink.lineTo(x(column), yOf(upper));
      ink.lineTo(x(points[points.length - 1][0] + 1), yOf(points[points.length - 1][1]));
      ink.lineTo(x(points[points.length - 1][0] + 1), yOf(points[points.length - 1][2]));
      for (const [column, , lower] of points.reverse()) ink.lineTo(x(column), yOf(lower));
      ink.closePath();
      ink.stroke();
    }
  }

  /** Returns the band at a point of the canvas, -1: none. */
  function bandAt(x, y) {
    const column = Math.floor((x - LEFT) * view.ratio);
    if (column < 0 || column >= view.width || y < view.plotTop) return -1;
    const bytes = (1 - (y - view.plotTop) / HIGH) * view.top;
    let found = -1;
    M.walkStack(view.bands, view.parts.subarray(0, column + 1), (one, band, below, size) => {
      if (one === column && bytes >= below && bytes < below + size) found = band;
    });
    return found;
  }

  /** Returns where on the canvas a tensor's band is: {x, y}, or null. */
  M.bandPoint = (row) => {
    const band = view ? view.bands.rows.indexOf(row) : -1;
    const points = band < 0 ? [] : M.outlineOf(view.bands, view.parts, band);
    if (!points.length) return null;
    const [column, upper, lower] = points[points.length >> 1];
    return { x: LEFT + (column + 0.5) / view.ratio, y: yOf((upper + lower) / 2) };
  };

  function under() {
    const row = M.chosen.tensor;
    const bands = view.bands;
    const others = bands.num_others ? M.t("bands.others", { count: M.count(bands.num_others), shown: M.count(bands.rows.length) }) : "";
    const chosen = row >= 0 ? [M.plain(M.titleOf(row), 140), ...M.lifeOf(row).map(([label, value]) => `${label} ${value}`)].join(" · ") : "";
    M.fill(M.$("bands-under"), M.el("span", { text: chosen || others || M.t("bands.all") }));
  }

  function tools() {
    const own = sets();
    const show = (index) => {
      [set, range] = [index, null];
      build();
    };
    M.fill(
      M.$("bands-tools"),
      own.length > 1
        ? M.choice(
            M.t("bands.stretch"),
            [
              [0, M.t("bands.whole")],
              [1, M.t("bands.worst", { step: M.count(own[1].step) })],
            ],
            set,
            show,
          )
        : null,
      M.colouring(colour, (value) => {
        colour = value;
        build();
      }),
      M.button("+", () => zoom(0.5), { "aria-label": M.t("zoom.in"), title: M.t("zoom.in") }),
      M.button("−", () => zoom(2), { "aria-label": M.t("zoom.out"), title: M.t("zoom.out") }),
      M.button(M.t("zoom.all"), () => zoom(0)),
    );
  }

  function legend() {
    const bytes = new Map();
    const { key, name, colour: of } = M.colourKeys(colour);
    for (const row of view.bands.rows) bytes.set(key(row), (bytes.get(key(row)) ?? 0) + M.device().tensors.block[row]);
    M.fill(
      M.$("bands-legend"),
      [...bytes]
        .sort((a, b) => b[1] - a[1])
        .slice(0, 10)
        .map(([one]) => M.el("span", { class: "key" }, M.el("i", { class: "dot", style: { background: of(one) } }), name(one))),
      M.el(
        "span",
        { class: "key" },
        M.el("i", { class: "dot", style: { background: M.mix(M.colours.category.unknown, M.css("--card"), 0.6) } }),
        M.t("bands.rest"),
      ),
    );
  }

  function zoom(factor, x = -1) {
    if (!view) return;
    const [low, high] = [Math.max(view.bands.first, 0), view.bands.end];
    const middle = x >= 0 ? eventAt(x) : Math.max(range.from, Math.min(range.to, M.event()));
    const share = (middle - range.from) / Math.max(range.to - range.from, 1);
    const length = factor ? Math.min(Math.max((range.to - range.from) * factor, 10), high - low) : high - low;
    shift(middle - share * length, length);
  }

  function shift(from, length) {
    const [low, high] = [Math.max(view.bands.first, 0), view.bands.end];
    const start = Math.max(low, Math.min(high - length, from));
    range = { from: start, to: start + length };
    paint();
  }

  function click(x, y) {
    const { envelope, instants } = M.device();
    if (y < view.plotTop - 4 && envelope.n) {
      const step = Math.floor(((x - LEFT) / (view.wide - LEFT - RIGHT)) * envelope.n);
      if (step >= 0 && step < envelope.n) M.choose(M.nearest(instants.event, envelope.at[step], instants.n));
      return;
    }
    const band = bandAt(x, y);
    if (band >= 0) M.showTensor(view.bands.rows[band], eventAt(x));
    else M.choose(M.nearest(instants.event, eventAt(x), instants.n));
  }

  /** Chooses a tensor, at the instant nearest to an event at which it is live. */
  M.showTensor = (row, event) => {
    const { tensors, instants } = M.device();
    const [born, gone] = [tensors.alloc_at[row], tensors.free_completed_at[row]];
    const first = M.before(instants.event, born - 1, instants.n) + 1;
    const last = M.before(instants.event, gone - 1, instants.n);
    const near = Math.max(first, Math.min(last, M.nearest(instants.event, event, instants.n)));
    if (first <= last) M.choose(near);
    M.pickTensor(row);
  };

  const KEYS = {
    "+": () => zoom(0.5),
    "=": () => zoom(0.5),
    "-": () => zoom(2),
    0: () => zoom(0),
    ArrowUp: () => next(1),
    ArrowDown: () => next(-1),
  };

  // Up and down go through the bands that are stacked at the chosen instant.
  function next(by) {
    const event = M.event();
    const { bands } = view;
    const here = [...bands.rows].filter((_, i) => bands.born[i] <= event && event < bands.gone[i]);
    if (!here.length) return;
    const at = here.indexOf(M.chosen.tensor);
    M.pickTensor(here[at < 0 ? (by > 0 ? 0 : here.length - 1) : Math.max(0, Math.min(here.length - 1, at + by))]);
  }

  M.startBands = () => {
    const place = canvas();
    place.addEventListener("pointerdown", (event) => {
      if (view && event.button === 0) dragged = { x: event.offsetX, from: range.from, length: range.to - range.from, moved: false };
    });
    place.addEventListener("pointermove", (event) => {
      if (!view) return;
      if (dragged && event.buttons & 1) {
        const by = ((event.offsetX - dragged.x) / (view.wide - LEFT - RIGHT)) * dragged.length;
        dragged.moved ||= Math.abs(event.offsetX - dragged.x) > 4;
        if (dragged.moved) shift(dragged.from - by, dragged.length);
        return;
      }
      const band = bandAt(event.offsetX, event.offsetY);
      if (band !== hover) {
        hover = band;
        overlay();
      }
      M.bandTip(band >= 0 ? view.bands.rows[band] : -1, view, event.offsetX, event.offsetY);
    });
    place.addEventListener("pointerleave", () => {
      [hover, dragged] = [-1, null];
      if (view) M.bandTip(-1, view, 0, 0);
      overlay();
    });
    place.addEventListener("click", (event) => {
      const moved = dragged?.moved;
      dragged = null;
      if (view && !moved) click(event.offsetX, event.offsetY);
    });
    place.addEventListener(
      "wheel",
      (event) => {
        if (!event.ctrlKey || !view) return;
        event.preventDefault();
        zoom(event.deltaY < 0 ? 1 / 1.5 : 1.5, event.offsetX);
      },
      { passive: false },
    );
    place.addEventListener("keydown", (event) => {
      if (!view || event.ctrlKey || event.metaKey || event.altKey || !Object.hasOwn(KEYS, event.key)) return;
      event.preventDefault();
      event.stopPropagation();
      KEYS[event.key]();
    });
    new ResizeObserver(() => {
      if (view && place.parentElement.clientWidth !== view.wide) paint();
    }).observe(place.parentElement);
  };
})();
