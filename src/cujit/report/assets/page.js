"use strict";

/* The page of a report. `render(record)` draws all of it anew and keeps what was picked, where that is still there.
   All text is foreign (sources, names): it becomes text nodes and attributes, and is never read as HTML.

   A page with an editor defines `window.cujitEditor(container, {pick, hover})` before this script. It gives an object
   in place of the list of source: `show(listing)`, `heat(map)` of a line to {share, text}, `mark(name, lines)` with
   the name "hovered" or "picked" and a Set of lines, `reveal(line)`, `focus()`. */
const cujitReport = (() => {
  const SVG = "http://www.w3.org/2000/svg";
  const SECTOR = 32, WORD = 4, BANKS = 32, WARP = 32, CACHE_LINE = 128;
  const KINDS = ["source", "ptx", "sass"];
  const TITLES = { source: "Source", ptx: "PTX", sass: "Machine code" };
  const NOUNS = { source: "source", ptx: "PTX", sass: "machine code" };
  const RATIOS = { sectors_per_request: ["sectors", "requests"], active_lanes: ["active", "warps"] };
  const HIGHEST = new Set(["most_contended"]);
  const $ = (id) => document.getElementById(id);

  const state = { record: null, kernel: "", measure: "", file: "", picked: null, access: -1 };
  let panes = {}, links = null, heats = {};

  // -- elements ------------------------------------------------------------------------------------------------

  function fill(node, attributes, children) {
    for (const [name, value] of Object.entries(attributes || {})) {
      if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
      else if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value);
    }
    for (const child of children.flat()) if (child !== null && child !== undefined) node.append(child);
    return node;
  }
  const h = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
  const s = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);
  const write = (value) => (Number.isInteger(value) ? value.toLocaleString("en") : String(+value.toPrecision(4)));
  const percent = (share) => `${(100 * share).toLocaleString("en", { maximumFractionDigits: 1 })} %`;
  const counted = (count, noun) => `${write(count)} ${noun}${count === 1 ? "" : "s"}`;
  const base = (file) => file.split("/").pop();

  /* Cells that are numbers stand right; the first of a row is its head. */
  function table(caption, columns, rows) {
    const cell = (value, k) => {
      const text = typeof value === "number" ? write(value) : value;
      const attributes = { class: typeof value === "number" ? "number" : null };
      return k ? h("td", attributes, text) : h("th", { scope: "row" }, text);
    };
    return h("table", {}, h("caption", {}, caption),
      h("thead", {}, h("tr", {}, columns.map((column) => h("th", { scope: "col" }, column)))),
      h("tbody", {}, rows.map((row) => h("tr", {}, row.map(cell)))));
  }
  const scrolled = (label, ...children) => h("div", { class: "scrolled", tabindex: 0, role: "group", "aria-label": label }, ...children);

  function choose(select, options, value) {
    const found = options.some((option) => option.value === value) ? value : options.length ? options[0].value : "";
    const groups = new Map();
    for (const { value: v, text, group } of options) {
      if (!groups.has(group)) groups.set(group, []);
      groups.get(group).push(h("option", { value: v }, text));
    }
    select.replaceChildren(...[...groups].flatMap(([name, made]) => (name ? [h("optgroup", { label: name }, made)] : made)));
    select.value = found;
    return found;
  }

  // -- what belongs together ------------------------------------------------------------------------------------

  const keyOf = (file, line) => `${file}:${line}`;

  function push(map, key, value) {
    if (!map.has(key)) map.set(key, []);
    map.get(key).push(value);
  }

  /* Lines of source are keys `file:line`, those of PTX and machine code numbers. */
  function linksOf(record) {
    const found = { sources: { ptx: new Map(), sass: new Map() }, of: { ptx: new Map(), sass: new Map() }, sass: new Map(), ptx: new Map() };
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
    if (kind === "source") {
      return { source: [line], ptx: links.of.ptx.get(line) || [], sass: links.of.sass.get(line) || [] };
    }
    const source = links.sources[kind].get(line);
    const sources = source ? [source] : [];
    if (kind === "ptx") {
      const sass = links.sass.get(line) || (links.ptx.size ? [] : links.of.sass.get(source) || []);
      return { source: sources, ptx: [line], sass };
    }
    const ptx = links.ptx.get(line);
    return { source: sources, ptx: ptx ? [ptx] : links.ptx.size ? [] : links.of.ptx.get(source) || [], sass: [line] };
  }

  // -- lists of lines ---------------------------------------------------------------------------------------------

  class Lines {
    /* A list that arrow keys go through: the focus stays on the list, and `at` is the line that it is on. */
    constructor(kind, container) {
      this.kind = kind;
      this.list = h("div", { role: "listbox", tabindex: 0, class: `lines ${kind}`, "aria-label": TITLES[kind],
        onkeydown: (event) => this.key(event), onmousedown: (event) => this.press(event), onclick: (event) => this.click(event),
        onmouseover: (event) => this.over(event), onmouseleave: () => hover(null),
        onfocus: () => this.go(this.at), onblur: () => hover(null) });
      this.rows = [];
      this.at = 0;
      this.hottest = [];
      container.append(this.list);
    }

    show(listing) {
      this.first = listing.first;
      const width = String(listing.first + listing.lines.length).length;
      this.list.style.setProperty("--digits", width);
      this.rows = listing.lines.map((text, k) =>
        h("div", { role: "option", id: `${this.kind}-${k}`, class: "row", "aria-selected": "false" },
          h("span", { class: "digits" }, String(listing.first + k)), h("span", { class: "heat" }), h("span", { class: "code" }, text || " ")));
      this.list.replaceChildren(...this.rows);
      this.at = Math.min(this.at, Math.max(this.rows.length - 1, 0));
      this.list.setAttribute("aria-label", `${TITLES[this.kind]}, ${listing.name}`);
      this.point();
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
      this.reveal(this.first + Math.max(0, Math.min(k, this.rows.length - 1)));
      hover(this.kind, this.first + this.at);
    }

    key(event) {
      if (event.ctrlKey || event.altKey || event.metaKey) return;
      const page = Math.max(1, Math.floor(this.list.clientHeight / (this.rows[0] ? this.rows[0].offsetHeight : 20)) - 1);
      const done = {
        ArrowUp: () => this.go(this.at - 1), ArrowDown: () => this.go(this.at + 1),
        PageUp: () => this.go(this.at - page), PageDown: () => this.go(this.at + page),
        Home: () => this.go(0), End: () => this.go(this.rows.length - 1),
        Enter: () => pick(this.kind, this.first + this.at), " ": () => pick(this.kind, this.first + this.at),
        Escape: () => pick(null), ArrowLeft: () => aside(this.kind, -1), ArrowRight: () => aside(this.kind, 1),
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

  const places = { source: (key) => keyOf(base(fileOfKey(key)), lineOfKey(key)), ptx: (line) => `line ${line} of the PTX`, sass: (line) => `line ${line} of the machine code` };

  function sayPicked() {
    const { kind, key } = state.picked, found = linked(kind, key);
    const others = KINDS.filter((other) => other !== kind && panes[other])
      .map((other) => (found[other].length ? `${counted(found[other].length, "line")} of ${NOUNS[other]}` : `no ${NOUNS[other]}`));
    const hot = heats[kind] && heats[kind].get(key);
    return `${places[kind](key)}: ${hot ? `${hot.text} ${measureName()}, ${percent(hot.share)} of the hottest line; ` : ""}${others.join(", ")}.`;
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

  const kernelNow = () => state.record.kernels.find((kernel) => kernel.name === state.kernel) || null;
  const profileNow = () => (kernelNow() || {}).profile || null;
  const measureName = () => state.measure.split(":").pop().replaceAll("_", " ");

  function measuresOf(profile) {
    if (!profile) return [];
    const { totals, metrics } = profile;
    const plain = state.record.measures.filter((name) => totals[name]);
    const ratios = Object.keys(RATIOS).filter((name) => totals[RATIOS[name][1]]);
    const option = (group, kind) => (name) => ({ value: `${kind}:${name}`, text: kind === "metric" ? name : name.replaceAll("_", " "), group });
    return [...plain.map(option("Counters", "counter")), ...ratios.map(option("Ratios", "ratio")),
      ...Object.keys(metrics).filter((name) => metrics[name]).map(option("As Nsight Compute calls them", "metric"))];
  }

  /* What to begin with: what the first advice is about, or else memory, or else instructions. */
  function firstMeasure(profile, options) {
    const wanted = [...(profile ? profile.advice.map((advice) => advice.measure) : []), "sectors", "warps"];
    for (const name of wanted) {
      const found = options.find((option) => option.value.split(":").pop() === (name === "sectors_per_request" ? "sectors" : name));
      if (found) return found.value;
    }
    return options.length ? options[0].value : "";
  }

  /* The rows of a profile that belong to a key of `kind`, put together for the measure that is picked. */
  function heatOf(profile) {
    const [kind, name] = state.measure.split(":");
    const sums = { source: new Map(), ptx: new Map(), sass: new Map() };
    const add = (map, key, row) => {
      const [over, under] = kind === "ratio" ? RATIOS[name] : [name, null];
      const value = (kind === "metric" ? row.metrics : row)[over] || 0, had = map.get(key) || [0, 0];
      map.set(key, [HIGHEST.has(name) ? Math.max(had[0], value) : had[0] + value, had[1] + ((under && row[under]) || 0)]);
    };
    for (const row of profile ? profile.instructions : []) {
      add(sums.ptx, row.ptx_line, row);
      if (row.source) add(sums.source, row.source, row);
    }
    const found = {};
    for (const each of KINDS) {
      const values = [...sums[each]].map(([key, [over, under]]) => [key, kind === "ratio" ? (under ? over / under : 0) : over]);
      const most = Math.max(...values.map(([, value]) => value), 0);
      found[each] = new Map(values.filter(([, value]) => value).map(([key, value]) => [key, { share: value / most, text: write(value) }]));
    }
    return found;
  }

  function drawHeat() {
    heats = heatOf(profileNow());
    for (const kind of KINDS) {
      if (!panes[kind]) continue;
      const own = kind !== "source" ? [...heats[kind]]
        : [...heats.source].filter(([key]) => fileOfKey(key) === state.file).map(([key, heat]) => [lineOfKey(key), heat]);
      panes[kind].heat(new Map(own));
    }
  }

  // -- the lists ----------------------------------------------------------------------------------------------------

  const listingsOf = (kind) => state.record.listings.filter((listing) => listing.kind === kind);

  function drawPanes() {
    const there = KINDS.filter((kind) => listingsOf(kind).length);
    const before = $("panes").dataset.kinds, now = there.join(" ");
    if (before !== now) {
      $("panes").dataset.kinds = now;
      panes = {};
      $("panes").replaceChildren(...there.map(makePane));
    }
    const files = listingsOf("source").map((listing) => listing.name);
    const select = $("file");
    if (select) {
      state.file = choose(select, files.map((file) => ({ value: file, text: base(file) })), state.file);
      select.parentElement.hidden = files.length < 2;
    }
    for (const kind of there) {
      const listing = listingsOf(kind).find((each) => kind !== "source" || each.name === state.file);
      $(`name-${kind}`).textContent = base(listing.name);
      panes[kind].show(listing);
    }
  }

  function makePane(kind) {
    const pane = h("div", { class: `pane ${kind}` });
    const head = h("div", { class: "head" }, h("h3", {}, TITLES[kind]), h("span", { class: "name", id: `name-${kind}` }));
    if (kind === "source") {
      head.append(h("label", {}, "File ", h("select", { id: "file", onchange: (event) => showFile(event.target.value) })));
    }
    pane.append(head);
    const own = kind === "source" && window.cujitEditor;
    panes[kind] = own ? window.cujitEditor(pane, { pick: (line) => pick(kind, line), hover: (line) => hover(line ? kind : null, line) }) : new Lines(kind, pane);
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

  function drawFindings() {
    const profile = profileNow(), { errors, notes } = state.record;
    const found = [...errors, ...(profile ? profile.advice.map((advice) => ({ rule: advice.rule, source: advice.line, text: `${advice.finding}: ${advice.cause}`, cure: advice.cure, measure: advice.measure })) : [])];
    $("finding-list").replaceChildren(...found.map((finding) => {
      const kind = finding.source ? "source" : finding.ptx_line ? "ptx" : "";
      const key = finding.source || finding.ptx_line;
      const place = kind ? h("a", { href: "#texts", onclick: (event) => followed(event, kind, key, finding.measure) }, places[kind](key)) : null;
      return h("li", {}, h("strong", { class: "rule" }, finding.rule.replaceAll("_", " ")), " ", place, place ? ": " : "", finding.text,
        finding.cure ? h("p", { class: "cure" }, h("b", {}, "Try: "), finding.cure) : null);
    }));
    if (!found.length) $("finding-list").replaceChildren(h("li", { class: "none" }, profile ? "No rule sees anything that costs more than it has to." : "Nothing was looked for: no launch was counted."));
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

  function drawLine() {
    const rows = rowsOfPicked(), picked = state.picked;
    if (!picked || !rows.length) {
      const why = !profileNow() ? "No launch was counted." : picked ? `Nothing was counted at ${places[picked.kind](picked.key)}.` : "Pick a line: click it, or press Enter on it.";
      $("line-body").replaceChildren(h("p", { class: "none" }, why));
      return;
    }
    const names = state.record.measures.filter((name) => rows.some((row) => row[name]));
    const sum = (name) => rows.reduce((all, row) => (HIGHEST.has(name) ? Math.max(all, row[name] || 0) : all + (row[name] || 0)), 0);
    const totals = profileNow().totals;
    const cells = names.map((name) => [name.replaceAll("_", " "), sum(name), totals[name] && !HIGHEST.has(name) ? percent(sum(name) / totals[name]) : ""]);
    const caption = `${places[picked.kind](picked.key)}, ${counted(rows.length, "instruction")} of PTX`;
    $("line-body").replaceChildren(table(caption, ["counter", "count", "of the launch"], cells));
  }

  // -- one access -----------------------------------------------------------------------------------------------------

  /* How many times what an access needs at least it takes: the one that takes most is shown first. */
  const excess = ({ row, access }) => (access.space === "shared" ? row.wavefronts / row.shared_requests : row.sectors / row.requests) || 0;
  const accessesOf = (rows) => rows.flatMap((row) => (row.accesses || []).map((access) => ({ row, access })));

  function drawAccess() {
    const profile = profileNow(), body = $("access-body");
    const own = accessesOf(rowsOfPicked()), found = own.length || state.picked ? own : accessesOf(profile ? profile.instructions : []);
    if (!found.length) {
      const why = !profile ? "No launch was counted." : state.picked ? "This line accesses no memory that is counted." : "No access to memory was counted.";
      body.replaceChildren(h("p", { class: "none" }, why));
      return;
    }
    const worst = found.reduce((most, each, k) => (excess(each) > excess(found[most]) ? k : most), 0);
    const at = found[state.access] ? state.access : worst, { row, access } = found[at];
    const options = found.map((each, k) => h("option", { value: k }, `${each.row.ptx_line}: ${each.row.text}${each.row.accesses.length > 1 ? `, ${each.access.space}` : ""}`));
    const select = h("select", { id: "access-of", onchange: (event) => { state.access = Number(event.target.value); drawAccess(); $("access-of").focus(); } }, options);
    select.value = String(at);
    const picture = access.space === "shared" ? banksOf(access) : sectorsOf(access);
    body.replaceChildren(h("p", {}, h("label", {}, "Instruction ", select)), h("p", { class: "said" }, picture.said),
      scrolled("Picture of the access", picture.drawn),
      h("details", {}, h("summary", {}, "As a table"), table(`Lanes of ${row.text}`, ["lane", "byte", "bytes", picture.unit], access.lanes.map((lane) => [String(lane[0]), lane[1], lane[2], picture.of(lane)]))));
  }

  /* Boxes of what lanes touch below a row of lanes, with a line from each lane to the first that it touches. */
  function touching(access, boxes, boxOf, said) {
    const width = 960, lane = width / WARP, step = Math.min(width / boxes.length, 120), left = (width - step * boxes.length) / 2;
    const top = 26, below = 150, tall = Math.max(...boxes.map((box) => box.height));
    const active = new Map(access.lanes.map((each) => [each[0], each]));
    const drawn = s("svg", { viewBox: `0 0 ${width} ${below + tall + 40}`, class: "picture", role: "img", "aria-label": said });
    drawn.append(s("text", { x: 0, y: 12, class: "label" }, "lanes of the warp"));
    for (let k = 0; k < WARP; k++) {
      const is = active.get(k), x = k * lane;
      const group = s("g", { class: is ? "lane" : "lane idle" });
      if (is) group.append(s("title", {}, `lane ${k}: byte ${is[1]}, ${is[2]} bytes`));
      group.append(s("rect", { x: x + 1.5, y: top, width: lane - 3, height: 24, rx: 3 }), s("text", { x: x + lane / 2, y: top + 16, class: "middle" }, String(k)));
      if (is) {
        const to = left + (boxOf(is) + 0.5) * step;
        group.append(s("path", { d: `M${x + lane / 2} ${top + 24}C${x + lane / 2} ${top + 74} ${to} ${below - 60} ${to} ${below - 4}` }));
      }
      drawn.append(group);
    }
    boxes.forEach((box, k) => {
      const x = left + k * step, group = s("g", { class: "box" }, s("title", {}, box.title));
      group.append(...box.draw(x + 1, below, Math.max(step - 2, 2)));
      if (step > 24 || k % Math.ceil(24 / step) === 0) group.append(s("text", { x: x + step / 2, y: below + box.height + 14, class: "middle" }, box.label));
      if (box.breaks) group.append(s("path", { class: "break", d: `M${x} ${below - 8}V${below + box.height + 4}` }));
      drawn.append(group);
    });
    drawn.append(s("text", { x: 0, y: below + tall + 34, class: "label" }, boxes.label));
    return drawn;
  }

  /* Each box is a sector; the words of it that lanes want are filled. A line before a box says that others lie between. */
  function sectorsOf(access) {
    const used = new Map();
    for (const [, offset, bytes] of access.lanes) {
      for (let byte = offset; byte < offset + bytes; byte++) {
        const sector = Math.floor(byte / SECTOR);
        if (!used.has(sector)) used.set(sector, new Set());
        used.get(sector).add(byte % SECTOR);
      }
    }
    const order = [...used.keys()].sort((a, b) => a - b).slice(0, 128), index = new Map(order.map((sector, k) => [sector, k]));
    const asked = [...used.values()].reduce((all, bytes) => all + bytes.size, 0);
    const said = `${counted(access.lanes.length, "lane")} of a warp touch ${counted(used.size, "sector")} of ${SECTOR} bytes: ${write(asked)} of ${write(used.size * SECTOR)} bytes are wanted.`;
    const boxes = order.map((sector, k) => ({
      height: 44, label: write(sector * SECTOR), breaks: k > 0 && order[k - 1] !== sector - 1,
      title: `sector at byte ${sector * SECTOR}: ${used.get(sector).size} of ${SECTOR} bytes are wanted`,
      draw: (x, y, width) => [s("rect", { x, y, width, height: 44, class: "sector" }),
        ...wordsIn(used.get(sector)).map((word) => s("rect", { x: x + (word * width) / 8, y, width: width / 8, height: 44, class: "wanted" }))],
    }));
    const where = access.space === "local" ? "of a thread's local memory" : "from a line of 128 bytes on";
    boxes.label = `sectors of 32 bytes, by their first byte ${where}; filled: words that lanes want; a dashed line: others lie between`;
    return { said, unit: "sector at", of: (lane) => Math.floor(lane[1] / SECTOR) * SECTOR, drawn: touching(access, boxes, (lane) => index.get(Math.floor(lane[1] / SECTOR)) || 0, said) };
  }
  const wordsIn = (bytes) => [...new Set([...bytes].map((byte) => Math.floor(byte / WORD)))];

  /* Each box is a bank, with a square for each other word that lanes want of it: they come one after the other. */
  function banksOf(access) {
    const words = Array.from({ length: BANKS }, () => new Set());
    for (const [, offset, bytes] of access.lanes) {
      for (let word = Math.floor(offset / WORD); word <= Math.floor((offset + bytes - 1) / WORD); word++) words[word % BANKS].add(word);
    }
    const most = Math.max(...words.map((each) => each.size)), tall = Math.max(most, 1), square = Math.max(3, Math.min(16, 220 / tall));
    const busy = words.filter((each) => each.size).length;
    const said = `${counted(access.lanes.length, "lane")} of a warp touch ${counted(busy, "bank")} of ${BANKS}; at most ${counted(most, "word")} of one bank.`;
    const boxes = words.map((each, bank) => ({
      height: square * tall, label: String(bank), breaks: false,
      title: `bank ${bank}: ${counted(each.size, "word")}`,
      draw: (x, y, width) => [s("rect", { x, y, width, height: square * tall, class: "sector" }),
        ...[...each].map((_, k) => s("rect", { x, y: y + k * square, width, height: square - 1, class: "wanted" }))],
    }));
    boxes.label = "banks of shared memory; a square for each word that lanes want of one";
    return { said, unit: "bank", of: (lane) => Math.floor(lane[1] / WORD) % BANKS, drawn: touching(access, boxes, (lane) => Math.floor(lane[1] / WORD) % BANKS, said) };
  }

  // -- plots --------------------------------------------------------------------------------------------------------

  function drawPlots() {
    const kernel = kernelNow(), made = [];
    if (kernel && kernel.profile && kernel.profile.bounds) made.push(boundsFigure(kernel.profile));
    if (kernel && kernel.occupancy) made.push(occupancyFigure(kernel.occupancy));
    if (!made.length) made.push(h("p", { class: "none" }, "No GPU was named (--on H200), and there is no machine code to tell occupancy by."));
    $("plots-body").replaceChildren(...made);
  }

  const micros = (seconds) => `${+(seconds * 1e6).toPrecision(3)} µs`;
  const scale = (value) => { const k = Math.min(5, Math.max(0, Math.floor(Math.log10(value) / 3))); return `${+(value / 1000 ** k).toPrecision(3)}${["", " k", " M", " G", " T", " P"][k]}`; };

  function boundsFigure(profile) {
    const { bounds, gpu, clock_mhz: clock, not_modelled: not } = profile.bounds;
    const said = bounds.length ? `${bounds[0].unit}, a bound of ${micros(bounds[0].bound_s)}` : "no bound";
    const rows = bounds.map((bound) => [bound.unit, `${write(Math.round(bound.amount))} ${bound.what}`, micros(bound.bound_s), percent(bound.bound_s / bounds[0].bound_s), bound.line ? `${base(bound.line)}, ${percent(bound.share)}` : "", bound.cause || bound.assumes]);
    return h("figure", {}, h("figcaption", {}, h("b", {}, `Bounds on ${gpu} at ${write(clock)} MHz: ${said}. `), `Not modelled are ${not}.`),
      profile.roofs.flops_per_s ? scrolled("Roofline", roofline(profile)) : h("p", { class: "none" }, "There are no floating-point operations, so there is no roofline."),
      scrolled("Bounds", table(`Bounds on ${gpu}, the tightest first`, ["part of the GPU", "has", "bound", "of the tightest", "most at", "for, or if"], rows)));
  }

  function roofline(profile) {
    const { slopes, levels, flops_per_s: rate } = profile.roofs, { flops_per_byte: far, flops_per_l1_byte: near } = profile.bounds;
    const width = 720, height = 330, left = 64, right = 16, top = 16, bottom = 44;
    const points = [[far, "by distinct bytes", "filled"], ...(near && near < 0.8 * far ? [[near, "by bytes moved", "hollow"]] : [])].filter((point) => point[0]);
    const most = Math.max(...levels.map((level) => level.flops_per_s));
    const corners = slopes.map((slope) => most / slope.bytes_per_s), all = [...corners, ...points.map((point) => point[0])];
    const low = Math.min(...all) / 30, high = Math.max(...all) * 12, floor = Math.min((low * slopes[0].bytes_per_s) / 1.5, rate / 4), roof = most * 4;
    const part = (value, a, b) => Math.log(value / a) / Math.log(b / a);
    const x = (value) => left + part(value, low, high) * (width - left - right), y = (value) => height - bottom - part(value, floor, roof) * (height - top - bottom);
    const drawn = s("svg", { viewBox: `0 0 ${width} ${height}`, class: "plot", role: "img", "aria-label": `Roofline: ${points.map((p) => `${+p[0].toPrecision(3)} operations a byte ${p[1]}`).join(", ")}, at most ${scale(rate)} a second` });
    const tens = (a, b) => { const found = []; for (let k = Math.ceil(Math.log10(a)); 10 ** k <= b; k++) found.push(10 ** k); return found; };
    for (const tick of tens(low, high)) drawn.append(s("text", { x: x(tick), y: height - bottom + 18, class: "middle" }, String(+tick.toPrecision(3))));
    for (const tick of tens(floor, roof)) drawn.append(s("path", { class: "grid", d: `M${left} ${y(tick)}H${width - right}` }), s("text", { x: left - 6, y: y(tick) + 4, class: "end" }, scale(tick)));
    slopes.forEach((slope, k) => {
      drawn.append(s("path", { class: `series s${k}`, d: `M${x(low)} ${y(low * slope.bytes_per_s)}L${x(corners[k])} ${y(most)}` }));
      const steep = (Math.atan2(y(most) - y(low * slope.bytes_per_s), x(corners[k]) - x(low)) * 180) / Math.PI, at = low * 1.35;
      drawn.append(s("text", { x: x(at), y: y(at * slope.bytes_per_s) - 5, transform: `rotate(${steep} ${x(at)} ${y(at * slope.bytes_per_s) - 5})` }, slope.label));
    });
    for (const level of levels) {
      const first = Math.min(...slopes.map((slope) => level.flops_per_s / slope.bytes_per_s));
      drawn.append(s("path", { class: "level", d: `M${x(first)} ${y(level.flops_per_s)}H${width - right}` }), s("text", { x: width - right, y: y(level.flops_per_s) - 5, class: "end" }, level.label));
    }
    for (const [value, label, kind] of points) {
      drawn.append(s("circle", { cx: x(value), cy: y(rate), r: 5.5, class: `point ${kind}` }), s("text", { x: x(value), y: y(rate) + 20, class: kind === "filled" ? "" : "end" }, label));
    }
    drawn.append(s("text", { x: (left + width) / 2, y: height - 6, class: "middle" }, "floating-point operations per byte"));
    return drawn;
  }

  const LIMITERS = ["warps", "blocks", "registers", "shared memory", "barriers", "virtual resources"];

  function occupancyFigure(found) {
    if (found.error) return h("p", { class: "none" }, `No occupancy: ${found.error}.`);
    const title = `Occupancy on ${found.gpu}, blocks of ${write(found.block)}: ${percent(found.occupancy)}, ${counted(found.active_blocks, "block")}, ${write(found.active_warps)} of ${write(found.max_warps)} warps, limited by ${found.limited_by.join(" and ")}.`;
    const rows = Object.entries(found.limits).map(([name, blocks]) => [name, blocks]);
    return h("figure", {}, h("figcaption", {}, h("b", {}, title), ` ${write(found.registers)} registers a thread, ${write(found.static_shared_bytes)} bytes of static shared memory a block.`),
      scrolled("Occupancy", h("div", { class: "curves" }, found.curves.map((curve) => curveOf(curve, found.occupancy)))),
      table("Blocks that each limit alone leaves room for", ["limit", "blocks"], rows));
  }

  function curveOf(curve, own) {
    const width = 300, height = 190, left = 40, right = 10, top = 24, bottom = 40;
    const x = (value) => left + (value / curve.end) * (width - left - right), y = (share) => height - bottom - share * (height - top - bottom);
    const drawn = s("svg", { viewBox: `0 0 ${width} ${height}`, class: "plot", role: "img", "aria-label": `Occupancy by ${curve.label}; this kernel has ${curve.own_label}, and ${percent(own)}` });
    for (const share of [0, 0.5, 1]) drawn.append(s("path", { class: "grid", d: `M${left} ${y(share)}H${width - right}` }), s("text", { x: left - 5, y: y(share) + 4, class: "end" }, `${100 * share}`));
    for (const { limiter, edges, heights } of curve.stretches) {
      const steps = heights.map((share, k) => `V${y(share)}H${x(edges[k + 1])}`).join("");
      const series = `s${Math.max(0, LIMITERS.findIndex((name) => limiter.includes(name)))}`;
      drawn.append(s("g", { class: `area ${series}` }, s("title", {}, `limited by ${limiter}`), s("path", { class: "fill", d: `M${x(edges[0])} ${y(0)}${steps}V${y(0)}Z` }), s("path", { class: `series ${series}`, d: `M${x(edges[0])} ${y(heights[0])}${steps}` })));
      if (x(edges[edges.length - 1]) - x(edges[0]) > 7 * limiter.length) drawn.append(s("text", { x: x(edges[0]) + 5, y: y(0) - 6, class: "label" }, limiter));
    }
    const at = x(Math.min(curve.own, curve.end));
    drawn.append(s("path", { class: "own", d: `M${at} ${top}V${y(0)}` }), s("circle", { cx: at, cy: y(own), r: 4.5, class: "point filled" }),
      s("text", { x: Math.min(Math.max(at, left + 20), width - 30), y: 14, class: "middle strong" }, curve.own_label),
      s("text", { x: left, y: height - 20, class: "middle" }, "0"), s("text", { x: width - right, y: height - 20, class: "end" }, write(curve.end)),
      s("text", { x: (left + width) / 2, y: height - 4, class: "middle" }, `${curve.label} (occupancy in %)`));
    return drawn;
  }

  // -- tables ---------------------------------------------------------------------------------------------------------

  function drawTables() {
    const profile = profileNow(), made = [];
    if (profile) {
      const rows = (values) => Object.entries(values).filter(([, value]) => value).map(([name, value]) => [name.replaceAll("_", " "), value]);
      const sizes = Object.fromEntries(["launches", "blocks", "warps", "threads", "distinct_sectors", "block_sectors"].map((name) => [name, profile[name]]));
      made.push(table("Sizes of the launch", ["what", "count"], rows(sizes)), table("Counted, all lines together", ["counter", "count"], rows(profile.totals)));
      const metrics = Object.entries({ ...profile.metrics, ...profile.metrics_of_ptx }).filter(([, value]) => value);
      made.push(scrolled("Counters as Nsight Compute calls them", table("As Nsight Compute calls them; smsp and sm are counted of PTX", ["counter", "count"], metrics)));
      made.push(table("Threads by part of a multiprocessor and type", ["part", "type", "threads"], profile.arithmetic.map((row) => [row.pipe, row.type, row.threads])));
    }
    $("counters-body").replaceChildren(...made);
    $("counters").hidden = !made.length;
    const { inspections } = state.record;
    $("image").hidden = !inspections.length;
    const cells = inspections.flatMap(({ images }) => images).flatMap((each) => each.kernels.map((kernel) => [kernel.display, `${each.kind} ${kernel.arch || each.arch || ""}`,
      ...["registers", "shared_bytes", "stack_bytes", "spill_store_bytes", "code_bytes", "max_threads"].map((name) => kernel[name] ?? "")]));
    const sizes = inspections.map((image) => `${image.name || image.kind} (${counted(image.bytes, "byte")})`).join(", ");
    $("image-body").replaceChildren(scrolled("Kernels", table(`Kernels of ${sizes}`, ["kernel", "image", "registers", "shared bytes", "stack bytes", "spilled bytes", "code bytes", "threads at most"], cells)));
  }

  // -- all of it ------------------------------------------------------------------------------------------------------

  function setMeasure(value) {
    state.measure = value;
    $("measure").value = value;
    drawHeat();
    if (state.picked) $("status").textContent = sayPicked();
  }

  function drawKernel() {
    const profile = profileNow(), options = measuresOf(profile);
    const wanted = options.some((option) => option.value === state.measure) ? state.measure : firstMeasure(profile, options);
    $("measure-label").hidden = !options.length;
    const size = profile ? `${counted(profile.launches, "launch").replace("launchs", "launches")}, ${counted(profile.blocks, "block")}, ${counted(profile.threads, "thread")}; counted on the CPU device` : "";
    $("about").textContent = [state.record.title === state.kernel ? "" : state.kernel, size].filter(Boolean).join(": ");
    setMeasure(choose($("measure"), options, wanted));
    drawFindings();
    drawPlots();
    drawTables();
    showPicked(null);
  }

  /* Draw a record; a line that was picked stays so where it is still there. */
  function render(record) {
    state.record = record;
    document.title = record.title;
    $("title").textContent = record.title;
    $("footer").textContent = `Written by cujit ${record.cujit}`;
    links = linksOf(record);
    state.kernel = choose($("kernel"), record.kernels.map((kernel) => ({ value: kernel.name, text: kernel.name })), state.kernel);
    $("kernel-label").hidden = record.kernels.length < 2;
    const held = state.picked;
    drawPanes();
    const still = held && (held.kind === "source" ? listingsOf("source").some((l) => l.name === fileOfKey(held.key) && l.lines.length >= lineOfKey(held.key)) : listingsOf(held.kind).some((l) => held.key >= l.first && held.key < l.first + l.lines.length));
    if (!still) state.picked = null;
    drawKernel();
  }

  $("theme").addEventListener("change", (event) => { document.documentElement.dataset.theme = event.target.value; });
  $("measure").addEventListener("change", (event) => setMeasure(event.target.value));
  $("kernel").addEventListener("change", (event) => { state.kernel = event.target.value; drawKernel(); });
  $("keys-open").addEventListener("click", () => $("keys").showModal());
  render(JSON.parse($("record").textContent));
  return { render, pick: pickKey, state };
})();
window.cujitReport = cujitReport;
