// What was read, with which allocator settings, and what limits the diagnosis.
(() => {
  "use strict";

  M.part("settings", ["search"], () => {
    const { facts, settings, notes } = M.data;
    const list = (rows) =>
      M.el(
        "dl",
        { class: "facts wide" },
        rows.map(([key, value]) => [
          M.el("dt", { text: key }),
          M.el("dd", { class: M.chosen.query && M.textHit(key, value) ? "hit" : "", text: M.plain(value, 1000) }),
        ]),
      );
    M.fill(
      M.$("settings-body"),
      M.el("h3", { text: M.t("settings.source") }),
      list(facts.map(([label, value]) => [M.plain(label), value])),
      M.el("h3", { text: M.t("settings.allocator") }),
      settings.length
        ? list(settings.map(([key, value]) => [M.plain(key), value]))
        : M.el("p", { class: "soft", text: M.t("settings.none") }),
      M.el("h3", { text: M.t("settings.notes") }),
      notes.length
        ? M.el(
            "ul",
            { class: "notes" },
            notes.map(([code, text]) =>
              M.el(
                "li",
                { class: M.chosen.query && M.textHit(code, text) ? "hit" : "" },
                M.el("span", { class: "code-id", text: M.plain(code) }),
                " ",
                M.el("span", { text: M.plain(text, 2000) }),
              ),
            ),
          )
        : M.el("p", { class: "soft", text: M.t("settings.no-notes") }),
    );
  });
})();
