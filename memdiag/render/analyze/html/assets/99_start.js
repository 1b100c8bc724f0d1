// Starts the page: unpacks the data, puts in the words, watches the parts; switches of language, theme and device; printing; the hook for
// tests.
(() => {
  "use strict";

  const LANGS = ["en", "zh"];
  M.words = window.MEMDIAG_WORDS;

  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (M.chosen.theme === "auto" ? dark.matches : M.chosen.theme === "dark");

  function setTheme(theme) {
    M.chosen.theme = theme;
    document.documentElement.dataset.theme = theme;
    M.$("theme").textContent = isDark() ? "☀" : "☾";
    M.tell("theme");
  }
  M.switchTheme = () => setTheme(isDark() ? "light" : "dark");

  function setLang(lang) {
    M.lang = lang;
    Object.assign(M.data, M.data.spoken[lang]); // what Python says in that language
    document.documentElement.lang = lang === "zh" ? "zh-CN" : lang;
    for (const element of document.querySelectorAll("[data-t]")) element.textContent = M.t(element.dataset.t);
    for (const [data, attribute] of [
      ["tTitle", "title"],
      ["tLabel", "aria-label"],
      ["tPlaceholder", "placeholder"],
    ]) {
      const name = data.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`);
      for (const element of document.querySelectorAll(`[data-${name}]`)) element.setAttribute(attribute, M.t(element.dataset[data]));
    }
    M.$("lang").textContent = M.t("lang.other");
    M.$("lang").setAttribute("title", M.t("lang.switch"));
    M.$("theme").setAttribute("title", M.t("theme.switch"));
    M.$("theme").setAttribute("aria-label", M.t("theme.switch"));
    M.$("help-open").setAttribute("aria-label", M.t("help.open"));
    M.fill(
      M.$("sections"),
      M.SECTIONS.map((id) => M.el("a", { href: `#${id}`, text: M.t(`nav.${id}`) })),
    );
    const { source, memdiag_version: version } = M.data.report;
    M.$("file").textContent = M.plain(source.path.split(/[\\/]/).slice(-2).join("/"), 60);
    M.$("file").title = M.plain(source.path, 500);
    M.$("foot").textContent = M.t("foot", { version: M.plain(version, 40) });
    devices();
    M.tell("lang");
  }
  M.switchLang = () => setLang(LANGS[(LANGS.indexOf(M.lang) + 1) % LANGS.length]);

  function devices() {
    const many = M.data.devices.length > 1;
    M.$("device-pick").hidden = !many;
    M.fill(
      M.$("device"),
      M.data.devices.map((device, i) =>
        M.el("option", { value: String(i), text: M.t("device.number", { device: device.device }), selected: i === M.chosen.device }),
      ),
    );
  }

  // Paper is white, and has no scroll bar: everything is drawn, in light colours, then all goes back.
  let before = null;
  function toPaper() {
    if (before !== null) return;
    before = M.chosen.theme;
    document.documentElement.classList.add("printing");
    setTheme("light");
    M.tell("paper");
    M.settleCharts(); // parts measure their places, which are narrower now
    M.drawAll();
    M.settleCharts();
  }
  function fromPaper() {
    if (before === null) return;
    document.documentElement.classList.remove("printing");
    setTheme(before);
    M.settleCharts();
    before = null;
  }

  /** Returns what the page shows, for tests: a copy, to look at only. */
  function state() {
    const zoom = M.timeline();
    return JSON.parse(
      JSON.stringify({
        ready: true,
        lang: M.lang,
        theme: M.chosen.theme,
        dark: isDark(),
        device: M.device().device,
        instant: M.row(),
        event: M.event(),
        num_instants: M.device().instants.n,
        peak_instant: M.device().peak_instant,
        tensor: M.chosen.tensor,
        query: M.chosen.query,
        found: M.found(),
        sums: M.sums(),
        map: M.map(),
        bands: M.bands(),
        log: M.log(),
        flame: M.flame(),
        tree: M.tree(),
        timeline: zoom,
        drawn: M.drawn(),
        rows: M.tensorsShown(),
        findings: document.querySelectorAll("#findings-list article").length,
      }),
    );
  }

  async function start() {
    if (!("DecompressionStream" in window))
      return fail("This browser is too old for this report: it needs DecompressionStream (Chrome 93, Firefox 113, Safari 16.4, or later).");
    M.data = await M.load();
    M.$("main").hidden = false;
    if (!M.data.devices.length) {
      Object.assign(M.data, M.data.spoken[M.data.lang]);
      M.$("main").replaceChildren(M.el("section", { class: "card" }, M.el("h1", { text: M.plain(M.data.headline, 2000) })));
      return undefined;
    }
    const most = ({ instants, peak_instant: row }) => (instants.reserved ?? instants.allocated)?.[row] ?? 0;
    M.pickDevice(M.data.devices.reduce((best, device, i, all) => (most(device) > most(all[best]) ? i : best), 0));
    M.part("sections", ["search", "instant", "device"], M.showFound); // the head of the page is always on the screen
    M.startBands();
    M.startLog();
    M.startMap();
    M.startFlame();
    M.startKeys();
    setLang(LANGS.includes(M.data.lang) ? M.data.lang : "en");
    setTheme("auto");
    M.$("lang").addEventListener("click", M.switchLang);
    M.$("theme").addEventListener("click", M.switchTheme);
    M.$("device").addEventListener("change", (event) => M.pickDevice(Number(event.target.value)));
    dark.addEventListener("change", () => setTheme(M.chosen.theme));
    window.addEventListener("beforeprint", toPaper);
    window.addEventListener("afterprint", fromPaper);
    window.matchMedia("print").addEventListener("change", (event) => (event.matches ? toPaper() : fromPaper()));
    M.watch();
    Object.defineProperty(window, "memdiag", {
      value: Object.freeze({ state, mapPoint: (range) => M.mapPoint(range), bandPoint: (row) => M.bandPoint(row), instantPoint: (row) => M.instantPoint(row) }),
    });
    return undefined;
  }

  function fail(text) {
    M.$("broken").textContent = text;
    M.$("broken").hidden = false;
  }

  start().catch((error) => {
    fail(`The data of this report cannot be read: ${error.message}`);
    throw error;
  });
})();
