// Paints the lines of the address map that are on the screen: blocks by colour, free ranges hatched by cause, pins, what is found and
// what is chosen.
(() => {
  "use strict";

  const patterns = new Map();

  // Each cause has a hatching of its own, so that colour is not needed to tell them apart: cache dots, stranded /, foreign \.
  function hatching(context, cause, ratio) {
    const key = `${cause}:${ratio}:${M.css("--card")}`;
    if (patterns.has(key)) return patterns.get(key);
    const side = 7;
    const tile = document.createElement("canvas");
    tile.width = tile.height = side * ratio;
    const ink = tile.getContext("2d");
    ink.scale(ratio, ratio);
    const colour = M.colours.part[cause];
    ink.fillStyle = M.css(`--free-${cause}`);
    ink.fillRect(0, 0, side, side);
    ink.strokeStyle = ink.fillStyle = colour;
    ink.lineWidth = cause === "cache" ? 1 : 1.7;
    ink.beginPath();
    if (cause === "cache") {
      ink.rect(3, 3, 1.2, 1.2);
      ink.fill();
    } else {
      const rising = cause === "stranded";
      for (const shift of [-side, 0, side]) {
        ink.moveTo(shift + (rising ? 0 : side), side);
        ink.lineTo(shift + (rising ? side : 0), 0);
      }
      ink.stroke();
    }
    const pattern = context.createPattern(tile, "repeat");
    pattern.setTransform(new DOMMatrix().scale(1 / ratio));
    patterns.set(key, pattern);
    return pattern;
  }

  /**
   * Paints. view: {layout, lines, pieces, scroll, width, height, left, colours: by tensor row -> CSS colour, hits, pins: Set of tensor
   * rows, hover, chosen: range
   * indices or -1, label: group -> text}.
   */
  M.paintMap = (canvas, view) => {
    const ratio = window.devicePixelRatio || 1;
    const [width, height] = [Math.round(view.width * ratio), Math.round(view.height * ratio)];
    if (canvas.width !== width || canvas.height !== height) {
      canvas.width = width;
      canvas.height = height;
      canvas.style.width = `${view.width}px`;
      canvas.style.height = `${view.height}px`;
    }
    const ink = canvas.getContext("2d");
    ink.setTransform(ratio, 0, 0, ratio, 0, 0);
    ink.clearRect(0, 0, view.width, view.height);
    const theme = {
      ink: M.css("--ink"),
      muted: M.css("--muted"),
      line: M.css("--line-strong"),
      card: M.css("--card"),
      accent: M.css("--accent"),
      critical: M.css("--critical"),
    };
    const hatch = ["cache", "stranded", "foreign"].map((cause) => hatching(ink, cause, ratio));
    const marks = [];
    for (const line of view.lines) {
      const y = line.y - view.scroll;
      if (y > view.height + M.HEAD) break;
      if (y < -M.HEAD) continue;
      if (line.head) {
        ink.font = "600 12px system-ui, sans-serif";
        ink.fillStyle = theme.muted;
        ink.fillStyle = line.head.request && view.request.failed ? theme.critical : theme.muted;
        ink.fillText(view.label(line.head), 0, y + 20);
        continue;
      }
      if (line.request) {
        paintRequest(ink, view, line, y, theme);
        continue;
      }
      for (let p = line.first; p < line.end; p++) paintPiece(ink, view, view.pieces[p], y, hatch, theme, marks);
      if (view.left && line.end > line.first) {
        ink.font = "11px ui-monospace, monospace";
        ink.fillStyle = theme.muted;
        ink.textAlign = "right";
        ink.fillText(view.address(view.pieces[line.first]), view.left - 8, y + 11.5);
        ink.textAlign = "left";
      }
    }
    for (const [kind, x, y, wide] of marks) paintMark(ink, kind, x, y, wide, theme);
  };

  // The request at the scale of the map: what it would take of a line.
  function paintRequest(ink, view, line, y, theme) {
    const colour = view.request.failed ? theme.critical : theme.ink;
    ink.strokeStyle = ink.fillStyle = colour;
    ink.globalAlpha = 0.18;
    ink.fillRect(view.left, y, line.request, M.LINE);
    ink.globalAlpha = 1;
    ink.lineWidth = 2;
    ink.strokeRect(view.left + 1, y + 1, Math.max(line.request - 2, 1), M.LINE - 2);
    if (line.cut) ink.fillText("…", view.left + line.request + 4, y + 11);
  }

  function paintPiece(ink, view, piece, y, hatch, theme, marks) {
    const { layout, hits, pins } = view;
    const scale = piece.width / (piece.to - piece.from);
    const x0 = view.left + piece.x;
    const pixels = 0.35; // narrower ranges are joined into the one before: thousands of them would only make noise
    ink.fillStyle = theme.card;
    ink.fillRect(x0, y, piece.width, M.LINE);
    const { end } = layout.segments[piece.segment];
    let painted = x0 - 1;
    for (let r = M.rangeAt(layout, piece.segment, piece.from); r < end && layout.start[r] < piece.to; r++) {
      const from = Math.max(layout.start[r], piece.from);
      const to = Math.min(layout.start[r] + layout.size[r], piece.to);
      const x = x0 + (from - piece.from) * scale;
      const wide = (to - from) * scale;
      const row = layout.tensor[r];
      const special = r === view.hover || r === view.chosen || (row >= 0 && (pins.has(row) || (hits && hits[row])));
      if (!special && x + wide < painted + pixels) continue;
      painted = x + wide;
      ink.globalAlpha = hits && !(row >= 0 && hits[row]) ? 0.22 : 1;
      ink.fillStyle = row >= 0 ? view.colours(row) : hatch[layout.cause[r]];
      ink.fillRect(x, y, Math.max(wide, 0.5), M.LINE);
      if (layout.cause[r] === M.PENDING && wide > 2) {
        ink.fillStyle = "rgba(0,0,0,.45)";
        ink.fillRect(x, y + M.LINE - 4, wide, 4);
      }
      ink.globalAlpha = 1;
      if (wide > 3 && row >= 0) {
        ink.fillStyle = theme.card; // a hair between neighbours of one colour
        ink.fillRect(x + wide - 0.6, y, 0.6, M.LINE);
      }
      if (row >= 0 && pins.has(row)) marks.push(["pin", x, y, wide]);
      if (hits && row >= 0 && hits[row]) marks.push(["hit", x, y, wide]);
      if (r === view.hover) marks.push(["hover", x, y, wide]);
      if (r === view.chosen) marks.push(["chosen", x, y, wide]);
    }
    const { hole } = view;
    if (hole && hole.segment === piece.segment && hole.from < piece.to && hole.to > piece.from) {
      const [from, to] = [Math.max(hole.from, piece.from), Math.min(hole.to, piece.to)];
      marks.push(["hole", x0 + (from - piece.from) * scale, y, (to - from) * scale]);
    }
    ink.strokeStyle = theme.line;
    ink.lineWidth = 1;
    ink.beginPath(); // a segment that goes on in the next line is open at that side
    ink.moveTo(x0, y - 0.5);
    ink.lineTo(x0 + piece.width, y - 0.5);
    ink.moveTo(x0, y + M.LINE + 0.5);
    ink.lineTo(x0 + piece.width, y + M.LINE + 0.5);
    for (const [closed, x] of [
      [piece.begins, x0 - 0.5],
      [piece.ends, x0 + piece.width + 0.5],
    ]) {
      if (!closed) continue;
      ink.moveTo(x, y - 0.5);
      ink.lineTo(x, y + M.LINE + 0.5);
    }
    ink.stroke();
  }

  function paintMark(ink, kind, x, y, wide, theme) {
    const middle = x + wide / 2;
    if (kind === "pin") {
      ink.fillStyle = theme.ink;
      ink.beginPath();
      ink.moveTo(middle - 3.5, y - 5.5);
      ink.lineTo(middle + 3.5, y - 5.5);
      ink.lineTo(middle, y - 0.5);
      ink.fill();
      ink.strokeStyle = theme.ink;
      ink.lineWidth = 1.5;
      if (wide > 3) ink.strokeRect(x + 0.75, y + 0.75, wide - 1.5, M.LINE - 1.5);
      return;
    }
    if (kind === "hit" && wide < 1.5) {
      ink.fillStyle = theme.accent;
      ink.fillRect(middle - 0.75, y - 2, 1.5, M.LINE + 4);
      return;
    }
    const grow = kind === "hit" ? 0 : 1.5;
    ink.lineWidth = { chosen: 3, hole: 2.5, hover: 2 }[kind] ?? 1.5;
    ink.strokeStyle = kind === "hit" || kind === "hole" ? theme.accent : theme.ink;
    if (kind === "hole") ink.setLineDash([6, 3]);
    ink.strokeRect(x - grow, y - grow, Math.max(wide, 1) + 2 * grow, M.LINE + 2 * grow);
    ink.setLineDash([]);
  }
})();
