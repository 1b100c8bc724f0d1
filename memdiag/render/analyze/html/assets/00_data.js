// The data of the page: unpacked once, every column a typed array; after this nothing writes to it.
const M = {};

(() => {
  "use strict";

  // Columns of the tables of a device; everything else of it is plain JSON.
  const TABLES = ["curve", "instants", "phase_spans", "steps", "tensors", "regions", "flame", "envelope", "log"];

  /** Returns {n, column: typed array or null}; "d" columns hold differences, "s" is their unit. */
  M.table = (packed) => {
    const table = { n: (packed && packed.n) || 0 };
    for (const [name, column] of Object.entries(packed || {})) {
      if (name !== "n") table[name] = unpack(column);
    }
    return table;
  };

  function unpack(column) {
    if (!column || !column.v) return null;
    const values = column.v;
    const out = column.t === "i32" ? new Int32Array(values.length) : new Float64Array(values.length);
    const scale = column.s || 1;
    let sum = 0;
    for (let i = 0; i < values.length; i++) {
      sum = column.d ? sum + values[i] : values[i];
      out[i] = sum * scale;
    }
    return out;
  }

  function bytesOf(base64) {
    const binary = atob(base64.trim());
    const bytes = new Uint8Array(binary.length);
    for (let i = 0; i < binary.length; i++) bytes[i] = binary.charCodeAt(i);
    return bytes;
  }

  /** Unpacks the data of the page. The browser must know DecompressionStream (all since 2023 do). */
  M.load = async () => {
    const holder = document.getElementById("memdiag-data");
    const stream = new Blob([bytesOf(holder.textContent)]).stream().pipeThrough(new DecompressionStream("deflate"));
    const data = JSON.parse(await new Response(stream).text());
    holder.remove(); // megabytes that nobody needs again
    for (const device of data.devices) {
      for (const name of TABLES) device[name] = M.table(device[name]);
      for (const bands of device.bands || []) for (const name of ["tensor", "rest"]) bands[name] = M.table(bands[name]);
      device.categories_at = (device.categories_at || []).map(unpack);
    }
    for (const curve of data.simulated || []) curve.event = M.table(curve.event);
    return data;
  };

  /** Returns the index of the last value <= x in ascending values, or -1. */
  M.before = (values, x, n = values.length) => {
    let low = 0;
    let high = n;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (values[middle] <= x) low = middle + 1;
      else high = middle;
    }
    return low - 1;
  };

  /** Returns the index of the value nearest to x in ascending values. */
  M.nearest = (values, x, n = values.length) => {
    const left = M.before(values, x, n);
    if (left < 0) return 0;
    if (left >= n - 1) return n - 1;
    return x - values[left] <= values[left + 1] - x ? left : left + 1;
  };
})();
