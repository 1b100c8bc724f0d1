// The largest tensors of the instant as a table; a row chosen here is shown on the map, and the other way round.
(() => {
  "use strict";

  const FIRST = 15;
  const MORE = 60;
  let shown = FIRST;
  let order = { key: "bytes", down: true };

  const COLUMNS = [
    ["bytes", (row) => M.device().tensors.block[row], (row) => M.bytes(M.device().tensors.block[row])],
    [
      "requested",
      (row) => M.device().tensors.requested?.[row] ?? -1,
      (row) => (M.device().tensors.requested ? M.bytes(M.device().tensors.requested[row]) : ""),
    ],
    ["name", (row) => M.titleOf(row), (row) => M.plain(M.titleOf(row), 140)],
    ["category", (row) => M.word("categories", M.categoryOf(row)), (row) => M.word("categories", M.categoryOf(row))],
    ["lifetime", (row) => M.word("lifetimes", M.lifetimeOf(row)), (row) => M.word("lifetimes", M.lifetimeOf(row))],
    ["module", (row) => M.moduleName(row), (row) => M.plain(M.moduleName(row), 90)],
    [
      "where",
      (row) => M.place(M.device().tensors.stack?.[row] ?? -1),
      (row) => M.plain(M.place(M.device().tensors.stack?.[row] ?? -1), 90),
    ],
    [
      "age",
      (row) => M.event() - M.device().tensors.alloc_at[row],
      (row) => (M.device().tensors.alloc_at[row] < 0 ? M.t("tensors.before") : M.count(M.event() - M.device().tensors.alloc_at[row])),
    ],
  ];
  const NUMBERS = new Set(["bytes", "requested", "age"]);

  M.part("tensors", ["device", "instant", "search", "tensor"], (why) => {
    if ([...why].every((reason) => reason === "tensor")) return mark();
    if (!why.has("tensor") && !why.has("lang") && !why.has("theme")) shown = FIRST;
    draw();
  });

  M.tensorsShown = () => M.$("tensors-table").querySelectorAll("tbody tr[data-row]").length;

  function sorted() {
    const hits = M.hits();
    const rows = [...M.live().rows].filter((row) => !hits || hits[row]);
    const [, value] = COLUMNS.find(([key]) => key === order.key);
    const keyed = rows.map((row) => [value(row), row]);
    const sign = order.down ? -1 : 1;
    keyed.sort((a, b) => sign * (typeof a[0] === "number" ? a[0] - b[0] : a[0] < b[0] ? -1 : a[0] > b[0] ? 1 : 0) || a[1] - b[1]);
    return keyed.map(([, row]) => row);
  }

  function draw() {
    const rows = sorted();
    const { tensors } = M.device();
    const known = COLUMNS.filter(([key]) => {
      if (key === "module") return tensors.module && M.data.modules.length;
      if (key === "where") return M.data.stacks.length;
      return key !== "age" || M.device().num_events > 0;
    });
    const head = known.map(([key]) =>
      M.el(
        "th",
        {
          scope: "col",
          class: NUMBERS.has(key) ? "num" : "",
          "aria-sort": order.key === key ? (order.down ? "descending" : "ascending") : "none",
        },
        M.el("button", {
          type: "button",
          class: "sort",
          text: `${M.t(`tensors.${key}`)}${order.key === key ? (order.down ? " ↓" : " ↑") : ""}`,
          on: {
            click: () => {
              order = { key, down: order.key === key ? !order.down : NUMBERS.has(key) };
              draw();
            },
          },
        }),
      ),
    );
    const body = rows.slice(0, shown).map((row) =>
      M.el(
        "tr",
        { tabindex: "0", data: { row: String(row) }, on: { click: () => M.pickTensor(row), keydown: (event) => keys(event, row) } },
        known.map(([key, , write]) =>
          key === "lifetime" || key === "category"
            ? M.el("td", { class: "kind" }, M.el("i", { class: "dot", style: { background: dot(key, row) } }), write(row))
            : M.el("td", { class: NUMBERS.has(key) ? "num" : key === "where" || key === "name" ? "code" : "", text: write(row) }),
        ),
      ),
    );
    M.fill(M.$("tensors-table"), M.el("thead", {}, M.el("tr", {}, head)), M.el("tbody", {}, body));
    mark();
    const rest = rows.length - Math.min(shown, rows.length);
    M.fill(
      M.$("tensors-more"),
      M.el("span", {
        text: M.t(M.chosen.query ? "tensors.found" : "tensors.shown", {
          shown: M.count(Math.min(shown, rows.length)),
          count: M.count(rows.length),
        }),
      }),
      " ",
      rest > 0
        ? M.button(M.t("tensors.more", { count: M.count(Math.min(MORE, rest)) }), () => {
            shown += MORE;
            draw();
          })
        : null,
    );
  }

  const dot = (key, row) =>
    (key === "lifetime" ? M.colours.lifetime[M.data.lifetimes[M.lifetimeOf(row)]] : M.colours.category[M.data.categories[M.categoryOf(row)]]) ?? "#888";

  function keys(event, row) {
    const line = event.currentTarget;
    if (event.key === "Enter" || event.key === " ") M.pickTensor(row);
    else if (event.key === "ArrowDown" && line.nextElementSibling) line.nextElementSibling.focus();
    else if (event.key === "ArrowUp" && line.previousElementSibling) line.previousElementSibling.focus();
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  function mark() {
    for (const line of M.$("tensors-table").querySelectorAll("tbody tr")) {
      const mine = Number(line.dataset.row) === M.chosen.tensor;
      line.classList.toggle("chosen", mine);
      if (mine) line.setAttribute("aria-current", "true");
      else line.removeAttribute("aria-current");
    }
  }
})();
