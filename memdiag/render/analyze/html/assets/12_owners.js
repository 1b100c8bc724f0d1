// Tables that a report has only if the file contains their data: notes of the program, compiled code, host memory. Python made their texts.
(() => {
  "use strict";

  M.part("summary", ["device"], () => {
    const { host, devices } = M.data.owners;
    const number = (M.data.report.devices || []).findIndex((one) => one.device === M.device().device);
    const tables = [...(devices[number] || []), ...host];
    M.$("owners").hidden = !tables.length;
    M.fill(M.$("owners"), tables.map(drawTable));
  });

  function drawTable(table) {
    const last = table.head.length - 1;
    const cells = (row, kind) =>
      M.el(
        "tr",
        {},
        row.map((text, at) => M.el(kind, { class: at < last ? "num" : "why", text: M.plain(text, 200) })),
      );
    return M.el(
      "div",
      {},
      M.el("h2", { text: M.plain(table.title, 200) }),
      table.lead ? M.el("p", { class: "lead", text: M.plain(table.lead, 400) }) : null,
      M.el(
        "div",
        { class: "scroll-x" },
        M.el(
          "table",
          { class: "parts" },
          M.el("thead", {}, cells(table.head, "th")),
          M.el(
            "tbody",
            {},
            table.rows.map((row) => cells(row, "td")),
          ),
        ),
      ),
    );
  }
})();
