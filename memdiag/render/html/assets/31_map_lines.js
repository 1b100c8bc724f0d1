// How the address map is laid out: memory is written like text. Each pool and stream is a paragraph, its segments stand one after
// another, a segment
// longer than a line goes on in the next. So five segments and five thousand are readable, and zooming means fewer bytes to a line.
(() => {
  "use strict";

  M.LINE = 15; // pixels of a line of memory
  M.PITCH = 22; // and from one to the next
  M.HEAD = 30; // the heading of a pool and stream
  const APART = 3; // pixels between segments
  const THIN = 2; // a segment is at least this wide

  /**
   * Returns {lines, pieces, height, perLine}. lines: {y, head: group or null, first, end} over pieces: {segment, from, to, x, width},
   * where from and to
   * are addresses, and x is in pixels.
   */
  M.mapLines = (layout, groups, width, perLine) => {
    const scale = width / perLine;
    const order = layout.segments.map((_, i) => i);
    order.sort((a, b) => layout.segments[a].group - layout.segments[b].group || layout.segments[a].start - layout.segments[b].start);
    const lines = [];
    const pieces = [];
    let y = 4;
    let group = null;
    let line = null;
    let x = 0;
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
        const room = Math.max((width - x) / scale, 1);
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

  /** Returns the bytes to a line with which the whole map is about as high as asked for. */
  M.fitLine = (layout, width, height) => {
    const total = layout.sums.reserved;
    const largest = layout.segments.reduce((most, segment) => Math.max(most, segment.size), 1);
    let perLine = Math.max(total / 48, Math.min(largest, total / 12), 4096);
    for (let round = 0; round < 40 && perLine < total; round++) {
      if (M.mapLines(layout, [], width, perLine).height <= height) break;
      perLine *= 1.2;
    }
    return Math.min(perLine, Math.max(total, 4096));
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
