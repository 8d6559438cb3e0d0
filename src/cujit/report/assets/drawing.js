"use strict";

/* What a report is drawn with: elements, tables, and plots of values. Nothing here knows the page.

   All text is foreign (sources, names): it becomes text nodes and attributes, and is never read as HTML. */
const cujitDrawing = (() => {
  const SVG = "http://www.w3.org/2000/svg";
  const SECTOR = 32, WORD = 4, BANKS = 32, WARP = 32;
  const MOST_BOXES = 128, MOST_BYTES = 4096;
  const LIMITERS = ["warps", "blocks", "registers", "shared memory", "barriers", "virtual resources"];

  // -- elements ----------------------------------------------------------------------------------------------

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
  const text = (x, y, kind, words) => s("text", { x, y, class: kind }, words);
  const path = (kind, d) => s("path", { class: kind, d });
  const drawing = (kind, width, height, said) =>
    s("svg", { viewBox: `0 0 ${width} ${height}`, class: kind, role: "img", "aria-label": said });

  const write = (value) => (Number.isInteger(value) ? value.toLocaleString("en") : String(+value.toPrecision(4)));
  const percent = (share) => `${(100 * share).toLocaleString("en", { maximumFractionDigits: 1 })} %`;
  const counted = (count, noun) => `${write(count)} ${noun}${count === 1 ? "" : "s"}`;
  const micros = (seconds) => `${+(seconds * 1e6).toPrecision(3)} µs`;

  function scaled(value) {
    const power = Math.min(5, Math.max(0, Math.floor(Math.log10(value) / 3)));
    return `${+(value / 1000 ** power).toPrecision(3)}${["", " k", " M", " G", " T", " P"][power]}`;
  }

  /* Cells that are numbers stand right; the first of a row is its head. */
  function table(caption, columns, rows) {
    const cell = (value, k) => {
      const words = typeof value === "number" ? write(value) : value;
      return k ? h("td", { class: typeof value === "number" && "number" }, words) : h("th", { scope: "row" }, words);
    };
    const head = h("tr", {}, columns.map((column) => h("th", { scope: "col" }, column)));
    const body = rows.map((row) => h("tr", {}, row.map(cell)));
    return h("table", {}, h("caption", {}, caption), h("thead", {}, head), h("tbody", {}, body));
  }

  /* What may be wider than the page; who has no pointer scrolls it by keys. */
  const scrolled = (label, ...children) =>
    h("div", { class: "scrolled", tabindex: 0, role: "group", "aria-label": label }, ...children);

  // -- one access of a warp ----------------------------------------------------------------------------------

  /* Lanes above, boxes of what they touch below, and a line from each lane to the first box that it touches. */
  function touching(access, boxes, boxOf, said, legend) {
    const width = 960, lane = width / WARP, top = 26, below = 150;
    const step = Math.min(width / boxes.length, 120), left = (width - step * boxes.length) / 2;
    const tall = Math.max(...boxes.map((box) => box.height));
    const active = new Map(access.lanes.map((each) => [each[0], each]));
    const drawn = drawing("picture", width, below + tall + 40, said);
    drawn.append(text(0, 12, "label", "lanes of the warp"));
    for (let k = 0; k < WARP; k++) {
      const is = active.get(k), x = k * lane, middle = x + lane / 2;
      const group = s("g", { class: is ? "lane" : "lane idle" });
      group.append(s("title", {}, is ? `lane ${k}: byte ${is[1]}, ${is[2]} bytes` : `lane ${k} does nothing`));
      group.append(s("rect", { x: x + 1.5, y: top, width: lane - 3, height: 24, rx: 3 }));
      group.append(text(middle, top + 16, "middle", String(k)));
      const box = is ? boxOf(is) : undefined;
      if (box !== undefined) {
        const to = left + (box + 0.5) * step;
        group.append(path("", `M${middle} ${top + 24}C${middle} ${top + 74} ${to} ${below - 60} ${to} ${below - 4}`));
      }
      drawn.append(group);
    }
    const labelled = Math.ceil(30 / step);
    boxes.forEach((box, k) => {
      const x = left + k * step, group = s("g", { class: "box" }, s("title", {}, box.title));
      group.append(...box.draw(x + 1, below, Math.max(step - 2, 2)));
      if (k % labelled === 0) group.append(text(x + step / 2, below + box.height + 14, "middle", box.label));
      if (box.breaks) group.append(path("break", `M${x} ${below - 8}V${below + box.height + 4}`));
      drawn.append(group);
    });
    drawn.append(text(0, below + tall + 34, "label", legend));
    return drawn;
  }

  /* Each byte that lanes want, with what `of` makes of it; of very long accesses the first bytes. */
  function wanted(access, of) {
    for (const [, offset, bytes] of access.lanes) {
      for (let k = 0; k < Math.min(bytes, MOST_BYTES); k++) of(offset + k);
    }
  }

  /* Each box is a sector, and the words of it that lanes want are filled. */
  function sectors(access) {
    const used = new Map();
    wanted(access, (byte) => {
      const sector = Math.floor(byte / SECTOR);
      if (!used.has(sector)) used.set(sector, new Set());
      used.get(sector).add(byte % SECTOR);
    });
    const order = [...used.keys()].sort((a, b) => a - b), shown = order.slice(0, MOST_BOXES);
    const index = new Map(shown.map((sector, k) => [sector, k]));
    const asked = [...used.values()].reduce((all, bytes) => all + bytes.size, 0);
    const lanes = counted(access.lanes.length, "lane"), many = counted(used.size, "sector");
    const said = `${lanes} of a warp touch ${many} of ${SECTOR} bytes: `
      + `${write(asked)} of ${write(used.size * SECTOR)} bytes are requested.`;
    const boxes = shown.map((sector, k) => {
      const bytes = used.get(sector), words = new Set([...bytes].map((byte) => Math.floor(byte / WORD)));
      const word = (x, y, width) => (at) =>
        s("rect", { x: x + (at * width) / 8, y, width: width / 8, height: 44, class: "wanted" });
      return {
        height: 44,
        label: write(sector * SECTOR),
        breaks: k > 0 && order[k - 1] !== sector - 1,
        title: `sector at byte ${sector * SECTOR}: ${bytes.size} of ${SECTOR} bytes are requested`,
        draw: (x, y, width) =>
          [s("rect", { x, y, width, height: 44, class: "sector" }), ...[...words].map(word(x, y, width))],
      };
    });
    const where = access.space === "local" ? "of a thread's local memory" : "from a line of 128 bytes on";
    const legend = `sectors of 32 bytes, by their first byte ${where}; filled are words that lanes want; `
      + `a dashed line: others lie between${order.length > shown.length ? `; the first ${MOST_BOXES} sectors` : ""}`;
    const drawn = touching(access, boxes, (lane) => index.get(Math.floor(lane[1] / SECTOR)), said, legend);
    return { said, drawn, unit: "sector at", of: (lane) => Math.floor(lane[1] / SECTOR) * SECTOR };
  }

  /* Each box is a bank, with a square for each other word that lanes want of it: these come one after the other. */
  function banks(access) {
    const words = Array.from({ length: BANKS }, () => new Set());
    wanted(access, (byte) => words[Math.floor(byte / WORD) % BANKS].add(Math.floor(byte / WORD)));
    const most = Math.max(...words.map((each) => each.size), 1), square = Math.max(1, Math.min(16, 220 / most));
    const busy = words.filter((each) => each.size).length, lanes = counted(access.lanes.length, "lane");
    const said = `${lanes} of a warp touch ${counted(busy, "bank")} of ${BANKS}; `
      + `at most ${counted(most, "word")} of one bank.`;
    const boxes = words.map((each, bank) => ({
      height: square * most,
      label: String(bank),
      title: `bank ${bank}: ${counted(each.size, "word")}`,
      draw: (x, y, width) => [
        s("rect", { x, y, width, height: square * most, class: "sector" }),
        ...[...each].map((_, k) =>
          s("rect", { x, y: y + k * square, width, height: Math.max(square - 1, 0.5), class: "wanted" })),
      ],
    }));
    const of = (lane) => Math.floor(lane[1] / WORD) % BANKS;
    const legend = "banks of shared memory; a square for each word that lanes want of one";
    return { said, unit: "bank", of, drawn: touching(access, boxes, of, said, legend) };
  }

  const picture = (access) => (access.space === "shared" ? banks(access) : sectors(access));

  // -- roofline ----------------------------------------------------------------------------------------------

  function tens(from, to) {
    const found = [];
    for (let power = Math.ceil(Math.log10(from)); 10 ** power <= to; power++) found.push(10 ** power);
    return found;
  }

  function roofline({ roofs, bounds }) {
    const { slopes, levels, flops_per_s: rate } = roofs, { flops_per_byte: far, flops_per_l1_byte: near } = bounds;
    const width = 720, height = 330, left = 64, right = 16, top = 16, bottom = 44;
    const points = [[far, "by distinct bytes", "filled"]];
    if (near && near < 0.8 * far) points.push([near, "by bytes moved", "hollow"]);
    const most = Math.max(...levels.map((level) => level.flops_per_s));
    const corners = slopes.map((slope) => most / slope.bytes_per_s);
    const all = [...corners, ...points.map(([value]) => value)];
    const low = Math.min(...all) / 30, high = Math.max(...all) * 12;
    const floor = Math.min((low * slopes[0].bytes_per_s) / 1.5, rate / 4), ceiling = most * 4;
    const part = (value, from, to) => Math.log(value / from) / Math.log(to / from);
    const x = (value) => left + part(value, low, high) * (width - left - right);
    const y = (value) => height - bottom - part(value, floor, ceiling) * (height - top - bottom);
    const each = points.map(([value, label]) => `${+value.toPrecision(3)} operations a byte ${label}`).join(", ");
    const drawn = drawing("plot", width, height, `Roofline: ${each}, at most ${scaled(rate)} a second`);
    for (const tick of tens(low, high)) {
      drawn.append(text(x(tick), height - bottom + 18, "middle", String(+tick.toPrecision(3))));
    }
    for (const tick of tens(floor, ceiling)) {
      drawn.append(path("grid", `M${left} ${y(tick)}H${width - right}`));
      drawn.append(text(left - 6, y(tick) + 4, "end", scaled(tick)));
    }
    slopes.forEach((slope, k) => {
      const begin = [x(low), y(low * slope.bytes_per_s)], end = [x(corners[k]), y(most)];
      drawn.append(path(`series s${k}`, `M${begin}L${end}`));
      const steep = (Math.atan2(end[1] - begin[1], end[0] - begin[0]) * 180) / Math.PI;
      const at = [x(low * 1.35), y(low * 1.35 * slope.bytes_per_s) - 5];
      drawn.append(s("text", { x: at[0], y: at[1], transform: `rotate(${steep} ${at})` }, slope.label));
    });
    for (const level of levels) {
      const first = Math.min(...slopes.map((slope) => level.flops_per_s / slope.bytes_per_s));
      drawn.append(path("level", `M${x(first)} ${y(level.flops_per_s)}H${width - right}`));
      drawn.append(text(width - right, y(level.flops_per_s) - 5, "end", level.label));
    }
    for (const [value, label, kind] of points) {
      drawn.append(s("circle", { cx: x(value), cy: y(rate), r: 5.5, class: `point ${kind}` }));
      drawn.append(text(x(value), y(rate) + 20, kind === "filled" ? "" : "end", label));
    }
    drawn.append(text((left + width) / 2, height - 6, "middle", "floating-point operations per byte"));
    return drawn;
  }

  // -- occupancy ---------------------------------------------------------------------------------------------

  /* Occupancy over one quantity: a stretch in another colour, with its name where there is room, for each limit. */
  function curve({ label, own, own_label: ownLabel, end, stretches }, occupancy) {
    const width = 300, height = 190, left = 40, right = 10, top = 24, bottom = 40;
    const x = (value) => left + (value / end) * (width - left - right);
    const y = (share) => height - bottom - share * (height - top - bottom);
    const said = `Occupancy by ${label}; this kernel has ${ownLabel}, and ${percent(occupancy)}`;
    const drawn = drawing("plot", width, height, said);
    for (const share of [0, 0.5, 1]) {
      drawn.append(path("grid", `M${left} ${y(share)}H${width - right}`));
      drawn.append(text(left - 5, y(share) + 4, "end", `${100 * share}`));
    }
    for (const { limiter, edges, heights } of stretches) {
      const steps = heights.map((share, k) => `V${y(share)}H${x(edges[k + 1])}`).join("");
      const series = `s${Math.max(0, LIMITERS.findIndex((name) => limiter.includes(name)))}`, from = x(edges[0]);
      const area = s("g", { class: `area ${series}` }, s("title", {}, `limited by ${limiter}`));
      area.append(path("fill", `M${from} ${y(0)}${steps}V${y(0)}Z`));
      area.append(path(`series ${series}`, `M${from} ${y(heights[0])}${steps}`));
      drawn.append(area);
      const room = x(edges[edges.length - 1]) - from;
      if (room > 7 * limiter.length) drawn.append(text(from + 5, y(0) - 6, "label", limiter));
    }
    const at = x(Math.min(own, end)), middle = Math.min(Math.max(at, left + 20), width - 30);
    drawn.append(path("own", `M${at} ${top}V${y(0)}`));
    drawn.append(s("circle", { cx: at, cy: y(occupancy), r: 4.5, class: "point filled" }));
    drawn.append(text(middle, 14, "middle strong", ownLabel), text(left, height - 22, "middle", "0"));
    drawn.append(text(width - right, height - 22, "end", write(end)));
    drawn.append(text((left + width - right) / 2, height - 5, "middle", label));
    return drawn;
  }

  return { h, table, scrolled, write, percent, counted, micros, picture, roofline, curve };
})();
