// What is in memory at an instant: tensors, the rows of the map with their blocks and free ranges, and the sums that must come out.
(() => {
  "use strict";

  let kept = { key: "", live: null, layout: null };

  function cache() {
    const key = `${M.chosen.device}:${M.chosen.row}`;
    if (kept.key !== key) kept = { key, live: null, layout: null };
    return kept;
  }

  /** Returns {rows: tensors there at the chosen instant by address, pending: 0 or 1 each, allocated, active, requested}. */
  M.live = () => {
    const now = cache();
    if (!now.live) now.live = liveAt(M.device(), M.event());
    return now.live;
  };

  function liveAt(device, at) {
    const { tensors } = device;
    const found = [];
    for (let i = 0; i < tensors.n; i++) {
      if (tensors.alloc_at[i] <= at && at < tensors.free_completed_at[i]) found.push(i);
    }
    if (tensors.addr) found.sort((a, b) => tensors.addr[a] - tensors.addr[b]);
    const rows = Int32Array.from(found);
    const pending = new Uint8Array(rows.length);
    let [allocated, active, requested] = [0, 0, 0];
    rows.forEach((row, i) => {
      const waits = tensors.free_requested_at ? tensors.free_requested_at[row] <= at : false;
      pending[i] = waits ? 1 : 0;
      active += tensors.block[row];
      if (!waits) {
        allocated += tensors.block[row];
        requested += tensors.requested ? tensors.requested[row] : 0;
      }
    });
    return { rows, pending, allocated, active, requested };
  }

  /**
   * Returns the address map of the chosen instant, or null where there are no addresses.
   * segments: [{start, size, group, expandable, first, end}], ranges first..end of the columns below belong to it.
   * start, size; tensor (row, -1: free); cause (of free ranges: 0 cache, 1 stranded, 2 foreign; of blocks: 3, pending ones 4).
   */
  M.layout = () => {
    const now = cache();
    if (!now.layout && M.device().has_addresses) now.layout = layoutAt(M.device(), M.chosen.row, M.live());
    return now.layout;
  };
  M.PENDING = 4;
  M.BLOCK = 3;

  function segmentsAt(device, at) {
    const pieces = device.regions;
    const held = [];
    for (let i = 0; i < pieces.n; i++) if (pieces.opened_at[i] <= at && at < pieces.closed_at[i]) held.push(i);
    held.sort((a, b) => pieces.start[a] - pieces.start[b]);
    const out = [];
    let last = null;
    for (const i of held) {
      const expandable = Boolean(pieces.expandable && pieces.expandable[i]);
      const number = pieces.segment ? pieces.segment[i] : -1;
      const one = { start: pieces.start[i], size: pieces.size[i], group: pieces.group ? pieces.group[i] : -1, expandable, number };
      const touches = last && last.start + last.size === one.start && last.group === one.group;
      if (touches && ((last.expandable && expandable) || (number >= 0 && number === last.number))) last.size += one.size;
      else out.push((last = one));
    }
    return out;
  }

  function layoutAt(device, row, live) {
    const { tensors, instants } = device;
    const at = instants.event[row];
    const segments = segmentsAt(device, at);
    const request = instants.reference_size ? instants.reference_size[row] : -1;
    const mine = instants.reference_group ? instants.reference_group[row] : -1;
    const [start, size, tensor, cause, split] = [[], [], [], [], []];
    const sums = { reserved: 0, allocated: 0, active: 0, cache: 0, stranded: 0, foreign: 0, outside: 0 };

    // A free range is cut where its cause changes: whole pages of an expandable segment can be given back, its edges can not.
    const free = (segment, from, to) => {
      if (to <= from) return;
      const rest = segment.group !== mine ? 2 : to - from >= Math.max(request, 0) ? 0 : 1;
      const add = (a, b, why) => {
        if (b <= a) return;
        start.push(a);
        size.push(b - a);
        tensor.push(-1);
        cause.push(why);
        sums[M.data.causes[why]] += b - a;
      };
      if (from === segment.start && to === segment.start + segment.size) return add(from, to, 0);
      if (!segment.expandable) return add(from, to, rest);
      const small = device.groups[segment.group] && device.groups[segment.group].small;
      const page = small ? device.page_small : device.page_large;
      const first = segment.start + Math.ceil((from - segment.start) / page) * page;
      const end = segment.start + Math.floor((to - segment.start) / page) * page;
      if (end <= first) return add(from, to, rest);
      add(from, first, rest);
      add(first, end, 0);
      add(end, to, rest);
    };

    let next = 0;
    for (const segment of segments) {
      const end = segment.start + segment.size;
      segment.first = start.length;
      let edge = segment.start;
      for (; next < live.rows.length && tensors.addr[live.rows[next]] < end; next++) {
        const one = live.rows[next];
        const from = tensors.addr[one];
        const inside = from >= edge && from + tensors.block[one] <= end && !(tensors.group && tensors.group[one] < 0);
        if (!inside) {
          sums.outside += tensors.block[one];
          continue;
        }
        free(segment, edge, from);
        start.push(from);
        size.push(tensors.block[one]);
        tensor.push(one);
        cause.push(live.pending[next] ? M.PENDING : M.BLOCK);
        sums.active += tensors.block[one];
        if (!live.pending[next]) sums.allocated += tensors.block[one];
        edge = from + tensors.block[one];
      }
      free(segment, edge, end);
      segment.end = start.length;
      sums.reserved += segment.size;
    }
    for (; next < live.rows.length; next++) sums.outside += tensors.block[live.rows[next]];
    for (let i = 0; i < segments.length; i++) for (let k = segments[i].first; k < segments[i].end; k++) split.push(i);
    return {
      segments,
      start: Float64Array.from(start),
      size: Float64Array.from(size),
      tensor: Int32Array.from(tensor),
      cause: Uint8Array.from(cause),
      segment: Int32Array.from(split),
      sums,
    };
  }

  /** Returns [[name, sum of what is drawn, what the trace says]] at the chosen instant, only what both know. */
  M.sums = () => {
    const { instants } = M.device();
    const row = M.chosen.row;
    const layout = M.layout();
    const live = M.live();
    const drawn = layout
      ? { ...layout.sums, allocated: live.allocated, active: live.active }
      : { allocated: live.allocated, active: live.active };
    return ["reserved", "allocated", "active", "cache", "stranded", "foreign"]
      .filter((name) => name in drawn && instants[name] && instants[name][row] >= 0)
      .map((name) => [name, drawn[name], instants[name][row]]);
  };

  /** Returns frames of a stack, innermost first; [] where it is not known. */
  M.frames = (stack) => (stack >= 0 && M.data.stacks[stack] ? M.data.stacks[stack].map((frame) => M.data.frames[frame]) : []);

  const USER = 0; // kinds of frames; 1: an installed library
  const PYTORCH = 2; // and all of C++

  /** Returns the short name of a stack, the innermost frame that is not of a library; "" where there is none. */
  M.place = (stack) => M.data.labels[M.data.sites[stack] ?? -1] ?? "";
  M.isLibrary = (code) => M.data.kinds[code] !== USER;
  M.isPyTorch = (code) => M.data.kinds[code] === PYTORCH;

  M.tensorName = (row) => {
    const { tensors } = M.device();
    const name = tensors.name ? tensors.name[row] : -1;
    return name >= 0 ? M.data.strings[name] : "";
  };
  M.moduleName = (row) => {
    const { tensors } = M.device();
    const module = tensors.module ? tensors.module[row] : -1;
    const name = module >= 0 ? M.data.modules[module] : "";
    return M.known(`module.${name}`) ? M.t(`module.${name}`) : name;
  };
  M.categoryOf = (row) => (M.device().tensors.category ? M.device().tensors.category[row] : 0);
  M.lifetimeOf = (row) => (M.device().tensors.lifetime ? M.device().tensors.lifetime[row] : 0);
  /** Returns how long one tensor lives, and whether that was inferred from earlier steps. */
  M.lifetimeWords = (row) => {
    const name = M.word("lifetimes", M.lifetimeOf(row));
    const inferred = M.device().tensors.lifetime_inferred;
    return inferred && inferred[row] ? M.t("lifetime.inferred", { lifetime: name }) : name;
  };
  /** Returns what to call a tensor: its name, else where it was made, else its number. */
  M.titleOf = (row) =>
    M.tensorName(row) || M.place(M.device().tensors.stack ? M.device().tensors.stack[row] : -1) || M.t("tensor.unnamed", { row });
})();
