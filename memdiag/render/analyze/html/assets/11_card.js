// The verdict card: the loss, the first remedy with its line to paste, what it is predicted to give, and the calibration.
(() => {
  "use strict";

  /** Returns the rows of the card, as Python made them in the language of the page. */
  M.cardRows = () =>
    M.el(
      "dl",
      { class: "verdict" },
      M.data.card.flatMap((row) => [
        M.el("dt", { text: row.label }),
        M.el("dd", {}, M.el("span", { text: M.plain(row.text, 1000) }), row.command ? M.copyable(row.command) : null),
      ]),
    );
})();
