// The life of a tensor in words: when it was allocated and freed, by whom; for the tooltip of the bands and the line below them.
(() => {
  "use strict";

  const FRAMES = 8; // of a call stack, in the tooltip

  /** Returns what is known of a tensor's life: [[label, value]…]. */
  M.lifeOf = (row) => {
    const { tensors, num_events: end } = M.device();
    const [born, gone] = [tensors.alloc_at[row], (tensors.free_requested_at ?? tensors.free_completed_at)[row]];
    const freedBy = tensors.free_stack ? M.place(tensors.free_stack[row]) : "";
    return [
      [M.t("panel.size"), M.bytes(tensors.block[row])],
      [M.t("panel.category"), M.word("categories", M.categoryOf(row))],
      [M.t("panel.lifetime"), M.lifetimeWords(row)],
      [M.t("bands.born"), born < 0 ? M.t("panel.from-before") : M.t("at.event", { event: M.count(born) })],
      [M.t("panel.freed"), gone >= end ? M.t("panel.never-freed") : M.t("at.event", { event: M.count(gone) })],
      [M.t("panel.freed-by"), gone >= end ? "" : freedBy ? M.plain(freedBy, 90) : M.t("unknown")],
    ].filter(([, value]) => value !== "");
  };

  /** Shows the tooltip of a tensor (-1: none) near a point of the canvas. */
  M.bandTip = (row, view, x, y) => {
    const box = M.$("bands-tip");
    box.hidden = row < 0;
    if (row < 0) return;
    const stack = M.device().tensors.stack ? M.device().tensors.stack[row] : -1;
    const frames = M.frames(stack);
    M.fill(
      box,
      M.tip(M.plain(M.titleOf(row), 200), M.lifeOf(row)),
      M.el(
        "ol",
        { class: "stack" },
        frames
          .slice(0, FRAMES)
          .map((frame, i) =>
            M.el("li", { class: M.isLibrary(M.data.stacks[stack][i]) ? "library" : "", text: M.plain(frame, 160) }),
          ),
      ),
      frames.length > FRAMES ? M.el("div", { class: "soft", text: M.t("bands.more-frames", { count: frames.length - FRAMES }) }) : null,
    );
    const room = view.wide - box.offsetWidth - 8;
    box.style.left = `${Math.max(4, x + 16 > room ? Math.min(x - box.offsetWidth - 16, room) : x + 16)}px`;
    box.style.top = `${Math.max(4, Math.min(y + 12, view.tall - box.offsetHeight))}px`;
  };
})();
