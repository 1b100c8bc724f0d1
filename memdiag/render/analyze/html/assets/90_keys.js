// The keyboard: what works everywhere on the page, and the list of all keys behind "?".
(() => {
  "use strict";

  const SECTIONS = ["summary", "timeline", "bands", "map", "tree", "flame", "tensors", "findings", "policies", "settings"];
  M.SECTIONS = SECTIONS;

  const HELP = [
    [
      "help.everywhere",
      [
        ["/", "help.search"],
        ["?", "help.help"],
        ["1 – 9", "help.section"],
        ["t", "help.theme"],
        ["l", "help.lang"],
        ["Esc", "help.escape"],
      ],
    ],
    [
      "help.instant",
      [
        ["← →", "help.one"],
        ["Shift ← →", "help.ten"],
        ["Home End", "help.ends"],
        ["p", "help.peak"],
        ["+ − 0", "help.zoom"],
      ],
    ],
    [
      "help.bands",
      [
        ["↑ ↓", "help.band"],
        ["+ − 0", "help.zoom"],
        [(M) => M.t("help.ctrl-wheel"), "help.wheel"],
      ],
    ],
    [
      "help.map",
      [
        ["← → ↑ ↓", "help.range"],
        ["n N", "help.pins"],
        ["+ − 0", "help.zoom"],
        [(M) => M.t("help.ctrl-wheel"), "help.wheel"],
      ],
    ],
    [
      "help.flame",
      [
        ["← → ↑ ↓", "help.frames"],
        ["Enter", "help.into"],
        ["Backspace", "help.out"],
      ],
    ],
    [
      "help.table",
      [
        ["↑ ↓", "help.rows"],
        ["Enter", "help.on-map"],
      ],
    ],
  ];

  M.help = (open) => {
    const box = M.$("help");
    if (!open) return box.close();
    M.fill(
      M.$("help-body"),
      HELP.map(([title, keys]) =>
        M.el(
          "div",
          {},
          M.el("h3", { text: M.t(title) }),
          M.el(
            "dl",
            { class: "keys" },
            keys.map(([key, does]) => [
              M.el("dt", {}, M.el("kbd", { text: typeof key === "string" ? key : key(M) })),
              M.el("dd", { text: M.t(does) }),
            ]),
          ),
        ),
      ),
    );
    box.showModal();
  };

  const move = (by) => M.choose(M.row() + by);
  const EVERYWHERE = {
    "/": () => M.$("search").focus(),
    "?": () => M.help(true),
    t: () => M.switchTheme(),
    l: () => M.switchLang(),
    p: () => M.choose(M.device().peak_instant ?? M.row()),
    ArrowLeft: (event) => move(event.shiftKey ? -10 : -1),
    ArrowRight: (event) => move(event.shiftKey ? 10 : 1),
    "+": () => M.zoomTimeline(0.5),
    "=": () => M.zoomTimeline(0.5),
    "-": () => M.zoomTimeline(2),
    0: () => M.zoomTimeline(0),
  };
  const ON_TIMELINE = {
    Home: () => M.choose(0),
    End: () => M.choose(M.device().instants.n - 1),
    PageUp: () => move(-50),
    PageDown: () => move(50),
    ArrowUp: () => move(1),
    ArrowDown: () => move(-1),
  };

  function pressed(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || M.$("help").open) return;
    const typing = event.target.closest("input, select, textarea");
    if (event.key === "Escape") {
      if (M.$("search").value) {
        M.$("search").value = "";
        M.search("");
      }
      if (typing) event.target.blur();
      return;
    }
    if (typing) return;
    const scrolls = event.target.closest(".scroll-x") && event.key.startsWith("Arrow");
    const keys = event.target.id === "timeline-chart" ? { ...EVERYWHERE, ...ON_TIMELINE } : EVERYWHERE;
    const section = /^[1-9]$/.test(event.key) ? SECTIONS[Number(event.key) - 1] : null;
    if (section) M.goTo(section);
    else if (Object.hasOwn(keys, event.key) && !scrolls) keys[event.key](event);
    else return;
    event.preventDefault();
  }

  M.startKeys = () => {
    document.addEventListener("keydown", pressed);
    document.addEventListener("click", (event) => {
      const link = event.target.closest('a[href^="#"]');
      if (!link) return;
      event.preventDefault();
      const target = link.getAttribute("href").slice(1);
      if (target.startsWith("finding-")) M.goTo("findings"); // the findings are made when they are first shown
      if (M.$(target)) M.goTo(target);
    });
    M.$("help-open").addEventListener("click", () => M.help(true));
    const search = M.$("search");
    let waiting = 0;
    search.addEventListener("input", () => {
      clearTimeout(waiting);
      waiting = setTimeout(() => M.search(search.value), 120); // not at each letter: a large trace has many names
    });
    search.addEventListener("keydown", (event) => {
      if (event.key === "Enter") M.search(search.value);
    });
  };
})();
