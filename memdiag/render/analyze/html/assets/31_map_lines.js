// How the address map is laid out: memory is written like text. Each pool and stream is a paragraph, its segments stand one after
// another, a segment
// longer than a line goes on in the next. So five segments and five thousand are readable, and zooming means fewer bytes to a line.
(() => {
  "use strict";

  M.LINE = 15; // pixels of a line of memory
  M.PITCH = 22; // and from one to the next
  M.HEAD = 30; // the heading of a pool and stream
  const APART = 3; // pixels between segments
  const SLACK = 36; // pixels at the end of a line for those gaps: a line then holds as many bytes as it says
  const MOST_REQUEST = 6; // lines that the request takes at most
  const THIN = 2; // a segment is at least this wide

  /**
   * Returns {lines, pieces, height, perLine}. lines: {y, head: group or null, first, end} over pieces: {segment, from, to, x, width},
   * where from and to are addresses, and x is in pixels. Above all others stands the request, if there is one: lines {y, request: pixels}.
   */
  M.mapLines = (layout, groups, width, perLine, request = 0) => {
    const scale = (width - SLACK) / perLine;
    const order = layout.segments.map((_, i) => i);
    order.sort((a, b) => layout.segments[a].group - layout.segments[b].group || layout.segments[a].start - layout.segments[b].start);
    const lines = [];
    const pieces = [];
    let y = 4;
    let group = null;
    let line = null;
    let x = 0;
    if (request > 0) {
      lines.push({ y, head: { request: true }, first: 0, end: 0 });
      y += M.HEAD;
      const full = Math.ceil(request / perLine);
      for (let i = 0; i < Math.min(full, MOST_REQUEST); i++) {
        const part = Math.min(request - i * perLine, perLine);
        lines.push({ y, head: null, first: 0, end: 0, request: Math.max(part * scale, THIN), cut: full > MOST_REQUEST && i === MOST_REQUEST - 1 });
        y += M.PITCH;
      }
    }
    const newLine = () => {
      if (line) line.end = pieces.length;
      line = { y, head: null, first: pieces.length, end: pieces.length };
      lines.push(line);
      y += M.PITCH;
      x = 0;
    };
    for (const i of order) {
      const segment = layout.segments[i];
      if (segment.group !== group || !line) {
        if (line) line.end = pieces.length;
        group = segment.group;
        lines.push({ y, head: { group, count: 0, bytes: 0 }, first: pieces.length, end: pieces.length });
        groups.push(lines[lines.length - 1].head);
        y += M.HEAD;
        line = null;
        newLine();
      }
      const head = groups[groups.length - 1];
      head.count += 1;
      head.bytes += segment.size;
      let left = segment.size;
      let from = segment.start;
      if (x > 0 && x + left * scale > width + 0.5) newLine();
      while (left > 0) {
        const room = x > 0 ? Math.max((width - x) / scale, 1) : perLine;
        const part = left <= room * 1.000001 ? left : room;
        const wide = Math.max(part * scale, THIN);
        pieces.push({ segment: i, from, to: from + part, x, width: wide, begins: from === segment.start, ends: part === left });
        from += part;
        left -= part;
        x += wide + APART;
        if (left > 0 || x >= width) {
          if (left > 0) newLine();
        }
      }
    }
    if (line) line.end = pieces.length;
    return { lines, pieces, height: y + 6, perLine };
  };

  /** Returns the bytes of a line, a power of two, with which the whole map is about as high as asked for. */
  M.fitLine = (layout, width, height, request) => {
    const total = layout.sums.reserved;
    const largest = layout.segments.reduce((most, segment) => Math.max(most, segment.size), 1);
    const powerOf = (bytes) => 2 ** Math.ceil(Math.log2(Math.max(bytes, 4096)));
    let perLine = powerOf(Math.max(total / 48, Math.min(largest, total / 16)));
    while (perLine < total && M.mapLines(layout, [], width, perLine, request).height > height) perLine *= 2;
    return Math.min(perLine, powerOf(total));
  };

  /** Returns the longest stretch of free memory in a pool and stream, {segment, from, to}; null: there is none. */
  M.largestHole = (layout, group) => {
    let best = null;
    let hole = null;
    for (let range = 0; range < layout.tensor.length; range++) {
      const segment = layout.segment[range];
      if (layout.tensor[range] >= 0 || layout.segments[segment].group !== group) continue;
      const [from, to] = [layout.start[range], layout.start[range] + layout.size[range]];
      if (hole && hole.segment === segment && hole.to === from) hole.to = to;
      else hole = { segment, from, to };
      if (!best || hole.to - hole.from > best.to - best.from) best = hole;
    }
    return best;
  };

  /** Returns the index of the range of the layout at an address of a segment. */
  M.rangeAt = (layout, segment, address) => {
    const { first, end } = layout.segments[segment];
    let [low, high] = [first, end - 1];
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (layout.start[middle] <= address) low = middle;
      else high = middle - 1;
    }
    return low;
  };
})();
