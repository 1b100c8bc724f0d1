// What stands around the stack of tensors: its axes, and above it the bytes of each step.
(() => {
  "use strict";

  M.BANDS_HIGH = 360; // pixels of the stack
  M.STRIP = 54; // of the bytes by step above it
  [M.BANDS_LEFT, M.BANDS_RIGHT] = [66, 26];

  /** Draws the axes and the beginnings of steps. */
  M.bandAxes = (ink, view, range) => {
    const { xOf, yOf } = view;
    const [muted, line] = [M.css("--muted"), M.css("--line-strong")];
    ink.font = "11.5px system-ui, sans-serif";
    const step = M.niceStep(view.top);
    for (let bytes = 0; bytes <= view.top; bytes += step) {
      ink.fillStyle = muted;
      ink.textAlign = "right";
      ink.fillText(M.short(bytes), M.BANDS_LEFT - 8, yOf(bytes) + 4);
      ink.fillStyle = line;
      ink.fillRect(M.BANDS_LEFT - 4, Math.round(yOf(bytes)), 4, 1);
    }
    ink.fillRect(M.BANDS_LEFT - 1, view.plotTop, 1, M.BANDS_HIGH);
    ink.fillRect(M.BANDS_LEFT, view.plotTop + M.BANDS_HIGH, view.wide - M.BANDS_LEFT - M.BANDS_RIGHT, 1);
    ink.fillStyle = muted;
    const apart = ((range.to - range.from) * 110) / Math.max(view.wide - M.BANDS_LEFT - M.BANDS_RIGHT, 1);
    const power = 10 ** Math.floor(Math.log10(Math.max(apart, 1)));
    const every = [1, 2, 5, 10].map((one) => one * power).find((one) => one >= apart) ?? 1;
    ink.textAlign = "center";
    for (let event = Math.ceil(range.from / every) * every; event <= range.to; event += every) {
      ink.fillText(M.count(event), xOf(event), view.plotTop + M.BANDS_HIGH + 16);
    }
    const { steps } = M.device();
    for (let i = 0; i < steps.n; i++) {
      const next = i + 1 < steps.n ? steps.event[i + 1] : range.to;
      if (steps.event[i] <= range.from || steps.event[i] >= range.to || xOf(next) - xOf(steps.event[i]) < 24) continue;
      ink.globalAlpha = 0.6;
      for (let y = view.plotTop; y < view.plotTop + M.BANDS_HIGH; y += 6) ink.fillRect(Math.round(xOf(steps.event[i])), y, 1, 3);
      ink.globalAlpha = 1;
    }
  };

  /** Draws the lowest and highest bytes of each step; the step that needs most stands out. */
  M.stepStrip = (ink, view) => {
    const { envelope, bands } = M.device();
    const most = envelope.high.reduce((a, b) => Math.max(a, b), 1);
    const wide = (view.wide - M.BANDS_LEFT - M.BANDS_RIGHT) / envelope.n;
    const worst = bands[1] ? bands[1].step : -1;
    ink.font = "11.5px system-ui, sans-serif";
    ink.textAlign = "right";
    ink.fillStyle = M.css("--muted");
    ink.fillText(M.short(most), M.BANDS_LEFT - 8, 18);
    ink.fillText(M.t("bands.by-step"), M.BANDS_LEFT - 8, M.STRIP + 4);
    for (let i = 0; i < envelope.n; i++) {
      const [upper, lower] = [envelope.high[i], envelope.low[i]].map((bytes) => 10 + M.STRIP * (1 - bytes / most));
      ink.fillStyle = envelope.step[i] === worst ? M.css("--failure") : M.css("--curve-allocated");
      ink.globalAlpha = 0.85;
      ink.fillRect(M.BANDS_LEFT + i * wide, upper, Math.max(wide - (wide > 4 ? 1.5 : 0), 0.7), Math.max(lower - upper, 1));
      ink.globalAlpha = 0.25;
      ink.fillRect(M.BANDS_LEFT + i * wide, lower, Math.max(wide - (wide > 4 ? 1.5 : 0), 0.7), Math.max(10 + M.STRIP - lower, 0));
      ink.globalAlpha = 1;
    }
  };
})();
