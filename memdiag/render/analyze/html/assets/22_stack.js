// The stack of the largest tensors, worked out for each column of pixels: tensors in the order of allocation from the bottom up, and
// the others on top. A column shows the fullest moment of the events that fall into it, so no peak is lost.
(() => {
  "use strict";

  /** Adds to a selection of tensors what its stack needs: {born, gone, size} of each band and the height of each part. */
  M.prepareBands = (bands, tensors) => {
    if (bands.height) return bands;
    const rows = bands.tensor.row ?? new Int32Array(0);
    const pick = (column) => Float64Array.from(rows, (row) => column[row]);
    Object.assign(bands, { rows, born: pick(tensors.alloc_at), gone: pick(tensors.free_completed_at), size: pick(tensors.block) });
    const { event } = bands.rest;
    const change = new Float64Array(bands.rest.n + 1);
    rows.forEach((_, i) => {
      change[Math.max(0, M.before(event, bands.born[i]))] += bands.size[i];
      const gone = M.before(event, bands.gone[i]);
      if (bands.gone[i] < bands.end && gone >= 0) change[gone] -= bands.size[i];
    });
    let held = 0;
    bands.height = Float64Array.from(bands.rest.bytes, (rest, i) => (held += change[i]) + rest);
    return bands;
  };

  /** Returns the part of the selection (index) that each of width columns shows of the events from..to. */
  M.stackParts = (bands, from, to, width) => {
    const { event, n } = bands.rest;
    const parts = new Int32Array(width);
    for (let column = 0; column < width; column++) {
      const first = Math.max(0, M.before(event, Math.floor(from + ((to - from) * column) / width)));
      const last = Math.max(first, M.before(event, Math.ceil(from + ((to - from) * (column + 1)) / width) - 1, n));
      let best = first;
      for (let part = first + 1; part <= last; part++) if (bands.height[part] > bands.height[best]) best = part;
      parts[column] = best;
    }
    return parts;
  };

  /** Calls visit(column, band, below, size) for every band in every column, from the bottom up; band -1 stands for the others. */
  M.walkStack = (bands, parts, visit) => {
    let live = [];
    let next = 0;
    let shown = -1;
    for (let column = 0; column < parts.length; column++) {
      const part = parts[column];
      if (part !== shown) {
        const at = bands.rest.event[part];
        live = live.filter((band) => bands.gone[band] > at);
        for (; next < bands.rows.length && bands.born[next] <= at; next++) if (bands.gone[next] > at) live.push(next);
        shown = part;
      }
      let below = 0;
      for (const band of live) {
        visit(column, band, below, bands.size[band]);
        below += bands.size[band];
      }
      visit(column, -1, below, bands.rest.bytes[part]);
    }
  };

  const channels = (colour) => [1, 3, 5].map((i) => parseInt(colour.slice(i, i + 2), 16));

  /**
   * Paints the stack into the pixels of a canvas, at a cost that depends on the pixels and not on the trace.
   * view: {bands, parts, width, height (device pixels), top: bytes at the upper edge, colours: band -> #rrggbb, card: #rrggbb}.
   */
  M.paintStack = (ink, view, x, y) => {
    const { width, height } = view;
    const image = ink.createImageData(width, height);
    const pixels = new Uint32Array(image.data.buffer);
    const packed = (colour, share) => {
      const [red, green, blue] = channels(M.mix(colour, "#000000", share));
      return (255 << 24) | (blue << 16) | (green << 8) | red;
    };
    const shades = new Map();
    const shade = (colour) => {
      if (!shades.has(colour)) shades.set(colour, [packed(colour, 0), packed(colour, 0.35)]);
      return shades.get(colour);
    };
    M.walkStack(view.bands, view.parts, (column, band, below, size) => {
      const bottom = height - Math.round((below / view.top) * height);
      const upper = height - Math.round(((below + size) / view.top) * height);
      if (upper >= bottom) return;
      const [fill, edge] = shade(view.colours(band));
      const begins = band >= 0 && bottom - upper > 2 && column > 0 && view.bands.born[band] > view.bands.rest.event[view.parts[column - 1]];
      for (let line = upper; line < bottom; line++) pixels[line * width + column] = begins ? edge : fill;
      if (band >= 0 && bottom - upper > 3) pixels[upper * width + column] = edge; // where it touches the band above
    });
    ink.putImageData(image, x, y);
  };

  /** Returns [[column, upper, lower] in bytes] of one band, to draw its outline. */
  M.outlineOf = (bands, parts, wanted) => {
    const found = [];
    M.walkStack(bands, parts, (column, band, below, size) => {
      if (band === wanted) found.push([column, below + size, below]);
    });
    return found;
  };
})();
