"use strict";

/* How the page is laid out: widths and height of the panes, wrapped lines and the theme, which a browser remembers. */
const cujitLayout = (() => {
  const KEY = "cujit-layout", STEP = 0.05, LEAST = 0.1, STEP_PX = 40, LEAST_PX = 160;
  const USUAL = { weights: { source: 4, tileir: 3, ptx: 3, sass: 3 }, height: 0, wrap: false, code: false, theme: "" };
  const NAMES = { source: "Source", tileir: "Tile IR", ptx: "PTX", sass: "Machine code" };

  function remembered() {
    try {
      const kept = JSON.parse(localStorage.getItem(KEY)) || {};
      return { ...USUAL, ...kept, weights: { ...USUAL.weights, ...kept.weights } };
    } catch { return { ...USUAL, weights: { ...USUAL.weights } }; }
  }

  class Layout {
    constructor(h, wrapped) {
      this.h = h;
      this.wrapped = wrapped;
      this.now = remembered();
      this.panes = document.getElementById("panes");
      this.wraps = h("input", { id: "wrap", type: "checkbox", onchange: () => this.set("wrap", this.wraps.checked) });
      const reset = h("button", { type: "button", id: "reset-layout", onclick: () => this.reset() }, "Reset layout");
      document.querySelector("#texts .bar").append(h("label", {}, this.wraps, " Wrap lines"), reset);
      this.tall = this.separator("Height of the lists", "horizontal", (event) => this.dragged(event),
        { ArrowUp: () => this.grow(-STEP_PX), ArrowDown: () => this.grow(STEP_PX) });
      this.panes.after(this.tall);
      this.theme = document.getElementById("theme");
      this.theme.addEventListener("change", () => this.set("theme", this.theme.value));
    }

    set(name, value) {
      this.now[name] = value;
      try {
        localStorage.setItem(KEY, JSON.stringify(this.now));
      } catch { /* a browser that keeps nothing still lays it out */ }
      this.apply();
    }

    reset() {
      this.now = { ...USUAL, weights: { ...USUAL.weights } };
      this.set("theme", "");
    }

    /* Lay out the panes that there are; each but the last has a splitter at its end. */
    apply() {
      const { weights, height, wrap, theme } = this.now, kinds = this.kinds();
      this.panes.style.setProperty("--columns", kinds.map((kind) => `minmax(0, ${weights[kind]}fr)`).join(" "));
      this.panes.style.setProperty("--pane-height", `${height}px`);
      this.panes.classList.toggle("sized", height > 0);
      this.panes.classList.toggle("wrapped", wrap);
      this.wraps.checked = wrap;
      this.theme.value = theme;
      document.documentElement.dataset.theme = theme;
      this.wrapped(wrap);
      this.filter(document.getElementById("code-only"));
      kinds.forEach((kind, k) => this.split(kind, kinds[k + 1]));
      this.tall.setAttribute("aria-valuenow", Math.round(this.height()));
    }

    /* The list of PTX has a box of its own, which is as it was left. */
    filter(box) {
      if (!box) return;
      if (!box.dataset.remembered) box.addEventListener("change", () => this.set("code", box.checked));
      box.dataset.remembered = "true";
      if (box.checked !== this.now.code) box.click();
    }

    kinds() {
      return [...this.panes.children].map((pane) => Object.keys(NAMES).find((kind) => pane.classList.contains(kind)));
    }

    height() {
      return this.now.height || this.panes.getBoundingClientRect().height;
    }

    split(kind, next) {
      const pane = this.panes.querySelector(`.pane.${kind}`);
      let splitter = pane.querySelector(".splitter");
      if (!next) return splitter && splitter.remove();
      if (!splitter) {
        splitter = this.separator(`Width of ${NAMES[kind]}`, "vertical", (event) => this.pulled(event, kind),
          { ArrowLeft: () => this.widen(kind, -STEP), ArrowRight: () => this.widen(kind, STEP) });
        pane.append(splitter);
      }
      return splitter.setAttribute("aria-valuenow", Math.round(100 * this.share(kind)));
    }

    separator(label, orientation, pulled, keys) {
      const attributes = { role: "separator", tabindex: 0, class: "splitter", "aria-label": label, "aria-orientation": orientation };
      const ends = orientation === "vertical" ? { "aria-valuemin": 100 * LEAST, "aria-valuemax": 100 - 100 * LEAST } : {};
      const onkeydown = (event) => {
        if (!keys[event.key]) return;
        event.preventDefault();
        keys[event.key]();
      };
      const onpointerdown = (event) => {
        event.preventDefault();
        event.target.setPointerCapture(event.pointerId);
        event.target.addEventListener("pointermove", pulled);
        event.target.addEventListener("lostpointercapture", () => event.target.removeEventListener("pointermove", pulled), { once: true });
      };
      return this.h("div", { ...attributes, ...ends, "aria-valuenow": 50, onkeydown, onpointerdown, ondblclick: () => this.reset() });
    }

    next(kind) {
      const kinds = this.kinds();
      return kinds[kinds.indexOf(kind) + 1];
    }

    /* The share of a pane in the width of both that its splitter is between. */
    share(kind) {
      const { weights } = this.now;
      return weights[kind] / (weights[kind] + weights[this.next(kind)]);
    }

    divide(kind, share) {
      const next = this.next(kind), { weights } = this.now, both = weights[kind] + weights[next];
      const own = both * Math.min(Math.max(share, LEAST), 1 - LEAST);
      this.set("weights", { ...weights, [kind]: own, [next]: both - own });
    }

    widen(kind, by) {
      this.divide(kind, this.share(kind) + by);
    }

    pulled(event, kind) {
      const [own, next] = [kind, this.next(kind)].map((each) => this.panes.querySelector(`.pane.${each}`).getBoundingClientRect());
      this.divide(kind, (event.clientX - own.left) / (own.width + next.width));
    }

    grow(by) {
      this.set("height", Math.max(LEAST_PX, Math.round(this.height() + by)));
    }

    dragged(event) {
      this.set("height", Math.max(LEAST_PX, Math.round(event.clientY - this.panes.getBoundingClientRect().top)));
    }
  }

  return { Layout };
})();
