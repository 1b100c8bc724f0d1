// The search box: which tensors, frames, findings and settings contain the text (upper and lower case are one).
(() => {
  "use strict";

  let kept = { query: "", names: null, modules: null, frames: null, stacks: null, tensors: new Map() };

  const flags = (texts, query) => Uint8Array.from(texts, (text) => (String(text).toLowerCase().includes(query) ? 1 : 0));

  function matches() {
    const query = M.chosen.query;
    if (kept.query !== query) {
      const frames = flags(M.data.frames, query);
      kept = {
        query,
        frames,
        names: flags(M.data.strings, query),
        modules: flags(M.data.modules, query),
        stacks: Uint8Array.from(M.data.stacks, (stack) => (stack.some((frame) => frames[frame]) ? 1 : 0)),
        tensors: new Map(),
      };
    }
    return kept;
  }

  /** Returns a flag for each tensor of the device, or null when nothing is searched for. */
  M.hits = () => {
    if (!M.chosen.query) return null;
    const found = matches();
    if (!found.tensors.has(M.chosen.device)) {
      const { tensors } = M.device();
      const kinds = M.data.categories.map((name, code) => [name, M.word("categories", code)].join(" "));
      const lives = M.data.lifetimes.map((name, code) => [name, M.word("lifetimes", code)].join(" "));
      const [byKind, byLife] = [flags(kinds, found.query), flags(lives, found.query)];
      const out = new Uint8Array(tensors.n);
      const has = (column, table, i) => column && column[i] >= 0 && table[column[i]];
      for (let i = 0; i < tensors.n; i++) {
        const hit =
          has(tensors.name, found.names, i) ||
          has(tensors.module, found.modules, i) ||
          has(tensors.stack, found.stacks, i) ||
          has(tensors.category, byKind, i) ||
          has(tensors.lifetime, byLife, i);
        out[i] = hit ? 1 : 0;
      }
      found.tensors.set(M.chosen.device, out);
    }
    return found.tensors.get(M.chosen.device);
  };

  M.frameHits = () => (M.chosen.query ? matches().frames : null);
  M.textHit = (...texts) =>
    !M.chosen.query ||
    texts.some((text) =>
      String(text ?? "")
        .toLowerCase()
        .includes(M.chosen.query),
    );
  M.findingHit = (finding) =>
    M.textHit(
      finding.code,
      finding.title,
      finding.saving,
      ...finding.evidence.flat(),
      ...finding.fixes.flatMap((fix) => [fix.title, fix.change, fix.caveat]),
    );

  /** Returns how much was found: {tensors, here, bytes, frames, findings}; null when nothing is searched for. */
  M.found = () => {
    const hits = M.hits();
    if (!hits) return null;
    const { tensors } = M.device();
    let [here, bytes] = [0, 0];
    for (const row of M.live().rows) {
      if (hits[row]) {
        here += 1;
        bytes += tensors.block[row];
      }
    }
    const sum = (list) => list.reduce((total, one) => total + one, 0);
    return {
      tensors: sum(hits),
      here,
      bytes,
      frames: sum(matches().frames),
      findings: M.data.finding_words.filter(M.findingHit).length,
    };
  };

  M.search = (text) => {
    const query = text.trim().toLowerCase();
    if (query === M.chosen.query) return;
    M.chosen.query = query;
    M.tell("search");
  };

  M.showFound = () => {
    const box = M.$("found");
    const found = M.found();
    box.hidden = !found;
    if (!found) return;
    const nothing = !found.tensors && !found.frames && !found.findings;
    M.fill(
      box,
      M.el("span", {
        text: nothing
          ? M.t("search.nothing")
          : M.t("search.found", {
              tensors: M.count(found.tensors),
              here: M.count(found.here),
              bytes: M.bytes(found.bytes),
              frames: M.count(found.frames),
              findings: found.findings,
            }),
      }),
      found.here ? M.el("a", { href: "#tensors", text: M.t("search.to-tensors") }) : null,
      found.frames ? M.el("a", { href: "#flame", text: M.t("search.to-flame") }) : null,
      found.findings ? M.el("a", { href: "#findings", text: M.t("search.to-findings") }) : null,
    );
  };
})();
