// Words, numbers and colours as they are shown. Text of the trace is hostile: it reaches the page as text nodes only, through plain().
(() => {
  "use strict";

  const UNITS = [
    ["TiB", 2 ** 40],
    ["GiB", 2 ** 30],
    ["MiB", 2 ** 20],
    ["KiB", 2 ** 10],
  ];
  const NOT_PRINTABLE = /[\p{C}\p{Zl}\p{Zp}]|(?! )\p{Zs}/gu;

  M.lang = "en";

  /**
   * Returns the words under a key in the chosen language (English where it has none), {names} filled in; {n:one|many} chooses by
   * number.
   */
  M.t = (key, fill) => {
    const text = (M.words[M.lang] && M.words[M.lang][key]) ?? M.words.en[key] ?? key;
    if (!fill) return text;
    return text
      .replace(/\{(\w+):([^|}]*)\|([^}]*)\}/g, (_, name, one, many) => (String(fill[name]) === "1" ? one : many))
      .replace(/\{(\w+)\}/g, (whole, name) => (Object.hasOwn(fill, name) ? String(fill[name]) : whole));
  };
  M.known = (key) => key in (M.words[M.lang] || {});

  /** Returns bytes as memdiag writes them everywhere: 1.50 GiB, 512 B. */
  M.bytes = (value) => {
    if (value === null || value === undefined) return M.t("unknown");
    for (const [unit, size] of UNITS) {
      if (Math.abs(value) >= size) return `${(value / size).toFixed(2)} ${unit}`;
    }
    return `${value} B`;
  };
  /** Returns bytes in few characters, for axes and labels: 1.5 GiB, 40 GiB; as many that values a step apart look different. */
  M.short = (value, step = Infinity) => {
    for (const [unit, size] of UNITS) {
      if (Math.abs(value) >= size) {
        const number = value / size;
        const digits = Math.min(Math.ceil(Math.log10(size / step)), 6);
        return `${+number.toFixed(Math.max(digits, number < 10 ? 2 : 1))} ${unit}`;
      }
    }
    return `${Math.round(value)} B`;
  };
  /** Returns an address as debuggers write it; those of the page count from the lowest one. */
  M.address = (value) => `0x${(M.device().base + value).toString(16)}`;
  M.count = (value) =>
    Math.round(value)
      .toString()
      .replace(/\B(?=(\d{3})+$)/g, ",");
  M.percent = (part, whole) => {
    if (!whole || !part) return "0%";
    const share = (100 * part) / whole;
    return share < 0.1 ? "<0.1%" : `${share.toFixed(share < 99.95 ? 1 : 0)}%`;
  };
  M.us = (value) => {
    if (Math.abs(value) >= 1e6) return `${(value / 1e6).toFixed(2)} s`;
    return Math.abs(value) >= 1e3 ? `${(value / 1e3).toFixed(1)} ms` : `${Math.round(value)} µs`;
  };

  /** Returns text of the trace with all that is invisible or turns writing around as escapes; the middle goes where it is too long. */
  M.plain = (value, limit = 300) => {
    let text = String(value);
    if (text.length > limit) {
      const tail = Math.floor(((limit - 1) * 2) / 3);
      text = `${text.slice(0, limit - 1 - tail)}…${text.slice(text.length - tail)}`;
    }
    return text.replace(NOT_PRINTABLE, (char) => {
      const code = char.codePointAt(0).toString(16);
      return code.length > 4 ? `\\U${code.padStart(8, "0")}` : `\\u${code.padStart(4, "0")}`;
    });
  };

  /** Returns an element. Keys of props: class, text, on (listeners), data (dataset), and attributes by their names; null leaves out. */
  M.el = (tag, props = {}, ...children) => {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(props)) {
      if (value === null || value === undefined || value === false) continue;
      if (name === "class") element.className = value;
      else if (name === "text") element.textContent = value;
      else if (name === "on") for (const [event, act] of Object.entries(value)) element.addEventListener(event, act);
      else if (name === "data") Object.assign(element.dataset, value);
      else if (name === "style")
        Object.assign(element.style, value); // through the object model: the policy of the page stays strict
      else element.setAttribute(name, value === true ? "" : value);
    }
    element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
    return element;
  };
  M.$ = (id) => document.getElementById(id);
  M.fill = (element, ...children) => element.replaceChildren(...children.flat(Infinity).filter(Boolean));
  M.button = (text, act, props = {}) => M.el("button", { type: "button", class: "tool", text, on: { click: act }, ...props });

  /** Returns a group of buttons of which one is pressed. */
  M.choice = (label, options, chosen, choose) =>
    M.el(
      "span",
      { class: "choice", role: "group", "aria-label": label },
      options.map(([value, text]) =>
        M.el("button", {
          type: "button",
          text,
          "aria-pressed": String(value === chosen),
          data: { value: String(value) },
          on: { click: () => choose(value) },
        }),
      ),
    );

  // The palette that plots, terminal and viewer share (memdiag/vocabulary.py): {kind: {class: colour}, line: [colours]}.
  M.colours = window.MEMDIAG_COLOURS;
  /** Returns a colour (#rrggbb) with a share of another one in it. */
  M.mix = (colour, other, share) => {
    const part = (text, i) => parseInt(text.slice(1 + 2 * i, 3 + 2 * i), 16);
    return `#${[0, 1, 2]
      .map((i) =>
        Math.round(part(colour, i) * (1 - share) + part(other, i) * share)
          .toString(16)
          .padStart(2, "0"),
      )
      .join("")}`;
  };
  /** Returns the ink (dark or white) that is readable on a colour (#rrggbb). */
  M.inkOn = (colour) => {
    const [red, green, blue] = [1, 3, 5].map((i) => (parseInt(colour.slice(i, i + 2), 16) / 255) ** 2.2);
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.2 ? "#10151b" : "#ffffff";
  };
  M.css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  /** Returns the name of a code of one of the fixed lists (category, lifetime, phase, cause) in the chosen language. */
  M.word = (list, code) => {
    const key = `${list}.${M.data[list][code]}`;
    return M.known(key) || key in M.words.en ? M.t(key) : String(M.data[list][code]).replace(/_/g, " ");
  };
})();
