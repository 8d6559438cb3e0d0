"use strict";

/* The explorer: an editor in place of the list of source, fields for what is compiled and launched, and a server that
   is asked for the record of both whenever one of them changes. */
(() => {
  const told = JSON.parse(document.getElementById("record").textContent).explorer;
  const token = new URLSearchParams(location.search).get("token");
  // The token leaves the address bar and the history; this tab keeps it for when the page is loaded again.
  sessionStorage.setItem("cujit-token", token);
  history.replaceState(null, "", "/");
  const WAIT_MS = 400;
  const $ = (id) => document.getElementById(id);
  const scene = { ...told.scene };
  const gpus = new Map();  // the GPU that was chosen last, by architecture
  let drawing, kernels, given, layout, comparison, suggested = "", last = null, editor = null, timer = 0, asked = null, number = 0, isSaved = told.is_saved;
  let digest = told.digest, isForced = false;

  // -- the editor --------------------------------------------------------------------------------------------

  const {
    EditorView, EditorState, StateField, StateEffect, Decoration, GutterMarker, RangeSet, Compartment, ...cm
  } = CodeMirror;

  class HeatMarker extends GutterMarker {
    constructor(text) {
      super();
      this.text = text;
    }

    eq(other) {
      return this.text === other.text;
    }

    toDOM() {
      return document.createTextNode(this.text);
    }
  }

  /* One view, which stays while panes come and go: of the file, which is edited, or of a header, which is read. */
  class Editor {
    constructor() {
      this.lines = { heat: new Map(), hovered: new Set(), picked: new Set() };
      this.first = 1;
      this.setMarks = StateEffect.define();
      this.setHeat = StateEffect.define();
      this.counting = new Compartment();
      this.wrapping = new Compartment();
      this.isWrapped = false;
      this.own = this.stateOf(scene.source, true, 1);
      this.view = new EditorView({ state: this.own });
      this.isOwn = true;
    }

    stateOf(text, isEdited, first) {
      const field = (effect, provide) => StateField.define({
        create: () => RangeSet.empty,
        update: (set, change) => change.effects.reduce(
          (now, each) => (each.is(effect) ? each.value : now), set.map(change.changes)),
        provide,
      });
      const marks = field(this.setMarks, (f) => EditorView.decorations.from(f));
      const heat = field(this.setHeat);
      const label = `Source, ${isEdited ? scene.name : "read only"}`;
      const picks = cm.keymap.of([
        { key: "Mod-Enter", run: (view) => this.say("pick", this.lineAt(view.state.selection.main.head)) },
        { key: "Escape", run: () => this.say("pick", null) && false },
        { key: "Mod-s", run: () => save() || true, preventDefault: true },
      ]);
      return EditorState.create({
        doc: text,
        extensions: [
          EditorView.cspNonce.of(told.nonce), picks, isEdited ? [cm.history(), cm.indentOnInput()] : [],
          EditorState.readOnly.of(!isEdited), EditorState.tabSize.of(4), cm.indentUnit.of("    "),
          this.counting.of(cm.lineNumbers({ formatNumber: (n) => String(n + first - 1), ...this.mouse() })),
          this.wrapping.of(this.isWrapped ? EditorView.lineWrapping : []),
          cm.lintGutter(), cm.gutter({ class: "cm-heat", markers: (view) => view.state.field(heat) }),
          told.is_ir ? [] : cm.cpp(), cm.syntaxHighlighting(cm.classHighlighter), cm.bracketMatching(),
          cm.drawSelection(), cm.highlightActiveLine(), cm.highlightActiveLineGutter(), cm.search({ top: true }), marks, heat,
          cm.keymap.of([...cm.defaultKeymap, ...cm.searchKeymap, ...cm.historyKeymap, ...cm.lintKeymap]),
          EditorView.contentAttributes.of({ tabindex: "0", "aria-label": label, "aria-readonly": String(!isEdited) }),
          EditorView.domEventHandlers(this.pointer()),
          EditorView.updateListener.of((update) => this.updated(update, isEdited)),
        ],
      });
    }

    mouse() {
      const click = (view, block) => this.say("pick", this.lineAt(block.from)) || true;
      return { domEventHandlers: { click } };
    }

    pointer() {
      const line = (event, view) => {
        const at = view.posAtCoords({ x: event.clientX, y: event.clientY });
        return at === null ? 0 : this.lineAt(at);
      };
      return {
        mousemove: (event, view) => { this.say("hover", line(event, view)); },
        mouseleave: () => { this.say("hover", 0); },
        click: (event, view) => {
          if (view.state.selection.main.empty && line(event, view)) this.say("pick", line(event, view));
        },
      };
    }

    say(what, line) {
      if (this.says) this.says[what](line);
      return true;
    }

    lineAt(position) {
      return this.view.state.doc.lineAt(position).number + this.first - 1;
    }

    lineOf(number) {
      const { doc } = this.view.state, n = number - this.first + 1;
      return n >= 1 && n <= doc.lines ? doc.line(n) : null;
    }

    updated(update, isEdited) {
      if (!isEdited || !update.docChanged) return;
      scene.source = update.state.doc.toString();
      offerStarters();
      isSaved = false;
      changed();
    }

    // What the page asks of it.

    into(container, says) {
      this.says = says;
      container.append(this.view.dom);
      return this;
    }

    show(listing) {
      if (this.isOwn) this.own = this.view.state;
      const isOwn = listing.name === scene.name;
      if (isOwn === this.isOwn && isOwn) return;
      this.first = isOwn ? 1 : listing.first;
      this.view.setState(isOwn ? this.own : this.stateOf(listing.lines.join("\n"), false, listing.first));
      this.isOwn = isOwn;
      this.draw();
    }

    heat(map) {
      this.lines.heat = map;
      this.draw();
    }

    mark(name, lines) {
      const now = [...lines].join(), before = [...this.lines[name]].join();
      this.lines[name] = lines;
      if (now !== before) this.draw();
    }

    draw() {
      const { heat, hovered, picked } = this.lines, marks = [], texts = [];
      for (const number of [...new Set([...heat.keys(), ...hovered, ...picked])].sort((a, b) => a - b)) {
        const line = this.lineOf(number), hot = heat.get(number);
        if (!line) continue;
        const names = [hot && "hot", hovered.has(number) && "hovered", picked.has(number) && "picked"].filter(Boolean);
        const attributes = hot ? { style: `--share: ${hot.share.toFixed(4)}` } : {};
        marks.push(Decoration.line({ class: names.join(" "), attributes }).range(line.from));
        if (hot) texts.push(new HeatMarker(hot.text).range(line.from));
      }
      const effects = [this.setMarks.of(RangeSet.of(marks)), this.setHeat.of(RangeSet.of(texts))];
      this.view.dispatch({ effects });
    }

    reveal(number) {
      const line = this.lineOf(number);
      if (!line) return;
      const effects = EditorView.scrollIntoView(line.from, { y: "nearest", yMargin: 60 });
      this.view.dispatch({ effects, ...(this.view.hasFocus ? {} : { selection: { anchor: line.from } }) });
    }

    focus() {
      this.view.focus();
    }

    wrap(is) {
      if (is === this.isWrapped) return;
      this.isWrapped = is;
      this.view.dispatch({ effects: this.wrapping.reconfigure(is ? EditorView.lineWrapping : []) });
      if (!this.isOwn) this.own = this.own.update({ effects: this.wrapping.reconfigure(is ? EditorView.lineWrapping : []) }).state;
    }

    /* Underline what was found, at its line; one that names a column from there to the end of the word. */
    diagnose(errors) {
      if (!this.isOwn) return;
      const found = errors.flatMap(({ rule, text, cure, source, column }) => {
        const at = (source || "").lastIndexOf(":"), line = this.lineOf(Number(source.slice(at + 1)));
        if (at < 0 || !line || source.slice(0, at) !== scene.name) return [];
        const skipped = line.text.length - line.text.trimStart().length;
        const from = Math.min(line.from + (column ? column - 1 : skipped), line.to);
        const word = /^\w+/.exec(line.text.slice(from - line.from));
        const to = column && word ? from + word[0].length : column ? Math.min(from + 1, line.to) : line.to;
        const severity = rule === "warning" || rule === "error" ? rule : rule === "remark" ? "info" : "error";
        return [{ from, to, severity, message: cure ? `${text}\nHint: ${cure}` : text }];
      });
      this.view.dispatch(cm.setDiagnostics(this.view.state, found.sort((a, b) => a.from - b.from)));
    }
  }

  /* Advice as a remark at its line. */
  const noted = ({ line, finding, cause, cure, estimate }) =>
    ({ rule: "remark", source: line, text: `${finding}: ${cause}`, cure: `${cure}\n${estimate}` });

  window.cujitEditor = (container, says) => {
    editor = editor || new Editor();
    return editor.into(container, says);
  };

  // -- asking ------------------------------------------------------------------------------------------------

  const post = (path, body, more) => fetch(path, {
    method: "POST", body: JSON.stringify(body), credentials: "omit", cache: "no-store",
    headers: { "X-Cujit-Token": token, "Content-Type": "application/json" }, ...more,
  });

  function tell(words, kind) {
    $("work").textContent = words;
    $("work").dataset.kind = kind || "";
    if (kind !== "busy") $("work").dataset.seen = number;
  }

  /* Typing is waited for; what is asked and not wanted any more is given up. */
  function changed() {
    $("save").disabled = isSaved;
    clearTimeout(timer);
    timer = setTimeout(look, WAIT_MS);
  }

  async function look() {
    const own = ++number;
    if (asked) asked.abort();
    asked = new AbortController();
    tell("Compiling …", "busy");
    try {
      const { name, ...said } = scene, answer = await post("/look", said, { signal: asked.signal });
      if (!answer.ok) return fail(await reason(answer));
      for await (const line of linesOf(answer.body)) {
        if (own !== number) return;
        heard(JSON.parse(line), said.arch);
      }
    } catch (error) {
      if (own === number && error.name !== "AbortError") fail(`The explorer does not answer: ${error.message}`);
    }
  }

  /* The record of what is shown for another architecture; null where there is none, or somebody types. */
  async function lookAside(arch) {
    const own = number, { name, ...said } = scene;
    try {
      const answer = await post("/look", { ...said, arch, on: scene.on && gpuFor(arch), aside: true }, { signal: asked.signal });
      for await (const line of answer.ok ? linesOf(answer.body) : []) {
        const { stage, record } = JSON.parse(line);
        if (own === number && stage === "done" && record.explorer.is_compiled) return record;
      }
    } catch { /* as if there were none */ }
    return null;
  }

  const reason = async (answer) => {
    const text = await answer.text();
    try {
      const { message, help } = JSON.parse(text);
      return help ? `${message}; hint: ${help}` : message;
    } catch { return text.trim(); }
  };

  async function* linesOf(body) {
    const reader = body.pipeThrough(new TextDecoderStream()).getReader();
    let kept = [];
    for (let part = await reader.read(); !part.done; part = await reader.read()) {
      const [first, ...others] = part.value.split("\n");
      kept.push(first);
      for (const each of others) {
        yield kept.join("");
        kept = [each];
      }
    }
  }

  const DOING = { compiling: "Compiling …", launching: "Launching it in a process apart …", assembling: "Assembling …" };

  function heard(said, arch) {
    if (said.stage === "done") take(said.record, arch);
    else if (said.stage === "failed") fail(said.help ? `${said.message}; hint: ${said.help}` : said.message);
    else if (said.stage === "superseded") tell("Another page of this explorer asked for something else.", "wrong");
    else tell(DOING[said.stage] || said.stage, "busy");
  }

  function fail(words) {
    tell(words, "wrong");
    if (last) stay(true);
  }

  function stay(is) {
    document.querySelector("main").classList.toggle("stale", is);
  }

  /* Of a text that does not compile, what compiled last stays, and is called so. */
  function take(record, arch) {
    const { explorer } = record, isFirst = !last;
    stay(!explorer.is_compiled && Boolean(last));
    if (explorer.is_compiled) last = record;
    const shown = explorer.is_compiled || !last ? record : { ...last, errors: record.errors, notes: record.notes };
    cujitReport.render(shown);
    layout.apply();
    if (isFirst && explorer.is_compiled) cujitReport.begin();
    editor.diagnose([...record.errors, ...record.kernels.flatMap(({ profile }) => (profile ? profile.advice : []).map(noted))]);
    if (explorer.is_compiled) offer(explorer);
    if (explorer.is_compiled) comparison.update(record, arch);
    print(explorer);
    tell(summary(record), record.errors.some(({ rule }) => rule !== "warning" && rule !== "remark") ? "wrong" : "");
  }

  /* List the kernels, with the arguments of the one that is launched; where nobody has said any, such as fit. */
  function offer({ kernels: names, fields }) {
    const own = fields[scene.kernel] || (names.length === 1 && fields[names[0]]) || [], box = $("field-arguments");
    kernels.offer(names, scene.kernel);
    const fitting = cujitArguments.joined(own.map(({ word }) => word)), isOwn = ["", suggested].includes(scene.arguments.trim());
    if (own.length && own.every(({ word }) => word) && isOwn && fitting !== scene.arguments && document.activeElement !== box) {
      box.value = scene.arguments = suggested = fitting;
      if (isLaunched()) changed();
    }
    given.show(own, scene.arguments);
  }

  const isLaunched = () => Boolean(scene.grid || scene.over || scene.cooperative);

  function summary({ errors, explorer }) {
    const wrong = errors.filter(({ rule }) => rule !== "warning" && rule !== "remark");
    const seconds = `${+explorer.seconds.toPrecision(2)} s`;
    if (wrong.length) {
      const [{ source, text }] = wrong, place = source ? `${source.split("/").pop()}: ` : "";
      const more = wrong.length > 1 ? `, and ${drawing.counted(wrong.length - 1, "more error")}` : "";
      return `${explorer.is_compiled ? "Compiled. " : ""}${place}${text.split("\n")[0]}${more}`;
    }
    const warned = errors.length ? `, with ${drawing.counted(errors.length, "warning")}` : "";
    if (explorer.is_counted) return `Compiled, launched and counted in ${seconds}${warned}.`;
    return `Compiled in ${seconds}${warned}. Enter grid and block, or elements, to launch the kernel.`;
  }

  function print({ printed, dropped_bytes: dropped }) {
    const more = dropped ? `\n… and ${drawing.counted(dropped, "byte")} more` : "";
    $("printed").hidden = !printed && !dropped;
    $("printed-text").textContent = printed + more;
  }

  // -- the file, and the page to hand on ---------------------------------------------------------------------

  async function save() {
    try {
      const answer = await post("/save", { source: scene.source, digest, force: isForced });
      isForced = answer.status === 409;
      if (!answer.ok) return tell(await reason(answer), "wrong");
      ({ digest } = await answer.json());
      isSaved = true;
      $("save").disabled = true;
      return tell(`Saved to ${scene.name}.`);
    } catch (error) {
      return tell(`Not saved: ${error.message}`, "wrong");
    }
  }

  async function share() {
    const answer = await post("/report", {});
    if (!answer.ok) return tell(await reason(answer), "wrong");
    const url = URL.createObjectURL(await answer.blob());
    drawing.h("a", { href: url, download: `${scene.name}.html` }).click();
    setTimeout(() => URL.revokeObjectURL(url), 10000);
    return tell("The page is one file now, which loads nothing.");
  }

  // -- the fields --------------------------------------------------------------------------------------------

  const FIELDS = [
    ["arch", "Architecture", 9], ["on", "GPU", 11], ["kernel", "Kernel", 14], ["options", "Compiler options", 22],
    ["grid", "Grid", 7], ["block", "Block", 7], ["over", "or elements", 8], ["arguments", "Arguments", 34], ["check", "Checks", 8],
  ];
  const MORE = [["cluster", "Cluster", 7], ["shared_bytes", "Dynamic shared bytes", 9], ["cooperative", "Cooperative", 0]];
  const HINTS = {
    options: "std=c++20 -DN=4", grid: "16x16", block: "32x32", over: "1000",
    arguments: "2.0 ones:f32:1000", cluster: "2", shared_bytes: "0",
  };

  function field([key, label, width]) {
    const { h } = drawing, id = `field-${key}`;
    const picked = { arch: told.arches.map((name) => [name, name]), check: told.checks,
      on: [["", "none"], ...told.gpus.map(([name]) => [name, name])] }[key];
    if (key === "kernel") return [h("label", { class: "field kernel" }, h("span", {}, label), kernels.list), kernels.label];
    if (key === "cooperative") {
      const box = h("input", { id, type: "checkbox", onchange: (event) => set(key, event.target.checked) });
      box.checked = scene[key];
      return h("label", { class: "field box" }, box, " ", label);
    }
    const change = (event) => set(key, event.target.value);
    const made = picked
      ? h("select", { id, onchange: change }, picked.map(([value, words]) => h("option", { value }, words)))
      : h("input", { id, type: "text", size: width, spellcheck: "false", autocomplete: "off", autocapitalize: "off",
        placeholder: HINTS[key], oninput: change });
    made.value = scene[key];
    return h("label", { class: `field ${key}` }, h("span", {}, label), made);
  }

  function set(key, value) {
    scene[key] = value;
    if (key === "on" && value && plain(scene.arch) !== archOf(value)) $("field-arch").value = scene.arch = archOf(value);
    if (key === "on" && value) gpus.set(archOf(value), value);
    if (key === "arch" && scene.on) $("field-on").value = scene.on = gpuFor(value);
    if (key === "arguments") given.read(value);
    if (key === "kernel" && last) offer(last.explorer);
    changed();
  }

  /* An empty file offers examples, each with its launch. */
  function starters() {
    const { h } = drawing;
    const buttons = (told.starters || []).map((starter) => h("button", { type: "button", onclick: () => start(starter) }, starter.name));
    return h("p", { id: "starters", class: "fields" }, "The file is empty. Start from an example:", ...buttons);
  }

  function offerStarters() {
    $("starters").hidden = Boolean(scene.source.trim()) || !told.starters;
  }

  function start({ name, source, ...launch }) {
    for (const [key, value] of Object.entries({ kernel: "", ...launch })) {
      scene[key] = value;
      if (key !== "kernel") $(`field-${key}`).value = value;
    }
    editor.view.dispatch({ changes: { from: 0, to: editor.view.state.doc.length, insert: source } });
    editor.focus();
  }

  const plain = (arch) => arch.replace(/[af]$/, "");
  const archOf = (gpu) => new Map(told.gpus).get(gpu);

  /* The GPU that is chosen, if it runs code of an architecture; or else one that does, of that architecture if possible. */
  function gpuFor(arch) {
    const able = told.runs[arch] || [], own = plain(arch);
    return able.includes(scene.on) ? scene.on : gpus.get(own) || able.find((name) => archOf(name) === own) || able[0] || "";
  }

  function makeFields() {
    const { h } = drawing;
    kernels = new cujitArguments.Kernels(h, scene.kernel, (name) => set("kernel", name));
    given = new cujitArguments.Arguments(h, told.dtypes, (text) => {
      $("field-arguments").value = scene.arguments = text;
      changed();
    });
    const more = h("details", { class: "more" }, h("summary", {}, "More"), h("div", { class: "fields" }, MORE.map(field)));
    if (MORE.some(([key]) => scene[key])) more.open = true;
    const bar = h("section", { id: "explorer", "aria-labelledby": "explorer-title" },
      h("h2", { id: "explorer-title", class: "unseen" }, "What is compiled and launched"),
      h("div", { class: "fields" }, FIELDS.flatMap(field), more), given.box, starters(),
      h("p", { id: "work", role: "status", "aria-live": "polite" }));
    document.querySelector("main").prepend(bar);
    document.querySelector(".switches").prepend(
      h("button", { type: "button", id: "save", disabled: isSaved && "", onclick: save }, `Save to ${scene.name}`),
      h("button", { type: "button", id: "share", onclick: share }, "Save page"));
    const printed = h("section", { id: "printed", "aria-labelledby": "printed-title" },
      h("h2", { id: "printed-title" }, "What the kernel printed"),
      h("pre", { id: "printed-text", tabindex: 0, role: "group", "aria-labelledby": "printed-title" }));
    printed.hidden = true;
    $("texts").before($("findings"));
    $("texts").after(printed);
    const keys = [["Ctrl", "Enter", "in the source: pick the line that the cursor is on"], ["F8", "", "go to the next error"],
      ["Ctrl", "S", `save to ${scene.name}`], ["Ctrl", "F", "search the source"]];
    const row = ([a, b, does]) => h("tr", {}, h("th", { scope: "row" }, h("kbd", {}, a), b && [" ", h("kbd", {}, b)]), h("td", {}, does));
    document.querySelector("#keys tbody").append(...keys.map(row));
  }

  document.addEventListener("DOMContentLoaded", () => {
    drawing = cujitDrawing;
    makeFields();
    if (scene.on) gpus.set(archOf(scene.on), scene.on);
    layout = new cujitLayout.Layout(drawing.h, (is) => editor && editor.wrap(is));
    comparison = new cujitComparison.Comparison(drawing, told.arches, lookAside);
    $("texts").after(comparison.section);
    offerStarters();
    document.addEventListener("keydown", (event) => {
      if (!(event.ctrlKey || event.metaKey) || event.key !== "s" || event.defaultPrevented) return;
      event.preventDefault();
      save();
    });
    look();
  });
})();
