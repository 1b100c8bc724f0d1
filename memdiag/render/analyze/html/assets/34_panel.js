// The panel beside the map: all that is known of the block or free range under the mouse, or of the one chosen by the keyboard.
(() => {
  "use strict";

  /** Shows a range of the layout (-1: the instant in short). */
  M.showPanel = (range, layout) => {
    const panel = M.$("map-panel");
    if (range < 0) return M.fill(panel, overview(layout));
    const row = layout.tensor[range];
    M.fill(panel, row >= 0 ? tensor(row, layout.cause[range] === M.PENDING) : gap(range, layout));
  };

  const facts = (pairs) =>
    M.el(
      "dl",
      { class: "facts" },
      pairs
        .filter(([, value]) => value !== null && value !== "")
        .map(([name, value]) => [M.el("dt", { text: name }), M.el("dd", {}, value)]),
    );

  function age(row) {
    const device = M.device();
    const born = device.tensors.alloc_at[row];
    if (born < 0) return M.t("panel.from-before");
    const events = M.t("panel.age-events", { events: M.count(M.event() - born), at: M.count(born) });
    if (!device.has_time) return events;
    const { curve } = device;
    const then = curve.time_us[Math.max(0, M.before(curve.event, born, curve.n))];
    const now = device.instants.time_us[M.row()];
    return now >= then && then >= 0 ? `${events}, ${M.us(now - then)}` : events;
  }

  function dies(row) {
    const device = M.device();
    const gone = device.tensors.free_requested_at ? device.tensors.free_requested_at[row] : device.tensors.free_completed_at[row];
    return gone >= device.num_events ? M.t("panel.never-freed") : M.t("at.event", { event: M.count(gone) });
  }

  function tensor(row, pending) {
    const { tensors } = M.device();
    const asked = tensors.requested ? tensors.requested[row] : -1;
    const block = tensors.block[row];
    const phase = tensors.phase_alloc && tensors.phase_alloc[row] > 0 ? M.word("phases", tensors.phase_alloc[row]) : "";
    const step = tensors.step_alloc && tensors.step_alloc[row] >= 0 ? M.t("at.step", { step: tensors.step_alloc[row] }) : "";
    const group = tensors.group ? tensors.group[row] : -1;
    const lost = asked >= 0 && block > asked ? M.t("panel.rounded", { bytes: M.bytes(block - asked) }) : "";
    const pin = (M.device().pins || []).includes(row);
    return [
      M.el("h3", { text: M.plain(M.titleOf(row), 2000) }),
      pin ? M.el("p", { class: "note", text: M.t("map.pin-why") }) : null,
      pending ? M.el("p", { class: "note", text: M.t("why.pending") }) : null,
      facts([
        [M.t("panel.size"), `${M.bytes(block)} (${M.count(block)} B)`],
        [M.t("panel.requested"), asked >= 0 ? `${M.bytes(asked)}${lost && ` · ${lost}`}` : ""],
        [M.t("panel.category"), M.word("categories", M.categoryOf(row))],
        [M.t("panel.lifetime"), M.lifetimeWords(row)],
        [M.t("panel.module"), M.plain(M.moduleName(row), 600)],
        [M.t("panel.age"), age(row)],
        [M.t("panel.freed"), dies(row)],
        [M.t("panel.freed-by"), tensors.free_stack && tensors.free_stack[row] >= 0 ? M.plain(M.place(tensors.free_stack[row]), 120) : ""],
        [M.t("panel.made-in"), [step, phase].filter(Boolean).join(", ")],
        [M.t("panel.pool"), group >= 0 ? M.groupName(group) : ""],
        [M.t("panel.address"), tensors.addr && M.device().has_addresses ? M.address(tensors.addr[row]) : ""],
      ]),
      M.stackList(tensors.stack ? tensors.stack[row] : -1),
    ];
  }

  /** Returns the list of frames of a stack, innermost first, those of libraries in grey. */
  M.stackList = (stack) => {
    const frames = M.frames(stack);
    if (!frames.length) return M.el("p", { class: "soft", text: M.t("panel.no-stack") });
    const hits = M.frameHits();
    const codes = M.data.stacks[stack];
    return M.el(
      "div",
      {},
      M.el("h4", { text: M.t("panel.stack", { count: frames.length }) }),
      M.el(
        "ol",
        { class: "stack" },
        frames.map((frame, i) =>
          M.el("li", {
            class: [M.isLibrary(codes[i]) ? "library" : "", hits && hits[codes[i]] ? "hit" : ""].join(" ").trim(),
            text: M.plain(frame, 1000),
          }),
        ),
      ),
    );
  };

  function gap(range, layout) {
    const cause = M.data.causes[layout.cause[range]];
    const segment = layout.segments[layout.segment[range]];
    const { instants } = M.device();
    const request = instants.reference_size ? instants.reference_size[M.row()] : -1;
    return [
      M.el("h3", { text: M.t("panel.free-range") }),
      facts([
        [M.t("panel.size"), `${M.bytes(layout.size[range])} (${M.count(layout.size[range])} B)`],
        [M.t("panel.cause"), M.t(`word.${cause}`)],
        [M.t("panel.reference"), request >= 0 ? M.bytes(request) : ""],
        [M.t("panel.pool"), M.groupName(segment.group)],
        [M.t("panel.segment"), `${M.bytes(segment.size)}${segment.expandable ? ` · ${M.t("panel.expandable")}` : ""}`],
        [M.t("panel.address"), M.address(layout.start[range])],
      ]),
      M.el("p", { class: "soft", text: M.t(`why.${cause}`) }),
    ];
  }

  function overview(layout) {
    const device = M.device();
    const { instants } = device;
    const request = instants.reference_size ? instants.reference_size[M.row()] : -1;
    const gaps = layout.tensor.reduce((sum, row) => sum + (row < 0 ? 1 : 0), 0);
    const there = (device.pins || [])
      .map((row) => [row, layout.tensor.indexOf(row)])
      .filter(([, range]) => range >= 0)
      .slice(0, 8);
    return [
      M.el("h3", { text: M.t("panel.overview") }),
      facts([
        [M.t("panel.segments"), M.count(layout.segments.length)],
        [M.t("panel.blocks"), M.count(layout.tensor.length - gaps)],
        [M.t("panel.gaps"), M.count(gaps)],
        [M.t("panel.reference"), request >= 0 ? M.bytes(request) : ""],
      ]),
      M.el("p", { class: "soft", text: M.t("panel.point") }),
      there.length ? M.el("h4", { text: M.t("panel.pins") }) : null,
      there.length
        ? M.el(
            "ul",
            { class: "plain-list" },
            there.map(([row, range]) =>
              M.el(
                "li",
                {},
                M.el("button", {
                  type: "button",
                  class: "link",
                  text: M.plain(M.titleOf(row), 80),
                  on: { click: () => M.pickRange(range) },
                }),
                " ",
                M.el("span", { class: "soft", text: M.bytes(device.tensors.block[row]) }),
              ),
            ),
          )
        : null,
    ];
  }
})();
