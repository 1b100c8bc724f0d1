// The top of the page, for whoever has a minute: the headline, the numbers that matter, where the reserved bytes are, what to do first.
(() => {
  "use strict";

  const PARTS = Object.entries(M.colours.part);

  const facts = () => (M.data.report.devices || []).find((one) => one.device === M.device().device) || null;
  // The moment of the report: every number here is of this one. A file without a history has its last state only.
  const momentOf = (report) => report && (report.moment.kind === "snapshot" ? { ...report.moment, ...report.end } : report.moment);
  const held = (report) => report && momentOf(report).reserved_bytes;
  const momentWords = (moment) =>
    moment.kind === "event" ? M.t("at.event", { event: M.count(moment.at_event) }) : M.t(`moment.${moment.kind}`);
  const badge = (severity) => M.el("span", { class: `badge ${severity}`, text: M.t(`severity.${severity}`) });
  M.badge = badge;
  /** Returns the mark beside text that Python wrote, in pages of another language. */
  M.inEnglish = () => (M.lang === "en" ? null : M.el("span", { class: "en-mark", text: M.t("in-english") }));

  M.part("summary", ["device"], () => {
    const report = facts();
    drawHeadline();
    drawNumbers(report);
    drawSplit(report);
    drawTodo();
  });

  function drawHeadline() {
    M.fill(M.$("headline"), badge(M.data.severity), M.el("h1", { text: M.plain(M.data.headline, 2000) }), M.cardRows());
  }

  function tile(label, value, more, tone = "") {
    return M.el(
      "div",
      { class: `tile ${tone}` },
      M.el("div", { class: "tile-label", text: label }),
      M.el("div", { class: "tile-value", text: value }),
      M.el("div", { class: "tile-more", text: more }),
    );
  }

  function drawNumbers(report) {
    const out = [];
    const moment = momentOf(report);
    const split = report && report.fragmentation;
    const capacity = M.device().capacity_bytes;
    if (moment && moment.reserved_bytes !== null) {
      const share = capacity
        ? M.t("tile.of-capacity", { percent: M.percent(moment.reserved_bytes, capacity), capacity: M.bytes(capacity) })
        : M.t("tile.reserved");
      out.push(tile(M.t("tile.then", { what: M.t("word.reserved"), when: momentWords(moment) }), M.bytes(moment.reserved_bytes), share));
    }
    if (moment && moment.allocated_bytes !== null) {
      const where = [moment.step === null || moment.step < 0 ? "" : M.t("at.step", { step: moment.step }), phaseName(moment.phase)]
        .filter(Boolean)
        .join(", ");
      const label = M.t("tile.then", { what: M.t("word.allocated"), when: momentWords(moment) });
      out.push(tile(label, M.bytes(moment.allocated_bytes), where || M.t("tile.allocated")));
    }
    if (moment && moment.lost_bytes !== null) {
      const lost = moment.lost_bytes;
      const whole = held(report);
      out.push(
        tile(M.t("tile.lost"), M.bytes(lost), M.t("tile.lost-more", { percent: M.percent(lost, whole) }), lost > 0.05 * whole ? "bad" : ""),
      );
      out.push(tile(M.t("tile.cache"), M.bytes(split.cache_bytes), M.t("tile.cache-more")));
    }
    const counts = report && report.counts;
    if (counts && counts.num_ooms !== null) {
      const bad = counts.num_ooms ? "bad" : counts.num_retries ? "warn" : "";
      out.push(
        tile(
          M.t("tile.failures"),
          M.count(counts.num_ooms),
          M.t("tile.failures-more", { retries: M.count(counts.num_retries ?? 0) }),
          bad,
        ),
      );
    }
    const found = M.data.finding_words.length;
    out.push(tile(M.t("tile.findings"), M.count(found), M.t(found ? "tile.findings-more" : "tile.findings-none")));
    M.fill(M.$("numbers"), out);
  }

  const phaseName = (phase) => (phase && phase !== "unknown" ? M.word("phases", M.data.phases.indexOf(phase)) : "");

  function drawSplit(report) {
    const split = report && report.fragmentation;
    const title = M.el("h2", { text: M.t("split.title") });
    if (!split || split.cache_bytes === null || held(report) === null) {
      return M.fill(M.$("split"), title, M.el("p", { class: "lead", text: M.t("split.unknown") }));
    }
    const parts = PARTS.map(([name, colour]) => [name, name === "requested" ? null : split[`${name}_bytes`], colour]);
    const rest = parts.reduce((sum, [, bytes]) => sum + (bytes ?? 0), 0);
    const whole = held(report);
    parts[0][1] = whole - rest;
    const bar = M.el(
      "div",
      { class: "bar", role: "img", "aria-label": parts.map(([name, bytes]) => `${M.t(`word.${name}`)} ${M.bytes(bytes)}`).join(", ") },
      parts
        .filter(([, bytes]) => bytes > 0)
        .map(([name, bytes, colour]) =>
          M.el("i", {
            class: `bar-part ${name}`,
            style: { flexGrow: String(bytes / whole), backgroundColor: colour },
            title: `${M.t(`word.${name}`)} ${M.bytes(bytes)}`,
          }),
        ),
    );
    const rows = parts.map(([name, bytes, colour]) =>
      M.el(
        "tr",
        {},
        M.el("th", { scope: "row" }, M.el("i", { class: `dot ${name}`, style: { backgroundColor: colour } }), M.t(`word.${name}`)),
        M.el("td", { class: "num", text: M.bytes(bytes) }),
        M.el("td", { class: "num", text: M.percent(bytes, whole) }),
        M.el("td", { class: "why", text: M.t(`why.${name}`) }),
      ),
    );
    const lead = split.at_event === null ? "split.lead-state" : split.reference_request_bytes === null ? "split.lead-no-request" : "split.lead";
    const fill = {
      request: M.bytes(split.reference_request_bytes),
      largest: M.bytes(split.largest_free_bytes),
      event: M.count(split.at_event),
    };
    M.fill(
      M.$("split"),
      title,
      M.el("p", { class: "lead", text: M.t(lead, fill) }),
      bar,
      M.el("div", { class: "scroll-x" }, M.el("table", { class: "parts" }, M.el("tbody", {}, rows))),
    );
  }

  function drawTodo() {
    // The card has the first remedy; these are the others, each once.
    const others = M.data.remedies.slice(1, 4);
    M.$("todo").hidden = !others.length;
    M.fill(
      M.$("todo"),
      M.el("h2", { text: M.t("todo.title") }),
      M.el(
        "ol",
        { class: "todo" },
        others.map(({ finding: number, fix }) => {
          const finding = M.data.finding_words[number];
          return M.el(
            "li",
            {},
            M.el(
              "div",
              { class: "todo-line" },
              badge(finding.severity),
              M.el("span", { class: "todo-fix", text: M.plain(finding.fixes[fix].title, 600) }),
            ),
            M.el(
              "div",
              { class: "todo-why" },
              M.el("a", { href: `#finding-${number}`, text: M.plain(finding.code) }),
              " ",
              M.el("span", { text: M.plain(finding.title, 600) }),
            ),
          );
        }),
      ),
      M.el("p", { class: "under" }, M.el("a", { href: "#findings", text: M.t("todo.all", { count: M.data.finding_words.length }) })),
    );
  }
})();
