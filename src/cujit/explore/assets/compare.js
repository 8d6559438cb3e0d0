"use strict";

/* Two versions, or two architectures, side by side: what changed in the code, in what it takes, and in what it costs. */
const cujitComparison = (() => {
  const CONTEXT = 3, MOST_EDITS = 1500, MOST_ROWS = 4000;
  const LISTINGS = { sass: "SASS", ptx: "PTX", source: "Source" };
  const RESOURCES = [
    "registers", "shared_bytes", "stack_bytes", "spill_store_bytes", "spill_load_bytes", "barriers", "code_bytes",
  ];
  const ADDRESS = /^\s*\/\*[0-9a-f]+\*\/\s*/;
  const NUMBERED = [[/%([a-z]+)\d+/g, "%$1"], [/\b(U?[RP])\d+\b/g, "$1"], [/(\$?[.$]L_*[A-Za-z]*_?)\d+(_\d+)?/g, "$1"]];
  const spaced = (name) => name.replaceAll("_", " ");

  const masked = (line) => NUMBERED.reduce((text, [of, by]) => text.replaceAll(of, by), line);

  /* The shortest script of edits (Myers, 1986): pairs of lines of both, of which one is null where a line has no match.
     Lines beyond MOST_EDITS edits are shown as replaced. */
  function diff(before, after) {
    let begin = 0, ends = 0;
    const shorter = Math.min(before.length, after.length);
    while (begin < shorter && before[begin] === after[begin]) begin++;
    while (ends < shorter - begin && before[before.length - 1 - ends] === after[after.length - 1 - ends]) ends++;
    const equal = (count, a, b) => Array.from({ length: count }, (_, k) => [a + k, b + k]);
    const middle = edits(before.slice(begin, before.length - ends), after.slice(begin, after.length - ends));
    const moved = middle.map(([a, b]) => [a === null ? a : a + begin, b === null ? b : b + begin]);
    return [...equal(begin, 0, 0), ...moved, ...equal(ends, before.length - ends, after.length - ends)];
  }

  function edits(before, after) {
    const n = before.length, m = after.length, most = Math.min(n + m, MOST_EDITS), farthest = new Int32Array(2 * most + 3);
    const trace = [];
    for (let d = 0; d <= most; d++) {
      trace.push(farthest.slice(most - d, most + d + 3));
      for (let k = -d; k <= d; k += 2) {
        const at = k + most + 1, isDown = k === -d || (k !== d && farthest[at - 1] < farthest[at + 1]);
        let x = isDown ? farthest[at + 1] : farthest[at - 1] + 1;
        while (x < n && x - k < m && before[x] === after[x - k]) x++;
        farthest[at] = x;
        if (x >= n && x - k >= m) return backwards(trace, n, m);
      }
    }
    return [...before.map((_, k) => [k, null]), ...after.map((_, k) => [null, k])];
  }

  function backwards(trace, n, m) {
    const found = [];
    let x = n, y = m;
    for (let d = trace.length - 1; d >= 0; d--) {
      const row = trace[d], at = (k) => row[k + d + 1], k = x - y;
      const isDown = k === -d || (k !== d && at(k - 1) < at(k + 1));
      const wasK = isDown ? k + 1 : k - 1, wasX = d ? at(wasK) : 0, wasY = d ? wasX - wasK : 0;
      while (x > wasX && y > wasY) found.push([--x, --y]);
      if (d) found.push(isDown ? [null, --y] : [--x, null]);
    }
    return found.reverse();
  }

  /* Rows of pairs: removed and added lines that follow each other stand beside each other; equal ones that are far
     from any change are one row that counts them. */
  function rowsOf(pairs) {
    const rows = [];
    let removed = [], added = [];
    const flush = () => {
      for (let k = 0; k < Math.max(removed.length, added.length); k++) rows.push([removed[k] ?? null, added[k] ?? null, true]);
      removed = [];
      added = [];
    };
    for (const [a, b] of pairs) {
      if (a !== null && b !== null) flush();
      if (a === null) added.push(b);
      else if (b === null) removed.push(a);
      else rows.push([a, b, false]);
    }
    flush();
    const near = new Set(rows.flatMap(([, , is], k) => (is ? Array.from({ length: 2 * CONTEXT + 1 }, (_, j) => k - CONTEXT + j) : [])));
    const shown = [];
    rows.forEach((row, k) => {
      if (near.has(k)) shown.push(row);
      else if (typeof shown.at(-1) === "number") shown[shown.length - 1]++;
      else shown.push(1);
    });
    return shown;
  }

  class Comparison {
    /* `ask(arch)` gives the record of the same scene for another architecture, or null. */
    constructor(drawing, arches, ask) {
      Object.assign(this, { drawing, arches, ask, kept: [], now: null, other: null });
      const { h } = drawing;
      this.with = h("select", { id: "compare-with", onchange: () => this.update() });
      this.kind = h("select", { id: "compare-kind", onchange: () => this.draw() },
        Object.entries(LISTINGS).map(([value, words]) => h("option", { value }, words)));
      this.masks = h("input", { id: "compare-registers", type: "checkbox", onchange: () => this.draw() });
      this.masks.checked = true;
      this.keeps = h("button", { type: "button", id: "keep", disabled: "", onclick: () => this.keep() }, "Keep this version");
      this.said = h("p", { id: "compare-said", role: "status", "aria-live": "polite" });
      this.body = h("div", { id: "compare-body" });
      this.options = h("span", { class: "bar" }, h("label", {}, "Listing ", this.kind),
        h("label", {}, this.masks, " Ignore register and label numbers"));
      this.section = h("section", { id: "compare", "aria-labelledby": "compare-title" },
        h("div", { class: "bar" }, h("h2", { id: "compare-title" }, "Comparison"), h("label", {}, "Compare with ", this.with),
          this.keeps, this.options), this.said, this.body);
      this.isNarrow = matchMedia("(max-width: 50rem)");
      this.isNarrow.addEventListener("change", () => this.draw());
      this.offer("");
    }

    offer(value) {
      const { h } = this.drawing, option = ([key, words]) => h("option", { value: key }, words);
      const group = (label, pairs) => (pairs.length ? h("optgroup", { label }, pairs.map(option)) : null);
      const kept = this.kept.map(({ name }, k) => [`kept:${k}`, name]);
      const parts = [option(["", "nothing"]), group("Kept versions", kept), group("Architectures", this.arches.map((arch) => [arch, arch]))];
      this.with.replaceChildren(...parts.filter(Boolean));
      this.with.value = value;
      this.arrange();
    }

    arrange() {
      this.options.hidden = !this.with.value;
    }

    keep() {
      const time = new Date().toLocaleTimeString("en-GB"), { arch } = this.now;
      this.kept.push({ ...this.now, name: `version ${this.kept.length + 1} (${arch}, ${time})` });
      this.offer(`kept:${this.kept.length - 1}`);
      this.update();
    }

    /* Show a record that came, beside what is chosen. */
    async update(record, arch) {
      if (record) this.now = { record, arch, name: `this version (${arch})` };
      if (!this.now) return;
      this.keeps.disabled = false;
      this.arrange();
      const value = this.with.value, { now } = this;
      if (value.startsWith("kept:")) this.other = this.kept[Number(value.slice(5))];
      else if (value) {
        this.said.textContent = `Compiling for ${value} …`;
        const found = await this.ask(value);
        if (this.now !== now || this.with.value !== value) return;
        this.other = found && { record: found, arch: value, name: value };
        if (!found) this.said.textContent = `There is nothing for ${value} to compare with.`;
      } else this.other = null;
      this.draw();
    }

    draw() {
      if (!this.other) {
        this.body.replaceChildren();
        if (!this.with.value) this.said.textContent = "";
        return;
      }
      const { h } = this.drawing;
      this.body.replaceChildren(
        h("div", { class: "tables" }, this.resources(), this.counters()), this.code(this.kind.value));
    }

    table(caption, rows) {
      const { table, write, scrolled } = this.drawing, columns = ["what", this.other.name, this.now.name, "change"];
      const cells = rows.filter(([, a, b]) => a || b).map(([name, a, b]) => {
        const change = b - a, share = a && change ? `, ${change > 0 ? "+" : "−"}${write(Math.round(Math.abs(100 * change) / a))} %` : "";
        return [name, a, b, change ? `${change > 0 ? "+" : "−"}${write(Math.abs(change))}${share}` : "equal"];
      });
      return cells.length ? scrolled(caption, table(caption, columns, cells)) : null;
    }

    resources() {
      const kernels = ({ record }) => new Map(record.inspections.flatMap(({ images }) => images).filter(({ kind }) => kind === "cubin")
        .flatMap((image) => image.kernels).map((kernel) => [kernel.name, kernel]));
      const before = kernels(this.other), after = kernels(this.now), both = [...after.keys()].filter((name) => before.has(name));
      const label = (name, of) => (both.length > 1 ? `${after.get(name).display}: ${spaced(of)}` : spaced(of));
      const rows = both.flatMap((name) => RESOURCES.map((of) => [label(name, of), before.get(name)[of] || 0, after.get(name)[of] || 0]));
      const full = ({ record }) => (record.kernels.length === 1 && record.kernels[0].occupancy) || {};
      const share = (found) => +(100 * (found.occupancy || 0)).toFixed(1);
      return this.table("Resources", [...rows, ["occupancy in %", share(full(this.other)), share(full(this.now))]]);
    }

    counters() {
      const of = ({ record }) => (record.kernels.find(({ profile }) => profile) || {}).profile;
      const before = of(this.other), after = of(this.now);
      if (!before || !after) return null;
      const names = [...new Set([...Object.keys(before.totals), ...Object.keys(after.totals)])];
      return this.table("Counters", names.map((name) => [spaced(name), before.totals[name] || 0, after.totals[name] || 0]));
    }

    code(kind) {
      const { h, counted, scrolled } = this.drawing;
      const lines = ({ record }) => (record.listings.find((each) => each.kind === kind) || { lines: [] }).lines.map((line) => line.replace(ADDRESS, ""));
      const before = lines(this.other), after = lines(this.now), mask = this.masks.checked && kind !== "source" ? masked : (line) => line;
      const pairs = diff(before.map(mask), after.map(mask)), rows = rowsOf(pairs).slice(0, MOST_ROWS);
      const removed = pairs.filter(([, b]) => b === null).length, added = pairs.filter(([a]) => a === null).length;
      this.said.textContent = before.length && after.length
        ? `${LISTINGS[kind]}: ${removed || added ? `${counted(removed, "line")} removed, ${counted(added, "line")} added` : "no difference"}.`
        : `There is no ${LISTINGS[kind]} to compare.`;
      if (!removed && !added) return null;
      const made = this.isNarrow.matches ? this.unified(rows, before, after) : this.beside(rows, before, after);
      const pair = () => [h("col", { class: "at" }), h("col")], columns = this.isNarrow.matches ? pair() : [...pair(), ...pair()];
      return scrolled(`Differences of ${LISTINGS[kind]}`, h("table", { class: "diff" },
        h("caption", {}, `Differences of ${LISTINGS[kind]}`), h("colgroup", {}, columns), h("tbody", {}, made)));
    }

    /* A cell of one line, with a sign beside its color. */
    cell(at, lines, sign) {
      const { h } = this.drawing, is = at !== null;
      const kind = sign === "−" ? "removed" : sign === "+" ? "added" : "";
      return [h("td", { class: "at" }, is ? String(at + 1) : ""), h("td", { class: is ? `text ${kind}` : "text" }, is ? `${sign} ${lines[at]}` : "")];
    }

    skipped(count, columns) {
      const { h, counted } = this.drawing;
      return h("tr", { class: "skipped" }, h("td", { colspan: columns }, `… ${counted(count, "equal line")}`));
    }

    beside(rows, before, after) {
      const { h } = this.drawing, [minus, plus, none] = ["−", "+", " "];
      const head = h("tr", {}, h("th", { scope: "colgroup", colspan: 2 }, this.other.name), h("th", { scope: "colgroup", colspan: 2 }, this.now.name));
      return [head, ...rows.map((row) => (typeof row === "number" ? this.skipped(row, 4)
        : h("tr", {}, this.cell(row[0], before, row[2] ? minus : none), this.cell(row[1], after, row[2] ? plus : none))))];
    }

    unified(rows, before, after) {
      const { h } = this.drawing, line = (...cells) => h("tr", {}, ...cells);
      return rows.flatMap((row) => {
        if (typeof row === "number") return [this.skipped(row, 2)];
        if (!row[2]) return [line(this.cell(row[1], after, " "))];
        return [row[0] !== null && line(this.cell(row[0], before, "−")), row[1] !== null && line(this.cell(row[1], after, "+"))].filter(Boolean);
      });
    }
  }

  return { Comparison, diff, rowsOf };
})();
