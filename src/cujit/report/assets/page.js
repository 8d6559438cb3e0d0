"use strict";

/* The page of a report. `render(record)` draws all of it anew and keeps what was picked, where that is still there.
   All text is foreign (sources, names): it becomes text nodes and attributes, and is never read as HTML.

   A page with an editor defines `window.cujitEditor(container, {pick, hover})` before this script. It gives an object
   in place of the list of source: `show(listing)`, `heat(map)` of a line to {share, text}, `mark(name, lines)` with
   the name "hovered" or "picked" and a Set of lines, `reveal(line)`, `focus()`. */
const cujitReport = (() => {
  const { h, table, scrolled, write, percent, counted, micros, picture, roofline, curve } = cujitDrawing;
  const KINDS = ["source", "tileir", "ptx", "sass"];
  const TITLES = { source: "Source", tileir: "Tile IR", ptx: "PTX", sass: "Machine code" };
  const NOUNS = { source: "source", tileir: "Tile IR", ptx: "PTX", sass: "machine code" };
  const RATIOS = { sectors_per_request: ["sectors", "requests"], active_lanes: ["active", "warps"] };
  /* Lines of PTX that are no code: comments, directives that only tools read, declarations of registers. */
  const QUIET = /^\s*(\/\/|\.(loc|file|section|version|target|address_size|reg|pragma|b8|b16|b32|b64)\b|$)/;
  const HIGHEST = new Set(["most_contended"]);
  /* What does not add up over instructions: lines have their own. */
  const APART = {
    distinct_sectors: (row) => row.distinct_sectors || 0,
    reuse: (row) => (row.distinct_sectors ? row.sectors / row.distinct_sectors : 0),
  };
  const $ = (id) => document.getElementById(id);
  const base = (file) => file.split("/").pop();
  const spaced = (name) => name.replaceAll("_", " ");

  const state = { record: null, kernel: "", measure: "", file: "", picked: null, access: -1 };
  let panes = {}, links = null, heats = {};

  // -- elements ----------------------------------------------------------------------------------------------

  const none = (why) => h("p", { class: "none" }, why);

  function choose(select, options, value) {
    const found = options.some((option) => option.value === value) ? value : options.length ? options[0].value : "";
    const groups = new Map();
    for (const { value: v, text, group } of options) {
      if (!groups.has(group)) groups.set(group, []);
      groups.get(group).push(h("option", { value: v }, text));
    }
    const parts = [...groups].flatMap(([name, made]) => (name ? [h("optgroup", { label: name }, made)] : made));
    select.replaceChildren(...parts);
    select.value = found;
    return found;
  }

  // -- what belongs together ------------------------------------------------------------------------------------

  const keyOf = (file, line) => `${file}:${line}`;

  function push(map, key, value) {
    if (!map.has(key)) map.set(key, []);
    map.get(key).push(value);
  }

  /* Lines of source are keys `file:line`, those of Tile IR, PTX and machine code numbers. */
  function linksOf(record) {
    const maps = () => ({ tileir: new Map(), ptx: new Map(), sass: new Map() }), found = { sources: maps(), of: maps(), ...maps() };
    for (const listing of record.listings) {
      if (listing.kind === "source") continue;
      listing.lines.forEach((_, k) => {
        const line = listing.first + k, source = listing.sources[k];
        if (source) {
          const key = keyOf(listing.files[source[0]], source[1]);
          found.sources[listing.kind].set(line, key);
          push(found.of[listing.kind], key, line);
        }
        if (listing.ptx_lines[k]) {
          found.ptx.set(line, listing.ptx_lines[k]);
          push(found.sass, listing.ptx_lines[k], line);
        }
      });
    }
    return found;
  }

  function linked(kind, line) {
    const behind = (key) => ({
      source: key ? [key] : [], tileir: links.of.tileir.get(key) || [], ptx: links.of.ptx.get(key) || [],
      sass: links.of.sass.get(key) || [],
    });
    if (kind === "source") return behind(line);
    const all = behind(links.sources[kind].get(line));
    if (kind === "tileir") return { ...all, tileir: [line] };
    if (kind === "ptx") return { ...all, ptx: [line], sass: links.sass.get(line) || (links.ptx.size ? [] : all.sass) };
    const ptx = links.ptx.get(line);
    return { ...all, ptx: ptx ? [ptx] : links.ptx.size ? [] : all.ptx, sass: [line] };
  }

  // -- lists of lines ---------------------------------------------------------------------------------------------

  class Lines {
    /* A list that arrow keys go through: the focus stays on the list, and `at` is the line that it is on. */
    constructor(kind, container) {
      this.kind = kind;
      this.list = h("div", {
        role: "listbox", tabindex: 0, class: `lines ${kind}`, "aria-label": TITLES[kind],
        onkeydown: (event) => this.key(event), onmousedown: (event) => this.press(event),
        onclick: (event) => this.click(event), onmouseover: (event) => this.over(event),
        onmouseleave: () => hover(null), onfocus: () => this.go(this.at), onblur: () => hover(null),
      });
      this.rows = [];
      this.at = 0;
      this.isFiltered = false;
      this.hottest = [];
      container.append(this.list);
    }

    /* Hide what is no code, or show it again. */
    filter(is) {
      this.isFiltered = is;
      this.rows.forEach((row) => { row.hidden = is && QUIET.test(row.lastChild.textContent); });
      if (this.rows[this.at] && this.rows[this.at].hidden) this.at = this.beside(this.at, 1);
      this.point();
    }

    /* The next line in a direction that is shown. */
    beside(k, step) {
      let at = k + step;
      while (this.rows[at] && this.rows[at].hidden) at += step;
      return this.rows[at] ? at : this.rows[k] && !this.rows[k].hidden ? k : this.rows.findIndex((row) => !row.hidden);
    }

    show(listing) {
      this.first = listing.first;
      const width = String(listing.first + listing.lines.length).length;
      this.list.style.setProperty("--digits", width);
      this.rows = listing.lines.map((text, k) => {
        const digits = h("span", { class: "digits" }, String(listing.first + k));
        const attributes = { role: "option", id: `${this.kind}-${k}`, class: "row", "aria-selected": "false" };
        return h("div", attributes, digits, h("span", { class: "heat" }), h("span", { class: "code" }, this.parts(text)));
      });
      this.list.replaceChildren(...this.rows);
      this.at = Math.min(this.at, Math.max(this.rows.length - 1, 0));
      this.list.setAttribute("aria-label", `${TITLES[this.kind]}, ${listing.name}`);
      this.filter(this.isFiltered);
    }

    /* A line of code, with its opcode apart, if there is a sentence about that. */
    parts(text) {
      const word = opcodeOf(this.kind, text), at = word ? text.indexOf(word) : -1;
      return at < 0 ? text || " "
        : [text.slice(0, at), h("span", { class: "op", "data-kind": this.kind, "data-word": word }, word), text.slice(at + word.length)];
    }

    explain() {
      const op = this.rows[this.at] && this.rows[this.at].querySelector(".op");
      if (!op) return;
      showTip(op, this.kind, op.dataset.word);
      $("status").textContent = `${op.dataset.word}: ${meaningOf(this.kind, op.dataset.word)[0]}`;
    }

    heat(map) {
      this.list.classList.toggle("counted", map.size > 0);
      this.list.style.setProperty("--counts", Math.max(4, ...[...map.values()].map((heat) => heat.text.length)));
      this.rows.forEach((row, k) => {
        const found = map.get(this.first + k);
        row.children[1].textContent = found ? found.text : "";
        row.style.setProperty("--share", found ? found.share.toFixed(4) : "0");
      });
      this.hottest = [...map].sort((a, b) => b[1].share - a[1].share).map(([line]) => line - this.first)
        .filter((k) => k >= 0 && k < this.rows.length);
    }

    mark(name, lines) {
      this.rows.forEach((row, k) => {
        const is = lines.has(this.first + k);
        row.classList.toggle(name, is);
        if (name === "picked") row.setAttribute("aria-selected", String(is));
      });
    }

    reveal(line) {
      const k = line - this.first, row = this.rows[k];
      if (!row) return;
      this.at = k;
      this.point();
      const top = row.offsetTop, height = this.list.clientHeight;
      if (top < this.list.scrollTop || top + row.offsetHeight > this.list.scrollTop + height) {
        this.list.scrollTop = Math.max(0, top - height / 3);
      }
    }

    focus() {
      this.list.focus({ preventScroll: true });
    }

    point() {
      const row = this.rows[this.at];
      if (row) this.list.setAttribute("aria-activedescendant", row.id);
      else this.list.removeAttribute("aria-activedescendant");
      for (const other of this.list.querySelectorAll(".at")) if (other !== row) other.classList.remove("at");
      if (row) row.classList.add("at");
    }

    go(k) {
      if (!this.rows.length) return;
      const at = Math.max(0, Math.min(k, this.rows.length - 1));
      this.reveal(this.first + (this.rows[at].hidden ? this.beside(at, at < this.at ? -1 : 1) : at));
      hover(this.kind, this.first + this.at);
    }

    key(event) {
      if (event.ctrlKey || event.altKey || event.metaKey) return;
      const row = this.rows[this.at], page = row ? Math.max(1, Math.floor(this.list.clientHeight / row.offsetHeight) - 1) : 1;
      const done = {
        ArrowUp: () => this.go(this.beside(this.at, -1)), ArrowDown: () => this.go(this.beside(this.at, 1)),
        PageUp: () => this.go(this.at - page), PageDown: () => this.go(this.at + page),
        Home: () => this.go(0), End: () => this.go(this.rows.length - 1),
        Enter: () => pick(this.kind, this.first + this.at), " ": () => pick(this.kind, this.first + this.at),
        Escape: () => hideTip() || pick(null), i: () => this.explain(), ArrowLeft: () => aside(this.kind, -1), ArrowRight: () => aside(this.kind, 1),
        h: () => this.go(this.nextHot()), m: () => $("measure").focus(), "?": () => $("keys").showModal(),
      }[event.key];
      if (!done) return;
      event.preventDefault();
      done();
    }

    nextHot() {
      const now = this.hottest.indexOf(this.at);
      return this.hottest.length ? this.hottest[(now + 1) % this.hottest.length] : this.at;
    }

    lineOf(event) {
      const row = event.target.closest(".row");
      return row ? this.rows.indexOf(row) : -1;
    }

    /* Before the list gets the focus, which would bring another line in sight. */
    press(event) {
      const k = this.lineOf(event);
      if (k < 0) return;
      this.at = k;
      this.point();
    }

    click(event) {
      const k = this.lineOf(event);
      if (k >= 0 && !String(document.getSelection())) pick(this.kind, this.first + k);
    }

    over(event) {
      const k = this.lineOf(event);
      if (k >= 0) hover(this.kind, this.first + k);
    }
  }

  // -- what instructions and counters mean -----------------------------------------------------------------------

  const TIP_MS = 250, WORDS = 4;
  let tipTimer = 0;

  const meaningOf = (kind, word) => ((state.record.meanings || {})[kind] || {})[word];
  const opcodeOf = (kind, text) => (text.match(/[^\s;,]+/g) || []).slice(0, WORDS).find((word) => Object.hasOwn((state.record.meanings || {})[kind] || {}, word));

  function explanation(kind, word) {
    const [sentence, section] = meaningOf(kind, word), [name, link] = state.record.meanings.manuals[kind];
    const manual = h("a", { href: link, target: "_blank", rel: "noopener noreferrer" }, section ? `${name}, section ${section}` : name);
    return [h("b", {}, word.includes("__") ? word : spaced(word)), `: ${sentence} `, manual];
  }

  /* Below what it is about, or above where there is no room; it stays while the pointer is on it, for its link. */
  function showTip(node, kind, word) {
    clearTimeout(tipTimer);
    const tip = $("tip"), at = node.getBoundingClientRect();
    tip.replaceChildren(...explanation(kind, word));
    tip.hidden = false;
    const { width, height } = tip.getBoundingClientRect(), isBelow = at.bottom + height + 4 < innerHeight;
    tip.style.left = `${Math.max(4, Math.min(at.left, innerWidth - width - 4))}px`;
    tip.style.top = `${isBelow ? at.bottom + 2 : Math.max(0, at.top - height - 2)}px`;
  }

  function hideTip() {
    clearTimeout(tipTimer);
    const was = !$("tip").hidden;
    $("tip").hidden = true;
    return was;
  }

  /* What the pointer is on: an opcode, or the head of a row that names a counter. */
  function toldOf(node) {
    const op = node.closest && node.closest(".op"), head = node.closest && node.closest("th[scope=row]");
    if (op) return [op, op.dataset.kind, op.dataset.word];
    const name = head && [head.textContent, head.textContent.replaceAll(" ", "_")].find((each) => meaningOf("counter", each));
    return name ? [head, "counter", name] : null;
  }

  function pointed(event) {
    if (event.target.closest && event.target.closest("#tip")) return clearTimeout(tipTimer);
    clearTimeout(tipTimer);
    const found = toldOf(event.target);
    tipTimer = setTimeout(() => (found ? showTip(...found) : hideTip()), TIP_MS);
    return tipTimer;
  }

  function drawMeaning() {
    const [, name] = state.measure.split(":");
    $("measure-meaning").replaceChildren(...(name && meaningOf("counter", name) ? explanation("counter", name) : []));
  }

  // -- hovering and picking ---------------------------------------------------------------------------------------

  /* From a line of a list to what it is among links, and back for the file that is shown. */
  const linkKey = (kind, line) => (kind === "source" ? keyOf(state.file, line) : line);
  const lineOfKey = (key) => Number(key.slice(key.lastIndexOf(":") + 1));
  const fileOfKey = (key) => key.slice(0, key.lastIndexOf(":"));

  function mark(name, found) {
    for (const kind of KINDS) {
      if (!panes[kind]) continue;
      const lines = (found && found[kind]) || [];
      const shown = kind === "source" ? lines.filter((key) => fileOfKey(key) === state.file).map(lineOfKey) : lines;
      panes[kind].mark(name, new Set(shown));
    }
  }

  function hover(kind, line) {
    mark("hovered", kind ? linked(kind, linkKey(kind, line)) : null);
  }

  function pick(kind, line) {
    pickKey(kind, kind && linkKey(kind, line), false);
  }

  function pickKey(kind, key, all) {
    state.picked = kind ? { kind, key } : null;
    state.access = -1;
    showPicked(all ? null : kind);
    $("status").textContent = state.picked ? sayPicked() : "No line is picked.";
  }

  /* Mark the picked line and what belongs to it, and bring it in sight, but in the list `but` where it is. */
  function showPicked(but) {
    const found = state.picked ? linked(state.picked.kind, state.picked.key) : null;
    const file = found && found.source.length ? fileOfKey(found.source[0]) : state.file;
    if (file !== state.file && listingsOf("source").some((listing) => listing.name === file)) showFile(file);
    mark("picked", found);
    for (const kind of KINDS) {
      if (!found || !panes[kind] || kind === but || !found[kind].length) continue;
      const first = found[kind][0];
      panes[kind].reveal(kind === "source" ? lineOfKey(first) : first);
    }
    drawLine();
    drawAccess();
  }

  const places = {
    source: (key) => keyOf(base(fileOfKey(key)), lineOfKey(key)),
    tileir: (line) => `line ${line} of the Tile IR`,
    ptx: (line) => `line ${line} of the PTX`,
    sass: (line) => `line ${line} of the machine code`,
  };

  function sayPicked() {
    const { kind, key } = state.picked, found = linked(kind, key), hot = heats[kind].get(key);
    const many = (lines) => (lines.length ? `${counted(lines.length, "line")} of` : "no");
    const say = (other) => `${many(found[other])} ${NOUNS[other]}`;
    const others = KINDS.filter((other) => other !== kind && panes[other]).map(say).join(", ");
    const heat = hot ? `${hot.text} ${measureName()}, ${percent(hot.share)} of the hottest line; ` : "";
    return `${places[kind](key)}: ${heat}${others}.`;
  }

  function aside(kind, step) {
    const there = KINDS.filter((each) => panes[each]), to = there[there.indexOf(kind) + step];
    if (!to) return;
    const key = linkKey(kind, panes[kind].first + panes[kind].at), found = linked(kind, key)[to];
    if (to === "source" && found.length && fileOfKey(found[0]) !== state.file) showFile(fileOfKey(found[0]));
    panes[to].focus();
    if (found.length) panes[to].reveal(to === "source" ? lineOfKey(found[0]) : found[0]);
    if (panes[to].go && panes[to].at !== undefined) panes[to].go(panes[to].at);
  }

  // -- heat -------------------------------------------------------------------------------------------------------

  /* Two kernels may have one name: a kernel is known by its number, too. */
  const kernelKey = (kernel, k) => `${k}:${kernel.name}`;
  const kernelNow = () => state.record.kernels.find((kernel, k) => kernelKey(kernel, k) === state.kernel) || null;
  const profileNow = () => (kernelNow() || {}).profile || null;
  const measureName = () => spaced(state.measure.split(":").pop());

  function measuresOf(profile) {
    if (!profile) return [];
    const { totals, metrics } = profile;
    const option = (group, kind, say) => (name) => ({ value: `${kind}:${name}`, text: say(name), group });
    return [
      ...state.record.measures.filter((name) => totals[name]).map(option("Counters", "counter", spaced)),
      ...Object.keys(RATIOS).filter((name) => totals[RATIOS[name][1]]).map(option("Ratios", "ratio", spaced)),
      ...Object.keys(APART).filter(() => profile.distinct_sectors).map(option("Sectors, each once", "apart", spaced)),
      ...Object.keys(metrics).filter((name) => metrics[name])
        .map(option("As Nsight Compute calls them", "metric", (name) => name)),
    ];
  }

  /* What to begin with: what the first advice is about, or else memory, or else instructions. */
  function firstMeasure(profile, options) {
    const advised = (profile ? profile.advice : []).map(({ measure }) => (RATIOS[measure] || [measure])[0]);
    const values = [...advised, "sectors", "warps"].map((name) => `counter:${name}`);
    return values.find((value) => options.some((option) => option.value === value)) || "";
  }

  /* By kind of list and line: the measure that is chosen, as a share of the highest, and in words. */
  function heatOf(profile) {
    const [kind, name] = state.measure.split(":"), [over, under] = kind === "ratio" ? RATIOS[name] : [name, ""];
    const sums = { source: new Map(), ptx: new Map() };
    const apart = kind === "apart" ? APART[name] : null;
    const add = (map, key, row) => {
      const value = apart ? apart(row) : (kind === "metric" ? row.metrics : row)[over] || 0;
      const [most, below] = map.get(key) || [0, 0];
      map.set(key, [apart || HIGHEST.has(name) ? Math.max(most, value) : most + value, below + (row[under] || 0)]);
    };
    for (const row of profile ? profile.instructions : []) {
      add(sums.ptx, row.ptx_line, row);
      if (row.source && !apart) add(sums.source, row.source, row);
    }
    for (const row of profile && apart ? profile.lines : []) if (row.source) add(sums.source, row.source, row);
    const heat = (map) => {
      const values = [...map].map(([key, [most, below]]) => [key, under ? (below ? most / below : 0) : most]);
      const highest = Math.max(...values.map(([, value]) => value), 0);
      const hot = values.filter(([, value]) => value);
      return new Map(hot.map(([key, value]) => [key, { share: value / highest, text: write(value) }]));
    };
    const ptx = heat(sums.ptx);
    return { source: heat(sums.source), tileir: new Map(), ptx, sass: heatOfSass(ptx, name) };
  }

  /* The instructions of machine code that do what a counter counts; any other counter is of every instruction. */
  const COUNTED = [
    [/^(flops|tensor_flops|smsp__sass_thread|sm__ops)/, /^(U?[FDH](ADD|MUL|FMA|FFMA)2?|U?FFMA2?|\w*MMA|MUFU)\b/],
    [/^(divergent|smsp__sass_branch)/, /^(BRA|BRX|BSSY|BSYNC|EXIT|RET|CALL)\b/],
    [/^(barriers)/, /^(BAR|UCGABAR\w*|SYNCS)\b/],
    [/^(warps|active|threads|smsp__inst|smsp__thread)/, /^/],
    [/^/, /^(LD|ST|ATOM|RED|SU|TEX|TLD|UBLK|UTMA)/],
  ];

  /* A line of machine code has the count of the PTX that it comes from, if it is of a kind that such a count is of. */
  function heatOfSass(ptx, name) {
    const [, counts] = COUNTED.find(([names]) => names.test(name)), found = new Map();
    for (const { first, lines, ptx_lines: from } of listingsOf("sass")) {
      lines.forEach((text, k) => {
        const hot = ptx.get(from[k]), word = hot && opcodeOf("sass", text);
        if (word && counts.test(word)) found.set(first + k, hot);
      });
    }
    return found;
  }

  function drawHeat() {
    heats = heatOf(profileNow());
    for (const kind of KINDS) {
      if (!panes[kind]) continue;
      const shown = [...heats.source].filter(([key]) => fileOfKey(key) === state.file);
      const own = new Map(shown.map(([key, heat]) => [lineOfKey(key), heat]));
      panes[kind].heat(kind === "source" ? own : heats[kind]);
    }
  }

  /* A page begins where it is hottest. */
  function begin() {
    const [hottest] = [...heats.source].sort((a, b) => b[1].share - a[1].share);
    const file = hottest && fileOfKey(hottest[0]);
    if (hottest && listingsOf("source").some((listing) => listing.name === file)) showFile(file);
    const found = hottest ? linked("source", hottest[0]) : null;
    for (const kind of KINDS) {
      if (!(panes[kind] instanceof Lines)) continue;
      const [line] = kind === "source" || !found ? [] : found[kind];
      if (line || panes[kind].hottest.length) panes[kind].reveal(line || panes[kind].first + panes[kind].hottest[0]);
    }
  }

  // -- the lists ----------------------------------------------------------------------------------------------------

  const listingsOf = (kind) => state.record.listings.filter((listing) => listing.kind === kind);

  function drawPanes() {
    const there = KINDS.filter((kind) => listingsOf(kind).length);
    for (const kind of KINDS.filter((each) => panes[each] && !there.includes(each))) {
      panes[kind].pane.remove();
      delete panes[kind];
    }
    there.forEach((kind, k) => { if (!panes[kind]) $("panes").insertBefore(makePane(kind), $("panes").children[k] || null); });
    const files = listingsOf("source").map((listing) => listing.name);
    const select = $("file");
    if (select) {
      state.file = choose(select, files.map((file) => ({ value: file, text: base(file) })), state.file);
      select.parentElement.hidden = files.length < 2;
      $("name-source").hidden = files.length > 1;
    }
    for (const kind of there) {
      const listing = listingsOf(kind).find((each) => kind !== "source" || each.name === state.file);
      $(`name-${kind}`).textContent = base(listing.name);
      panes[kind].show(listing);
    }
  }

  function makePane(kind) {
    const name = h("span", { class: "name", id: `name-${kind}` });
    const head = h("div", { class: "head" }, h("h3", {}, TITLES[kind]), name);
    const pane = h("div", { class: `pane ${kind}` }, head);
    if (kind === "source") {
      const select = h("select", { id: "file", onchange: (event) => showFile(event.target.value) });
      head.append(h("label", {}, "File ", select));
    }
    if (kind === "ptx") {
      const box = h("input", { id: "code-only", type: "checkbox", onchange: () => panes.ptx.filter(box.checked) });
      head.append(h("label", {}, box, " Code only"));
    }
    const says = { pick: (line) => pick(kind, line), hover: (line) => hover(line ? kind : null, line) };
    const isEdited = kind === "source" && window.cujitEditor;
    panes[kind] = isEdited ? window.cujitEditor(pane, says) : new Lines(kind, pane);
    panes[kind].pane = pane;
    return pane;
  }

  function showFile(file) {
    state.file = file;
    $("file").value = file;
    $("name-source").textContent = base(file);
    panes.source.show(listingsOf("source").find((listing) => listing.name === file));
    drawHeat();
    mark("picked", state.picked && linked(state.picked.kind, state.picked.key));
  }

  // -- findings -------------------------------------------------------------------------------------------------------

  /* What compilers and checks found, and then advice. */
  function findings() {
    const { advice } = profileNow() || { advice: [] };
    const said = ({ rule, line, measure, finding, cause, cure, estimate }) =>
      ({ rule, source: line, measure, text: `${finding}: ${cause}`, cure, estimate });
    return [...state.record.errors, ...advice.map(said)];
  }

  /* The picture of what two threads did; its markup is our own, and its texts are escaped. */
  function pictureOf(story) {
    if (!story) return null;
    const picture = new DOMParser().parseFromString(story, "image/svg+xml").documentElement;
    return h("div", { class: "scrolled", tabindex: 0, role: "group", "aria-label": "What the threads did" }, picture);
  }

  function itemOf(finding) {
    const kind = finding.source ? "source" : finding.ptx_line ? "ptx" : "", key = finding.source || finding.ptx_line;
    const follow = (event) => followed(event, kind, key, finding.measure);
    const place = kind ? [h("a", { href: "#texts", onclick: follow }, places[kind](key)), ": "] : [];
    const cure = finding.cure ? h("p", { class: "cure" }, h("b", {}, "Hint: "), finding.cure) : null;
    const estimate = finding.estimate ? h("p", { class: "estimate" }, finding.estimate) : null;
    const parts = Object.entries((state.record.rules || {})[finding.rule] || {});
    const rule = parts.length ? h("details", {}, h("summary", {}, "About this rule"),
      ...parts.map(([title, text]) => h("p", {}, h("b", {}, `${title}: `), text))) : null;
    const name = h("strong", { class: "rule" }, spaced(finding.rule));
    return h("li", {}, name, " ", place, finding.text, cure, estimate, rule, pictureOf(finding.story));
  }

  function drawFindings() {
    const items = findings().map(itemOf), { notes } = state.record;
    const why = profileNow() ? "No rule sees anything that costs more than it has to." : "No launch was counted.";
    $("finding-list").replaceChildren(...(items.length ? items : [h("li", { class: "none" }, why)]));
    $("notes").replaceChildren(...notes.map((note) => h("li", {}, note)));
    $("notes").hidden = !notes.length;
  }

  function followed(event, kind, key, measure) {
    event.preventDefault();
    const option = [...$("measure").options].find((each) => each.value.split(":").pop() === measure);
    if (option) setMeasure(option.value);
    pickKey(kind, key, true);
    $("texts").scrollIntoView();
    if (panes[kind]) panes[kind].focus();
  }

  // -- one line -----------------------------------------------------------------------------------------------------

  function rowsOfPicked() {
    const profile = profileNow();
    if (!profile || !state.picked) return [];
    const lines = new Set(linked(state.picked.kind, state.picked.key).ptx), { kind, key } = state.picked;
    return profile.instructions.filter((row) => (kind === "source" ? row.source === key : lines.has(row.ptx_line)));
  }

  /* What the instruction of the picked line does, for who has no pointer to ask it. */
  function drawInstruction() {
    const { kind, key } = state.picked || {}, listing = kind && kind !== "source" && listingsOf(kind)[0];
    const word = listing && opcodeOf(kind, listing.lines[key - listing.first] || "");
    $("line-instruction").replaceChildren(...(word ? explanation(kind, word) : []));
  }

  function drawLine() {
    drawInstruction();
    const rows = rowsOfPicked(), picked = state.picked;
    if (!picked || !rows.length) {
      const nothing = picked ? `Nothing was counted at ${places[picked.kind](picked.key)}.` : "Select a line first.";
      $("line-body").replaceChildren(none(profileNow() ? nothing : "No launch was counted."));
      return;
    }
    const { totals } = profileNow(), names = state.record.measures.filter((name) => rows.some((row) => row[name]));
    const cells = names.map((name) => {
      const values = rows.map((row) => row[name] || 0);
      if (HIGHEST.has(name)) return [spaced(name), Math.max(...values), ""];
      const sum = values.reduce((all, value) => all + value, 0);
      return [spaced(name), sum, percent(sum / totals[name])];
    });
    const whole = rows.length === 1 ? rows[0] : profileNow().lines.find(({ source }) => source === picked.key);
    for (const [name, of] of Object.entries(APART)) if (whole && of(whole)) cells.push([spaced(name), of(whole), ""]);
    const caption = `${places[picked.kind](picked.key)}, ${counted(rows.length, "instruction")} of PTX`;
    $("line-body").replaceChildren(table(caption, ["counter", "count", "of the launch"], cells));
  }

  // -- one access --------------------------------------------------------------------------------------------

  const accessesOf = (rows) => rows.flatMap((row) => (row.accesses || []).map((access) => ({ row, access })));

  /* What a request takes: the access that takes most is shown first. */
  const taken = ({ row, access }) =>
    (access.space === "shared" ? row.wavefronts / row.shared_requests : row.sectors / row.requests) || 0;

  function drawAccess() {
    const profile = profileNow();
    const found = accessesOf(state.picked ? rowsOfPicked() : profile ? profile.instructions : []);
    if (!found.length) {
      const why = state.picked ? "This line accesses no memory that is counted." : "No access to memory was counted.";
      $("access-body").replaceChildren(none(profile ? why : "No launch was counted."));
      return;
    }
    const most = found.reduce((at, each, k) => (taken(each) > taken(found[at]) ? k : at), 0);
    const at = found[state.access] ? state.access : most, { row, access } = found[at], shown = picture(access);
    const space = (each) => (each.row.accesses.length > 1 ? `, ${each.access.space}` : "");
    const name = (each) => `${each.row.ptx_line}: ${each.row.text}${space(each)}`;
    const choice = h("select", { id: "access-of" }, found.map((each, k) => h("option", { value: k }, name(each))));
    choice.value = String(at);
    choice.addEventListener("change", () => {
      state.access = Number(choice.value);
      drawAccess();
      $("access-of").focus();
    });
    const rows = access.lanes.map((lane) => [String(lane[0]), lane[1], lane[2], shown.of(lane)]);
    const cells = table(`Lanes of ${row.text}`, ["lane", "byte", "bytes", shown.unit], rows);
    $("access-body").replaceChildren(
      h("p", {}, h("label", {}, "Instruction ", choice)), h("p", { class: "said" }, shown.said),
      scrolled("Picture of the access", shown.drawn), h("details", {}, h("summary", {}, "As a table"), cells));
  }

  // -- plots and tables --------------------------------------------------------------------------------------

  function drawPlots() {
    const { profile, occupancy } = kernelNow() || {}, made = [];
    if (profile && profile.bounds) made.push(boundsFigure(profile));
    if (occupancy) made.push(occupancyFigure(occupancy));
    $("plots-body").replaceChildren(...made);
    $("plots").hidden = !made.length;
  }

  function boundsFigure(profile) {
    const { bounds, gpu, clock_mhz: clock, not_modelled: not } = profile.bounds;
    const said = bounds.length ? `${bounds[0].unit}, a lower bound of ${micros(bounds[0].bound_s)}` : "no bound";
    const rows = bounds.map((bound) => [
      bound.unit, `${write(Math.round(bound.amount))} ${bound.what}`, micros(bound.bound_s),
      percent(bound.bound_s / bounds[0].bound_s), bound.line ? `${base(bound.line)}, ${percent(bound.share)}` : "",
      bound.cause || bound.assumes,
    ]);
    const columns = ["unit", "work", "lower bound", "share of the highest", "most work at", "cause or assumption"];
    const title = h("b", {}, `Bounds on ${gpu} at ${write(clock)} MHz: ${said}. `);
    return h("figure", {}, h("figcaption", {}, title, `Not modeled: ${not}.`),
      profile.roofs.flops_per_s && profile.bounds.flops_per_byte ? scrolled("Roofline", roofline(profile))
        : none("There are no floating-point operations, so there is no roofline."),
      scrolled("Bounds", table(`Lower bounds on ${gpu}, highest first`, columns, rows)));
  }

  function occupancyFigure(found) {
    if (found.error) return none(`No occupancy: ${found.error}.`);
    const title = `Occupancy on ${found.gpu}, blocks of ${write(found.block)}: ${percent(found.occupancy)}, `
      + `${counted(found.active_blocks, "block")}, ${write(found.active_warps)} of ${write(found.max_warps)} warps, `
      + `limited by ${found.limited_by.join(" and ")}.`;
    const uses = ` ${write(found.registers)} registers per thread, `
      + `${write(found.static_shared_bytes)} bytes of static shared memory per block. The curves show percentages.`;
    const curves = found.curves.map((each) => curve(each, found.occupancy));
    return h("figure", {}, h("figcaption", {}, h("b", {}, title), uses),
      scrolled("Occupancy", h("div", { class: "curves" }, curves)),
      table("Blocks that each limit alone leaves room for", ["limit", "blocks"], Object.entries(found.limits)));
  }

  const SIZES = ["launches", "blocks", "warps", "threads", "distinct_sectors", "block_sectors"];
  const OF_KERNELS = ["registers", "shared_bytes", "stack_bytes", "spill_store_bytes", "code_bytes", "max_threads"];

  function drawTables() {
    const profile = profileNow();
    $("counters").hidden = !profile;
    if (profile) {
      const rows = (values) => Object.entries(values).filter(([, value]) => value);
      const named = (values) => rows(values).map(([name, value]) => [spaced(name), value]);
      const sizes = named(Object.fromEntries(SIZES.map((name) => [name, profile[name]])));
      const metrics = rows({ ...profile.metrics, ...profile.metrics_of_ptx });
      const kinds = profile.arithmetic.map((row) => [row.pipe, row.type, row.threads]);
      const counters = ["counter", "count"], caption = "As Nsight Compute calls them; smsp and sm are counted of PTX";
      $("counters-body").replaceChildren(
        table("Sizes of the launch", ["what", "count"], sizes),
        table("Counted, all lines together", counters, named(profile.totals)),
        scrolled("Counters as Nsight Compute calls them", table(caption, counters, metrics)),
        table("Threads by part of a multiprocessor and type", ["part", "type", "threads"], kinds));
    }
    const { inspections } = state.record, images = inspections.flatMap((each) => each.images);
    $("image").hidden = !inspections.length;
    const cells = images.flatMap((image) => image.kernels.map((kernel) => {
      const kind = `${image.kind} ${kernel.arch || image.arch || ""}`;
      return [kernel.display, kind, ...OF_KERNELS.map((name) => kernel[name] ?? "")];
    }));
    const said = inspections.map((each) => `${each.name || each.kind} (${counted(each.bytes, "byte")})`).join(", ");
    const columns = ["kernel", "image", ...OF_KERNELS.map(spaced)];
    $("image-body").replaceChildren(scrolled("Kernels", table(`Kernels of ${said}`, columns, cells)));
  }

  // -- all of it ------------------------------------------------------------------------------------------------------

  function setMeasure(value) {
    state.measure = value;
    $("measure").value = value;
    drawHeat();
    drawMeaning();
    if (state.picked) $("status").textContent = sayPicked();
  }

  function drawKernel() {
    const profile = profileNow(), options = measuresOf(profile);
    const stays = options.some((option) => option.value === state.measure);
    const wanted = stays ? state.measure : firstMeasure(profile, options);
    $("measure-label").hidden = !options.length;
    const times = profile && `${write(profile.launches)} launch${profile.launches === 1 ? "" : "es"}`;
    const size = profile && `${times}, ${counted(profile.blocks, "block")}, ${counted(profile.threads, "thread")}`;
    $("about").textContent = size ? `${size}; counted on the CPU device` : "";
    setMeasure(choose($("measure"), options, wanted));
    drawFindings();
    drawPlots();
    drawTables();
    showPicked(null);
  }

  function isThere({ kind, key }) {
    const [file, line] = kind === "source" ? [fileOfKey(key), lineOfKey(key)] : ["", key];
    const holds = (each) => line >= each.first && line < each.first + each.lines.length;
    return listingsOf(kind).some((each) => (kind !== "source" || each.name === file) && holds(each));
  }

  /* Draw a record; a line that was picked stays so where it is still there. */
  function render(record) {
    const isFirst = !state.record;
    state.record = record;
    document.title = record.title;
    $("title").textContent = record.title;
    $("footer").textContent = `Written by cujit ${record.cujit}`;
    links = linksOf(record);
    const kernels = record.kernels.map((kernel, k) => ({ value: kernelKey(kernel, k), text: kernel.name }));
    state.kernel = choose($("kernel"), kernels, state.kernel);
    $("kernel-label").hidden = record.kernels.length < 2;
    drawPanes();
    if (state.picked && !isThere(state.picked)) state.picked = null;
    drawKernel();
    if (isFirst) begin();
  }

  $("theme").addEventListener("change", (event) => { document.documentElement.dataset.theme = event.target.value; });
  $("measure").addEventListener("change", (event) => setMeasure(event.target.value));
  $("kernel").addEventListener("change", (event) => { state.kernel = event.target.value; drawKernel(); });
  document.addEventListener("mouseover", pointed);
  document.addEventListener("scroll", () => { $("tip").hidden = true; }, { capture: true, passive: true });
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") hideTip(); });
  $("keys-open").addEventListener("click", () => $("keys").showModal());
  render(JSON.parse($("record").textContent));
  return { render, begin, pick: pickKey, state };
})();
window.cujitReport = cujitReport;
