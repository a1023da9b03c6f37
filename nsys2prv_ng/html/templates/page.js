
"use strict";
(() => {
  // Maps: the value under the pointer, and zooming. What a map shows is read from its own image.
  const UNITS = [[1e9, "s"], [1e6, "ms"], [1e3, "us"], [1, "ns"]];
  const LEAST_BINS = 4;

  function round(value, units) {
    if (value === 0) return `0 ${units[units.length - 1][1]}`;
    const [length, unit] = units.find(([length]) => value >= 0.9995 * length) || units[units.length - 1];
    return `${Number((value / length).toPrecision(3))} ${unit}`;
  }

  function makeTicks(from, to, most) {
    const power = 10 ** Math.floor(Math.log10((to - from) / most));
    const step = Math.max(1, [1, 2, 5, 10, 20].map((k) => k * power).find((size) => (to - from) / size <= most));
    const [length, unit] = UNITS.find(([length]) => to >= length) || UNITS[3];
    const digits = Math.max(0, Math.ceil(Math.log10(length / step) - 1e-9));
    const ticks = [];
    for (let time = Math.ceil(from / step) * step; time <= to; time += step) {
      ticks.push([(time - from) / (to - from), `${(time / length).toFixed(digits)} ${unit}`]);
    }
    return ticks;
  }

  function formatSeconds(ns, step, round = Math.round) {
    const digits = Math.min(9, Math.max(0, Math.ceil(9 - Math.log10(step))));
    const unit = 10 ** (9 - digits);
    const text = ((round(ns / unit) * unit) / 1e9).toFixed(digits);
    return `${digits ? text.replace(/\.?0+$/, "") : text}s`;
  }

  // The pixels of a PNG with a palette and without filters (charts/png.py): a filter byte before each row.
  async function readImage(url) {
    const bytes = Uint8Array.from(atob(url.slice(url.indexOf(",") + 1)), (letter) => letter.charCodeAt(0));
    const view = new DataView(bytes.buffer);
    const columns = view.getUint32(16);
    const rows = view.getUint32(20);
    const parts = {};
    for (let at = 8; at < bytes.length; at += 12 + view.getUint32(at)) {
      parts[String.fromCharCode(...bytes.subarray(at + 4, at + 8))] = bytes.subarray(at + 8, at + 8 + view.getUint32(at));
    }
    const stream = new Blob([parts.IDAT]).stream().pipeThrough(new DecompressionStream("deflate"));
    const pixels = new Uint8Array(await new Response(stream).arrayBuffer());
    return { rows, columns, pixels, colours: parts.PLTE, opacity: parts.tRNS };
  }

  function add(parent, tag, name, text) {
    const element = document.createElement(tag);
    element.className = name;
    if (text !== undefined) element.textContent = text;
    return parent.appendChild(element);
  }

  class TimeMap {
    constructor(figure) {
      this.figure = figure;
      this.facts = JSON.parse(figure.querySelector("script").textContent);
      this.view = figure.querySelector(".view");
      this.image = figure.querySelector("img");
      this.source = this.image.src;
      this.zoomed = [...figure.querySelectorAll(".zoomed")];
      this.bars = [...figure.querySelectorAll(".lane .zoomed > span")];
      this.axis = figure.querySelector(".x-axis");
      this.labels = figure.querySelector(".plot > .y-axis:not(.lane-label)");
      this.output = figure.querySelector("output");
      this.window = figure.querySelector(".shown");
      this.button = add(figure.querySelector(".readout"), "button", "", "show all");
      this.button.hidden = true;
      this.button.addEventListener("click", () => this.zoomAll([0, 1, 0, 1]));
      this.cross = add(this.view, "div", "cross");
      this.cross.hidden = true;
      this.shown = [0, 1, 0, 1]; // left, right, top, bottom
      this.cell = null;
      this.listen();
    }

    async load() {
      if (!this.data) this.data = await readImage(this.source);
      return this.data;
    }

    // Of the columns that share a pixel, the highest value is drawn: a screen would drop all but one.
    async draw() {
      const width = this.view.clientWidth;
      const whole = this.shown[1] - this.shown[0] === 1;
      if (!whole || width >= this.facts.columns || width < 1 || this.facts.kinds) {
        if (this.image.src !== this.source) this.image.src = this.source;
        return;
      }
      const { rows, columns, pixels, colours, opacity } = await this.load();
      if (this.shown[1] - this.shown[0] !== 1 || this.view.clientWidth !== width) return; // changed meanwhile
      const canvas = document.createElement("canvas");
      [canvas.width, canvas.height] = [width, rows];
      const context = canvas.getContext("2d");
      const drawn = context.createImageData(width, rows);
      const cells = new Uint32Array(drawn.data.buffer); // with a thousand rows, each cell must cost nothing but its value
      const palette = new Uint8ClampedArray(4 * (colours.length / 3));
      for (let index = 0; 3 * index < colours.length; index += 1) {
        palette.set([...colours.subarray(3 * index, 3 * index + 3), opacity[index]], 4 * index);
      }
      const colour = new Uint32Array(palette.buffer);
      const first = Int32Array.from({ length: width }, (_, x) => Math.floor((x * columns) / width));
      const last = Int32Array.from({ length: width }, (_, x) => Math.ceil(((x + 1) * columns) / width));
      for (let row = 0; row < rows; row += 1) {
        const start = row * (columns + 1) + 1;
        for (let x = 0; x < width; x += 1) {
          let index = 0;
          for (let column = first[x]; column < last[x]; column += 1) {
            if (pixels[start + column] > index) index = pixels[start + column];
          }
          cells[row * width + x] = colour[index];
        }
      }
      context.putImageData(drawn, 0, 0);
      this.image.src = canvas.toDataURL();
    }

    listen() {
      const place = (event) => {
        const box = this.view.getBoundingClientRect();
        return [(event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height];
      };
      let start = null;
      let mark = null;
      this.view.addEventListener("pointerdown", (event) => {
        if (event.button) return;
        start = place(event);
        this.view.setPointerCapture(event.pointerId);
      });
      this.view.addEventListener("pointermove", (event) => {
        const [x, y] = place(event);
        if (start && this.isFar(start, [x, y])) {
          mark = mark || add(this.view, "div", "drag");
          const [left, right, top, bottom] = this.span(start, [x, y]);
          Object.assign(mark.style, { left: `${100 * left}%`, width: `${100 * (right - left)}%`, top: `${100 * top}%`,
            height: `${100 * (bottom - top)}%` });
        }
        this.point(x, y);
      });
      this.view.addEventListener("pointerup", (event) => {
        if (mark) {
          mark.remove();
          this.zoomTo(this.span(start, place(event)));
        } else {
          this.point(...place(event));
        }
        start = mark = null;
      });
      this.view.addEventListener("pointercancel", () => {
        if (mark) mark.remove();
        start = mark = null;
      });
      this.view.addEventListener("pointerleave", () => { this.cross.hidden = true; });
      this.view.addEventListener("dblclick", () => this.zoomAll([0, 1, 0, 1]));
      this.view.addEventListener("wheel", (event) => {
        if (!event.ctrlKey && !event.shiftKey) return; // the page scrolls
        event.preventDefault();
        this.zoomAt(place(event)[0], event.deltaY + event.deltaX > 0 ? 1.25 : 0.8);
      }, { passive: false });
      this.view.addEventListener("keydown", (event) => this.press(event));
    }

    isFar([fromX], [toX]) {
      return Math.abs(toX - fromX) * this.view.clientWidth > 5;
    }

    // All rows count unless the pointer passed several of them, where there are many.
    span([fromX, fromY], [toX, toY]) {
      const clip = (value) => Math.min(1, Math.max(0, value));
      const [left, right] = [clip(Math.min(fromX, toX)), clip(Math.max(fromX, toX))];
      const rows = this.facts.rows.length * (this.shown[3] - this.shown[2]);
      const [top, bottom] = [clip(Math.min(fromY, toY)), clip(Math.max(fromY, toY))];
      return rows > 32 && (bottom - top) * rows >= 3 ? [left, right, top, bottom] : [left, right, 0, 1];
    }

    zoomTo([left, right, top, bottom]) {
      const [a, b, c, d] = this.shown;
      this.zoomAll([a + left * (b - a), a + right * (b - a), c + top * (d - c), c + bottom * (d - c)]);
    }

    zoomAt(x, factor) {
      const [left, right, top, bottom] = this.shown;
      const at = left + x * (right - left);
      this.zoomAll([Math.max(0, at - (at - left) * factor), Math.min(1, at + (right - at) * factor), top, bottom]);
    }

    async zoomAll(shown) {
      const { columns, rows } = await this.load();
      let [left, right, top, bottom] = shown;
      const lacking = LEAST_BINS / columns - (right - left); // a smaller part would show nothing more
      if (lacking > 0) {
        left = Math.min(Math.max(0, left - lacking / 2), 1 - LEAST_BINS / columns);
        right = left + LEAST_BINS / columns;
      }
      for (const map of maps) {
        if (map.figure.dataset.group !== this.figure.dataset.group) continue;
        const same = map.facts.rows.length === rows;
        map.show([left, right, same ? top : map.shown[2], same ? bottom : map.shown[3]]);
      }
    }

    show(shown) {
      this.shown = shown;
      const [left, right, top, bottom] = shown;
      for (const part of this.zoomed) {
        part.style.left = `${(-100 * left) / (right - left)}%`;
        part.style.width = `${100 / (right - left)}%`;
        if (part.parentElement !== this.view) continue;
        part.style.top = `${(-100 * top) / (bottom - top)}%`;
        part.style.height = `${100 / (bottom - top)}%`;
      }
      for (const bar of this.bars) {
        // The text of a bar that begins left of the view stays in the view.
        const hidden = (left - parseFloat(bar.style.left) / 100) / (right - left);
        bar.style.textIndent = hidden > 0 ? `${hidden * this.view.clientWidth}px` : "";
      }
      const whole = this.facts.to - this.facts.from;
      const [from, to] = [this.facts.from + left * whole, this.facts.from + right * whole];
      this.axis.replaceChildren();
      for (const [at, text] of makeTicks(from, to, this.view.clientWidth < 500 ? 4.5 : 8)) {
        add(this.axis, "span", at > 0.97 ? "end" : "", text).style.left = `${100 * at}%`;
      }
      this.draw();
      this.showLabels();
      this.cross.hidden = true;
      this.button.hidden = right - left === 1 && bottom - top === 1;
      const step = (to - from) / 1000;
      this.window.textContent = this.button.hidden
        ? ""
        : `Shown: --time ${formatSeconds(from, step, Math.floor)}:${formatSeconds(to, step, Math.ceil)} (${round(to - from, UNITS)})`;
    }

    showLabels() {
      const [, , top, bottom] = this.shown;
      const rows = this.facts.rows.length;
      const [first, last] = [Math.floor(top * rows), Math.ceil(bottom * rows)];
      const every = Math.max(1, Math.ceil((last - first) / 24));
      this.labels.replaceChildren();
      for (let row = first; row < last; row += every) {
        const at = ((row + 0.5) / rows - top) / (bottom - top);
        if (at > 0 && at < 1) add(this.labels, "span", "", this.facts.rows[row]).style.top = `${100 * at}%`;
      }
    }

    async point(x, y) {
      if (!(x >= 0 && x < 1 && y >= 0 && y < 1)) return;
      const { rows, columns } = await this.load();
      const [left, right, top, bottom] = this.shown;
      this.pick(Math.floor((left + x * (right - left)) * columns), Math.floor((top + y * (bottom - top)) * rows));
    }

    pick(column, row) {
      const { rows, columns, pixels } = this.data;
      const [left, right, top, bottom] = this.shown;
      const clip = (value, low, high, count) =>
        Math.min(Math.ceil(high * count - 1e-6) - 1, Math.max(Math.floor(low * count + 1e-6), value));
      column = clip(column, left, right, columns);
      row = clip(row, top, bottom, rows);
      this.cell = [column, row];
      const place = (at, low, high) => 100 * ((at - low) / (high - low));
      Object.assign(this.cross.style, {
        left: `${place(column / columns, left, right)}%`, width: `${place(1 / columns, 0, right - left)}%`,
        top: `${place(row / rows, top, bottom)}%`, height: `${place(1 / rows, 0, bottom - top)}%`,
      });
      this.cross.hidden = false;
      const length = (this.facts.to - this.facts.from) / columns;
      const from = this.facts.from + column * length;
      const value = this.describe(pixels[row * (columns + 1) + 1 + column]);
      const time = `${formatSeconds(from, length / 10)} to ${formatSeconds(from + length, length / 10)}`;
      this.output.textContent = `${this.facts.rows[row]}, ${time}: ${value}`;
    }

    describe(index) {
      const { kinds, unit, top, root, absent } = this.facts;
      if (!index) return absent;
      if (kinds) return kinds[index - 1];
      const share = (index - 1) / 254;
      const value = (root ? share * share : share) * top;
      if (unit === "ns") return `about ${round(value, UNITS)}`;
      return `about ${Number(value.toPrecision(3))}${unit === "%" ? "" : " "}${unit}`;
    }

    async press(event) {
      const { rows, columns } = await this.load();
      const [left, right, top, bottom] = this.shown;
      const [column, row] = this.cell || [Math.floor(((left + right) / 2) * columns), Math.floor(top * rows)];
      const moves = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
      const step = event.shiftKey ? 10 : 1;
      if (event.key in moves) this.pick(column + step * moves[event.key][0], row + step * moves[event.key][1]);
      else if (event.key === "+" || event.key === "-") {
        const x = ((column + 0.5) / columns - left) / (right - left);
        this.zoomAt(x > 0 && x < 1 ? x : 0.5, event.key === "+" ? 0.5 : 2);
      } else if (event.key === "0" || event.key === "Escape") this.zoomAll([0, 1, 0, 1]);
    }
  }

  const maps = [...document.querySelectorAll("figure.map")].map((figure) => new TimeMap(figure));
  const fit = () => { for (const map of maps) map.show(map.shown); };
  for (const choice of document.querySelectorAll(".choice")) {
    const [select, figures] = [choice.querySelector("select"), [...choice.querySelectorAll("figure")]];
    const choose = () => {
      for (const [number, figure] of figures.entries()) figure.classList.toggle("unchosen", number !== select.selectedIndex);
      fit();
    };
    select.addEventListener("change", choose);
    select.closest("p").hidden = false;
    choose();
  }
  fit();
  addEventListener("resize", fit);
  addEventListener("keydown", (event) => {
    // The page must not scroll while the arrows move a pointer. The map itself answers later.
    if (event.target.classList.contains("view") && event.key.startsWith("Arrow")) event.preventDefault();
  });
  addEventListener("beforeprint", () => { for (const map of maps) map.show([0, 1, 0, 1]); });
  document.documentElement.dataset.ready = String(maps.length);
})();
