// The bar that says which instant is shown, and moves it; it stays on the screen while one looks at the map, the treemap and the rest.
(() => {
  "use strict";

  /** Returns what to say of the chosen instant: event, step, phase, time. */
  M.instantWords = () => {
    const device = M.device();
    const { instants } = device;
    const row = M.row();
    const event = instants.event[row];
    const words = [device.num_events === 0 ? M.t("at.only") : event < 0 ? M.t("at.before") : M.t("at.event", { event: M.count(event) })];
    if (instants.step && instants.step[row] >= 0) words.push(M.t("at.step", { step: instants.step[row] }));
    if (instants.phase && instants.phase[row] > 0) words.push(M.word("phases", instants.phase[row]));
    if (device.has_time && instants.time_us && instants.time_us[row] >= 0)
      words.push(M.us(instants.time_us[row] - device.curve.time_us[0]));
    return words;
  };

  M.part("instant-bar", ["device", "instant"], () => {
    const device = M.device();
    const { instants } = device;
    const row = M.row();
    const go = (to, label, text) =>
      M.button(text, () => M.choose(to), { "aria-label": label, title: label, disabled: to === row || to < 0 || to >= instants.n });
    const value = (name) =>
      instants[name] && instants[name][row] >= 0
        ? M.el("span", { class: "amount" }, M.el("span", { text: M.t(`word.${name}`) }), M.el("b", { text: M.bytes(instants[name][row]) }))
        : null;
    const oom = (device.ooms || []).find((one) => one.instant === row);
    const moves =
      instants.n < 2
        ? []
        : [
            go(row - 1, M.t("instant.previous"), "◀"),
            go(row + 1, M.t("instant.next"), "▶"),
            go(device.peak_instant ?? -1, M.t("instant.peak"), M.t("instant.peak-short")),
            (device.ooms || []).length ? go(device.ooms[device.ooms.length - 1].instant, M.t("instant.oom"), M.t("instant.oom-short")) : null,
          ];
    M.fill(
      M.$("instant-bar"),
      M.el("span", { class: "moves" }, moves.filter(Boolean)),
      M.el("b", { class: "when", text: M.instantWords().join(" · ") }),
      row === device.peak_instant && instants.n > 1 ? M.el("span", { class: "badge info", text: M.t("instant.is-peak") }) : null,
      oom ? M.el("span", { class: "badge critical", text: M.t("instant.is-oom", { size: M.bytes(oom.size) }) }) : null,
      M.el("span", { class: "grow" }),
      value("reserved"),
      value("allocated"),
      value("stranded"),
      value("foreign"),
    );
  });
})();
