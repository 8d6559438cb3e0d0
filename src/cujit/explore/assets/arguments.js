"use strict";

/* The kernel's list, and a field for each argument, made from its signature. What is typed stays one text of words as
   on the command line: the fields read it and write it. */
const cujitArguments = (() => {
  const FILLS = [["zeros", "zeros"], ["ones", "ones"], ["arange", "0, 1, 2, …"], ["null", "null pointer"], ["", "as text"]];
  const MADE = /^(zeros|ones|arange):([^:]*):([^:]*)$/;
  const INSTANCE = "…";

  /* Split a text at its spaces as a shell does; quotes keep them. */
  function split(text) {
    const words = [...text.matchAll(/(?:"[^"]*"?|'[^']*'?|[^\s"'])+/g)];
    return words.map(([word]) => word.replaceAll(/"([^"]*)"?|'([^']*)'?/g, "$1$2"));
  }
  const quoted = (word) => (/^[^\s"'\\]+$/.test(word) ? word : `'${word.replaceAll("'", `'"'"'`)}'`);
  const joined = (words) => words.map(quoted).join(" ");

  const options = (h, pairs) => pairs.map(([value, words]) => h("option", { value }, words));

  class Arguments {
    constructor(h, dtypes, changed) {
      this.h = h;
      this.dtypes = dtypes;
      this.changed = changed;
      this.fields = [];
      this.key = "";
      this.box = h("div", { id: "argument-fields", class: "fields", role: "group", "aria-label": "Arguments by parameter" });
      this.box.hidden = true;
    }

    /* Show the fields of a kernel; those that somebody types in stay where they are. */
    show(fields, text) {
      const key = JSON.stringify(fields);
      if (key !== this.key) {
        this.key = key;
        this.fields = fields.map((field, k) => this.make(field, k));
        this.box.replaceChildren(...this.fields.map(({ box }) => box));
        this.box.hidden = !fields.length;
      }
      this.read(text);
    }

    read(text) {
      const words = split(text);
      this.fields.forEach((field, k) => { if (!field.box.contains(document.activeElement)) field.read(words[k]); });
      this.words = words;
    }

    write() {
      this.words = this.fields.map(({ write, word }, k) => write() || this.words[k] || word);
      this.changed(joined(this.words));
    }

    make(field, k) {
      const named = field.name || `argument ${k + 1}`, { h } = this;
      const parts = { array: () => this.array(field, named), truth: () => this.truth(named) }[field.form];
      const { nodes, read, write } = parts ? parts() : this.number(field, named);
      const legend = h("legend", {}, named, " ", h("code", {}, field.type));
      return { word: field.word, read, write, box: h("fieldset", { class: "argument" }, legend, nodes) };
    }

    input(label, size, placeholder) {
      const attributes = { type: "text", size, placeholder, "aria-label": label, spellcheck: "false", autocomplete: "off" };
      return this.h("input", { ...attributes, autocapitalize: "off", oninput: () => this.write() });
    }

    select(label, pairs) {
      return this.h("select", { "aria-label": label, onchange: () => this.write() }, options(this.h, pairs));
    }

    number({ word, form }, named) {
      const input = this.input(`Value of ${named}`, form === "text" ? 14 : 8, word);
      return { nodes: [input], read: (text) => { input.value = text || ""; }, write: () => input.value.trim() };
    }

    truth(named) {
      const select = this.select(`Value of ${named}`, [["true", "true"], ["false", "false"]]);
      return { nodes: [select], read: (text) => { select.value = text === "false" ? text : "true"; }, write: () => select.value };
    }

    array({ dtype, word }, named) {
      const fill = this.select(`Fill of ${named}`, FILLS), of = this.select(`Type of ${named}`, this.dtypes.map((name) => [name, name]));
      const shape = this.input(`Shape of ${named}`, 7, "1024"), text = this.input(`Text of ${named}`, 12, "x.npy");
      const arrange = () => {
        text.hidden = fill.value !== "";
        of.hidden = shape.hidden = !text.hidden || fill.value === "null";
      };
      const read = (given) => {
        const made = MADE.exec(given || word);
        fill.value = made ? made[1] : given === "null" ? given : "";
        of.value = made && this.dtypes.includes(made[2]) ? made[2] : dtype;
        shape.value = made ? made[3] : "";
        text.value = made ? "" : given || "";
        arrange();
      };
      const write = () => {
        arrange();
        return fill.value === "" ? text.value.trim() : fill.value === "null" ? "null" : `${fill.value}:${of.value}:${shape.value.trim()}`;
      };
      return { nodes: [fill, of, shape, text], read, write };
    }
  }

  /* The kernels of the image to choose from; a template is named with its types in a field of its own. */
  class Kernels {
    constructor(h, name, chosen) {
      this.h = h;
      this.chosen = chosen;
      this.list = h("select", { id: "field-kernel", onchange: () => this.choose(this.list.value) });
      this.instance = h("input", { id: "field-instance", type: "text", size: 14, spellcheck: "false", autocomplete: "off",
        autocapitalize: "off", placeholder: "axpy<float>", oninput: () => chosen(this.instance.value.trim()) });
      this.label = h("label", { class: "field instance" }, h("span", {}, "Template instance"), this.instance);
      this.instance.value = name;
      this.offer([], name);
    }

    offer(names, name) {
      const others = names.length === 1 ? names[0] : names.length ? "choose a kernel" : "the only one";
      const pairs = [["", others], ...(names.length > 1 ? names.map((each) => [each, each]) : []), [INSTANCE, "template instance …"]];
      const isTyped = document.activeElement === this.instance, isListed = !name || pairs.some(([value]) => value === name);
      this.list.replaceChildren(...options(this.h, pairs));
      this.list.value = isListed && !isTyped ? name : INSTANCE;
      this.arrange();
    }

    arrange() {
      this.label.hidden = this.list.value !== INSTANCE;
    }

    choose(name) {
      this.arrange();
      if (name === INSTANCE) this.instance.select();
      else this.chosen(name);
    }
  }

  return { Arguments, Kernels, split, joined };
})();
