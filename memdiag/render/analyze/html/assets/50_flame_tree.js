// Call stacks summed up to a tree, outermost frame first, by one of several measures.
(() => {
  "use strict";

  // Measure: column of the device's flame table (null: the tensors of the chosen instant), and how its numbers are written.
  M.MEASURES = {
    "bytes-now": { column: null, write: (value) => M.bytes(value) },
    "bytes-time": { column: "kib_us", write: (value) => M.t("flame.gib-seconds", { value: number(value / 2 ** 20 / 1e6) }) },
    "bytes-events": { column: "kib_events", write: (value) => M.t("flame.gib-events", { value: number(value / 2 ** 20) }) },
    "total-bytes": { column: "total_bytes", write: (value) => M.bytes(value) },
    count: { column: "num_allocs", write: (value) => M.t("flame.allocations", { count: M.count(value) }) },
  };

  const number = (value) => (value >= 100 ? M.count(value) : value.toPrecision(3));

  /** Returns the measures that the device has, the first one first. */
  M.measures = () => {
    const { flame } = M.device();
    return Object.keys(M.MEASURES).filter((name) => {
      const { column } = M.MEASURES[name];
      if (name === "bytes-events" && flame.kib_us) return false; // real time says it better
      return column === null || (flame[column] && flame[column].length);
    });
  };

  /** Returns the value of each stack by a measure: Map of stack (-1: not known, -2: many small ones) to number. */
  function byStack(measure) {
    const { column } = M.MEASURES[measure];
    const { flame, tensors } = M.device();
    const values = new Map();
    if (column === null) {
      for (const row of M.live().rows) {
        const stack = tensors.stack ? tensors.stack[row] : -1;
        values.set(stack, (values.get(stack) ?? 0) + tensors.block[row]);
      }
    } else {
      for (let i = 0; i < flame.n; i++) values.set(flame.stack[i], (values.get(flame.stack[i]) ?? 0) + flame[column][i]);
    }
    return values;
  }

  // PyTorch's own frames are most of a deep stack and say least. Where nothing else is in a stack, the frame that names it stays.
  function without(frames, site) {
    const kept = frames.filter((frame) => frame < 0 || !M.isPyTorch(frame));
    return kept.length ? kept : [site];
  }

  /** Returns the tree: nodes {frame: index into frames or -1 / -2, value, own, depth, parent, children: sorted}. */
  M.flameTree = (measure, whole) => {
    const root = { frame: null, value: 0, own: 0, depth: 0, parent: null, children: new Map() };
    for (const [stack, value] of byStack(measure)) {
      if (!(value > 0)) continue;
      const known = stack >= 0 && M.data.stacks[stack] && M.data.stacks[stack].length;
      const all = known ? M.data.stacks[stack] : [stack < -1 ? -2 : -1];
      const frames = whole ? all : without(all, M.data.sites[stack]);
      let node = root;
      root.value += value;
      for (let i = frames.length - 1; i >= 0; i--) {
        let child = node.children.get(frames[i]);
        if (!child)
          node.children.set(
            frames[i],
            (child = { frame: frames[i], value: 0, own: 0, depth: node.depth + 1, parent: node, children: new Map() }),
          );
        child.value += value;
        node = child;
      }
      node.own += value;
    }
    const sort = (node) => {
      node.children = [...node.children.values()].sort((a, b) => b.value - a.value);
      node.children.forEach(sort);
    };
    sort(root);
    return root;
  };

  /**
   * Returns [{node, from, to, depth}] in shares of the width, with `top` over the whole width below its ancestors; narrow ones are left
   * out.
   */
  M.flameBoxes = (top, narrowest) => {
    const boxes = [];
    const above = [];
    for (let node = top; node; node = node.parent) above.unshift(node);
    above.forEach((node, depth) => boxes.push({ node, from: 0, to: 1, depth }));
    const lay = (node, from, depth) => {
      let x = from;
      for (const child of node.children) {
        const width = child.value / top.value;
        if (width >= narrowest) {
          boxes.push({ node: child, from: x, to: x + width, depth });
          lay(child, x, depth + 1);
        }
        x += width;
      }
    };
    if (top.value > 0) lay(top, 0, above.length);
    return boxes;
  };

  M.frameText = (node) => {
    if (node.frame === null) return M.t("flame.all");
    if (node.frame === -1) return M.t("flame.no-stack");
    if (node.frame === -2) return M.t("flame.small-ones");
    return M.data.frames[node.frame];
  };
})();
