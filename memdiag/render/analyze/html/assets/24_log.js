// The log beside the bands: what the allocator did, event by event. Only the rows on the screen are made; the row of the chosen instant
// stays in sight.
(() => {
  "use strict";

  const ROW = 24; // pixels
  const SIGNS = { alloc: "+", free_requested: "−", free_completed: "·", segment_alloc: "▲", segment_map: "▲", segment_free: "▽", segment_unmap: "▽", oom: "✖" };
  let rows = null; // indices of the log that are listed
  let kept = "";

  const list = () => M.$("log-list");
  const log = () => M.device().log;

  M.log = () => ({ listed: rows ? rows.length : 0, all: log().n, first: rows && rows.length ? log().event[rows[0]] : -1, at: current() });

  M.part("bands", ["device", "instant", "search", "tensor"], (why) => {
    const none = !log().n;
    M.$("log").hidden = none;
    if (none) return;
    const key = `${M.chosen.device}:${M.chosen.query}`;
    if (kept !== key) {
      const hits = M.hits();
      rows = Int32Array.from({ length: log().n }, (_, i) => i);
      if (hits) rows = rows.filter((i) => log().tensor[i] >= 0 && hits[log().tensor[i]]);
      kept = key;
    }
    const all = log().n >= M.device().num_events;
    M.$("log-lead").textContent = M.t(all ? "log.all" : "log.largest", { count: M.count(log().n), of: M.count(M.device().num_events) });
    M.$("log-spacer").style.height = `${rows.length * ROW}px`;
    if (why.has("instant") || why.has("device") || why.has("search") || why.has("first")) reveal();
    draw();
  });

  // The listed row of the last event up to the chosen instant.
  function current() {
    if (!rows) return -1;
    let [low, high] = [0, rows.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (log().event[rows[middle]] <= M.event()) low = middle + 1;
      else high = middle;
    }
    return low - 1;
  }

  function reveal() {
    const at = Math.max(current(), 0) * ROW;
    const box = list();
    if (at < box.scrollTop || at > box.scrollTop + box.clientHeight - 2 * ROW) box.scrollTop = Math.max(0, at - box.clientHeight / 2);
  }

  function draw() {
    const box = list();
    const first = Math.max(0, Math.floor(box.scrollTop / ROW) - 4);
    const end = Math.min(rows.length, first + Math.ceil(Math.max(box.clientHeight, 200) / ROW) + 8);
    const now = current();
    const out = [];
    for (let place = first; place < end; place++) out.push(line(place, place === now));
    M.fill(M.$("log-rows"), out);
    M.$("log-rows").style.top = `${first * ROW}px`;
  }

  function line(place, isNow) {
    const i = rows[place];
    const tensor = log().tensor[i];
    const action = M.data.actions[log().action[i]];
    const where = tensor >= 0 ? M.titleOf(tensor) : M.place(log().stack ? log().stack[i] : -1);
    const by = action === "free_requested" && log().stack ? M.place(log().stack[i]) : "";
    const words = M.t(`action.${action}`);
    return M.el(
      "button",
      {
        type: "button",
        class: `log-row ${action}${isNow ? " now" : ""}${tensor >= 0 && tensor === M.chosen.tensor ? " chosen" : ""}`,
        title: `${words}: ${M.plain(where, 200)}${by ? ` · ${M.t("log.freed-by", { place: M.plain(by, 90) })}` : ""}`,
        "aria-label": `${M.t("at.event", { event: M.count(log().event[i]) })}, ${words}, ${M.bytes(log().size[i])}`,
        data: { event: String(log().event[i]) },
        on: { click: () => go(i) },
      },
      M.el("span", { class: "num", text: M.count(log().event[i]) }),
      M.el("span", { class: "sign", "aria-hidden": "true", text: SIGNS[action] ?? "•" }),
      M.el("span", { class: "num", text: log().size[i] >= 0 ? M.short(log().size[i]) : "" }),
      M.el("span", { class: "code", text: tensor >= 0 || where ? M.plain(where, 80) : words }),
    );
  }

  function go(i) {
    const { instants } = M.device();
    if (log().tensor[i] >= 0) M.showTensor(log().tensor[i], log().event[i]);
    else M.choose(M.nearest(instants.event, log().event[i], instants.n));
  }

  M.startLog = () => list().addEventListener("scroll", () => rows && draw(), { passive: true });
})();
