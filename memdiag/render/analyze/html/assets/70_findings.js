// Findings with what shows them, what to do, and a button that copies the line to paste. Their text comes from Python, in both languages.
(() => {
  "use strict";

  M.part("findings", ["search"], () => {
    const all = M.data.finding_words;
    const hits = all.filter(M.findingHit);
    M.fill(
      M.$("findings-lead"),
      M.t(all.length ? "findings.lead" : "findings.none"),
      M.chosen.query ? M.el("b", { text: ` ${M.t("findings.filtered", { shown: hits.length, count: all.length })}` }) : null,
    );
    M.fill(
      M.$("findings-list"),
      hits.map((finding) => card(finding, all.indexOf(finding))),
    );
  });

  const said = (tag, text, props = {}) => M.el(tag, { text: M.plain(text, 4000), ...props });

  function card(finding, index) {
    const several = M.data.devices.length > 1 && finding.device !== null && finding.device !== undefined;
    return M.el(
      "article",
      { class: `finding ${finding.severity}`, id: `finding-${index}` },
      M.el(
        "header",
        {},
        M.badge(finding.severity),
        M.el("span", { class: "code-id", text: M.plain(finding.code) }),
        M.el("h3", {}, said("span", finding.title)),
        several ? M.el("span", { class: "soft", text: M.t("device.number", { device: finding.device }) }) : null,
      ),
      M.el(
        "div",
        { class: "finding-body" },
        M.el(
          "table",
          { class: "evidence" },
          M.el(
            "tbody",
            {},
            finding.evidence.map(([value, what, where]) =>
              M.el(
                "tr",
                {},
                said("td", value, { class: "num" }),
                M.el("td", {}, said("span", what), where ? said("span", ` · ${where}`, { class: "soft" }) : null),
              ),
            ),
          ),
        ),
        finding.fixes.length || finding.saving
          ? M.el(
              "div",
              { class: "fixes" },
              finding.saving
                ? M.el("p", { class: "saving-line" }, M.el("b", { text: `${M.t("findings.saving")} ` }), said("span", finding.saving))
                : null,
              finding.fixes.map(fix),
            )
          : null,
        explanation(finding.code),
      ),
    );
  }

  /** The page of the finding in the documentation, which the file brings along. */
  function explanation(code) {
    const blocks = M.data.pages[code];
    if (!blocks) return null;
    return M.el(
      "details",
      { class: "explanation" },
      M.el("summary", {}, `${M.t("findings.explain", { code: M.plain(code) })} `, M.inEnglish()),
      M.el("div", { lang: "en" }, blocks.map(block)),
    );
  }

  const TAGS = { heading: "h4", paragraph: "p", item: "p", code: "pre", table: "pre" };

  function block([kind, text]) {
    const own = { class: kind === "item" ? "item" : "" };
    if (kind === "code" || kind === "table") return M.el("pre", { ...own, text: M.plain(text, 8000) });
    const parts = M.plain(text, 8000).replaceAll("**", "").split("`");
    return M.el(
      TAGS[kind] ?? "p",
      own,
      parts.map((part, index) => (part ? M.el(index % 2 ? "code" : "span", { text: part }) : null)),
    );
  }

  function fix(one) {
    return M.el(
      "div",
      { class: "fix" },
      M.el(
        "p",
        { class: "fix-title" },
        M.el("span", { class: "fix-mark", text: M.t("findings.fix") }),
        said("span", one.title),
        one.applicability ? said("span", M.t("findings.applies", { applies: one.applicability }), { class: "soft" }) : null,
      ),
      one.change ? copyable(one.change) : null,
      one.caveat ? M.el("p", { class: "soft" }, M.el("b", { text: `${M.t("findings.but")} ` }), said("span", one.caveat)) : null,
    );
  }

  function copyable(text) {
    const button = M.button(
      M.t("copy"),
      () => {
        copy(text).then(
          () => {
            button.textContent = M.t("copied");
            button.classList.add("done");
          },
          () => {
            button.textContent = M.t("copy.failed");
          },
        );
      },
      { "aria-label": M.t("copy.aria") },
    );
    return M.el("div", { class: "paste" }, M.el("code", { text: M.plain(text, 4000) }), button);
  }

  M.copyable = copyable;

  // Pages opened from disk may lack the clipboard; a selected field is what all browsers can copy.
  async function copy(text) {
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      const field = M.el("textarea", { class: "hidden" });
      field.value = text;
      document.body.append(field);
      field.select();
      const done = document.execCommand("copy");
      field.remove();
      if (!done) throw new Error("nothing was copied");
    }
  }
})();
