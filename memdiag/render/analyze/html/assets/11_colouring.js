// What the colour of a tensor says: what it is, how long it lives, or where it was allocated. The map and the bands both offer the choice.
(() => {
  "use strict";

  /** Returns how tensors are told apart: {key: row -> key, name: key -> text, colour: key -> #rrggbb}. */
  M.colourKeys = (by) => {
    if (by === "sites") {
      const { line } = M.colours;
      const order = new Map();
      const key = (row) => M.place(M.device().tensors.stack?.[row] ?? -1);
      // The sites with most bytes of the trace get the colours; the others share the grey of what is unknown.
      const bytes = new Map();
      const { tensors } = M.device();
      for (let row = 0; row < tensors.n; row++) bytes.set(key(row), (bytes.get(key(row)) ?? 0) + tensors.block[row]);
      [...bytes]
        .sort((a, b) => b[1] - a[1])
        .slice(0, line.length)
        .forEach(([site], i) => order.set(site, site ? line[i] : M.colours.category.unknown));
      return {
        key: (row) => (order.has(key(row)) ? key(row) : null),
        name: (site) => (site === null ? M.t("colour.other-sites") : M.plain(site || M.t("tree.unnamed"), 60)),
        colour: (site) => order.get(site) ?? M.colours.category.unknown,
      };
    }
    const table = by === "lifetimes" ? M.colours.lifetime : M.colours.category;
    return {
      key: by === "lifetimes" ? M.lifetimeOf : M.categoryOf,
      name: (code) => M.word(by, code),
      colour: (code) => table[M.data[by][code]] ?? M.colours.category.unknown,
    };
  };

  /** Returns row -> #rrggbb; each row is looked up once. */
  M.tensorColours = (by) => {
    const { key, colour } = M.colourKeys(by);
    const kept = new Map();
    return (row) => {
      if (!kept.has(row)) kept.set(row, colour(key(row)));
      return kept.get(row);
    };
  };

  /** Returns the first of the ways that tells most of the bytes of these tensors apart: categories, lifetimes, else call sites. */
  M.knownColouring = (rows, ways = ["categories", "lifetimes"]) => {
    const { tensors } = M.device();
    const known = (of) => rows.reduce((sum, row) => sum + (of(row) > 0 ? tensors.block[row] : 0), 0);
    const all = rows.reduce((sum, row) => sum + tensors.block[row], 0);
    const shares = ways.map((way) => [way, known(way === "lifetimes" ? M.lifetimeOf : M.categoryOf) / Math.max(all, 1)]);
    const best = shares.find(([, share]) => share >= 0.5) ?? shares.reduce((a, b) => (b[1] > a[1] ? b : a));
    const placed = rows.some((row) => tensors.stack?.[row] >= 0);
    return best[1] > 0.1 || !placed ? best[0] : "sites";
  };

  /** Returns the buttons that choose. */
  M.colouring = (chosen, choose) =>
    M.choice(
      M.t("map.colour-by"),
      [
        ["categories", M.t("map.by-category")],
        ["lifetimes", M.t("map.by-lifetime")],
        ["sites", M.t("map.by-site")],
      ],
      chosen,
      choose,
    );
})();
