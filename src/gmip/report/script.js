"use strict";
// Tooltips, zoom and copying. The drawings are already there; this draws them again when the view changes, from the
// numbers beside them and as charts.py does.
(() => {
  document.documentElement.classList.add("scripted");
  const SVG = "http://www.w3.org/2000/svg";
  const MAX_ZOOM = 64;

  const element = (name, attributes, text) => {
    const made = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (text !== undefined) made.textContent = text;
    return made;
  };
  const short = (place) => String(Math.round(place * 10) / 10);
  const clamp = (value, low, high) => Math.min(Math.max(value, low), high);

  // -- words, as in words.py ------------------------------------------------------------------------------------------

  const plain = (value, digits) => String(Number(value.toPrecision(digits)));
  const rateText = (rate) => `${plain(rate * 100, 6)}%`;
  const percent = (share, up) => {
    const value = share * 100;
    if (value === 0) return "0%";
    const digits = value >= 1 ? 3 : 2, unit = 10 ** (Math.floor(Math.log10(value)) - digits + 1);
    // The numbers carry six digits: less than that above a round one is that round one.
    const rounded = up ? Math.ceil(value / unit - 1e-4) * unit : value;
    const text = plain(rounded, digits);
    return text === "100" && value < 100 && !up ? `over ${plain(Math.floor(value / unit) * unit, 3)}%` : `${text}%`;
  };

  // -- curves ---------------------------------------------------------------------------------------------------------

  const at = (series, rate) => {
    if (rate < series.start * (1 - 1e-5)) return null;
    const { x, y } = series;
    let low = 0, high = x.length - 1;  // the last point at or before the rate
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (x[middle] <= rate * (1 + 1e-5)) low = middle; else high = middle - 1;
    }
    if (series.stepped || low === x.length - 1) return y[low];
    return y[low] + (y[low + 1] - y[low]) * Math.max(0, rate - x[low]) / (x[low + 1] - x[low]);
  };
  const value = (series, rate) => {
    const found = at(series, rate);
    if (found === null) return "not measured";
    if (series.role === "promise") return `at most ${percent(found, true)}`;
    return (series.role === "expectation" ? "about " : "") + percent(found, false);
  };

  const sentence = (series, rate, confidence) => {
    const who = `An attacker who accepts ${rateText(rate)} false alarms`, found = at(series, rate);
    if (series.role === "chance") return `${who} finds ${percent(found, false)} of the members by guessing.`;
    if (series.role === "promise") return `${who} finds at most ${percent(found, true)} of the members.`;
    if (series.role === "expectation") return `${who} is expected to find ${percent(found, false)} of the members.`;
    const [low, high] = ends(series, rate);
    const error = low === null ? "" : ` (${confidence} interval ${percent(low, false)} to ${percent(high, true)})`;
    return `${who} finds ${percent(found, false)} of the members${error}.`;
  };
  const ends = (series, rate) => {
    if (!series.band || rate < series.band[0][0]) return [null, null];
    const [x, ...rows] = series.band;
    return rows.map((y) => at({ start: 0, stepped: false, x, y }, rate));
  };

  class Chart {
    constructor(svg, figure) {
      this.svg = svg;
      this.figure = figure;
      this.log = svg.dataset.scale === "log";
      this.view = [0, 1, 0, 1];
      const [width, height, left, right, top, bottom] = figure.data.box;
      Object.assign(this, { left, top, width: width - left - right, height: height - top - bottom });
      this.cross = svg.querySelector(".cross");
      this.listen();
    }
    unit(rate) {
      const { lowest } = this.figure.data;
      return this.log ? 1 - Math.log10(Math.max(rate, lowest / 10)) / Math.log10(lowest) : rate;
    }
    rate(unit) {
      return this.log ? 10 ** ((1 - unit) * Math.log10(this.figure.data.lowest)) : unit;
    }
    x(rate) {
      return this.left + (this.unit(rate) - this.view[0]) / (this.view[1] - this.view[0]) * this.width;
    }
    y(rate) {
      return this.top + this.height - (this.unit(rate) - this.view[2]) / (this.view[3] - this.view[2]) * this.height;
    }
    // The unit coordinates of an event, in or beside the plot.
    place(event) {
      const point = new DOMPoint(event.clientX, event.clientY).matrixTransform(this.svg.getScreenCTM().inverse());
      const u = clamp((point.x - this.left) / this.width, 0, 1), v = clamp(1 - (point.y - this.top) / this.height, 0, 1);
      const [x0, x1, y0, y1] = this.view;
      return [x0 + u * (x1 - x0), y0 + v * (y1 - y0)];
    }
    path(series) {
      const begin = this.log ? series.start : 0;
      const first = series.stepped ? at(series, begin) : series.y[0];
      const jump = this.log || !first ? "" : `${short(this.y(0))}V`;
      let d = `M${short(this.x(begin))} ${jump}${short(this.y(first))}`;
      series.x.forEach((rate, i) => {
        if (rate <= begin * (1 + 1e-5)) return;
        const x = short(this.x(rate)), y = short(this.y(series.y[i]));
        d += series.stepped ? `H${x}V${y}` : `L${x} ${y}`;
      });
      return d;
    }
    band(series) {
      const [rates, lower, upper] = series.band;
      const begin = this.log ? series.start * (1 - 1e-5) : 0;
      const shown = rates.map((_, i) => i).filter((i) => rates[i] >= begin);
      if (shown.length < 2) return "";
      const points = (ends, order) => order.map((i) => `${short(this.x(rates[i]))} ${short(this.y(ends[i]))}`);
      return `M${[...points(upper, shown), ...points(lower, [...shown].reverse())].join("L")}Z`;
    }
    ticks(low, high) {
      const inside = (ticks) => ticks.filter((t) => t >= low * (1 - 1e-9) && t <= high * (1 + 1e-9));
      if (this.log && high / low > 3) {
        const steps = high / low > 40 ? [1] : [1, 2, 5];
        const decades = [];
        for (let k = Math.floor(Math.log10(low)); k <= 0; k++) decades.push(k);
        return inside(decades.flatMap((k) => steps.map((s) => Number(`${s}e${k}`))));
      }
      const raw = (high - low) / 5, unit = 10 ** Math.floor(Math.log10(raw) + 1e-9);
      const step = [1, 2, 5, 10].find((s) => s * unit >= raw * (1 - 1e-9)) * unit;
      const count = Math.floor(high / step + 1e-9) - Math.ceil(low / step - 1e-9) + 1;
      return Array.from({ length: count }, (_, i) => Number(((Math.ceil(low / step - 1e-9) + i) * step).toPrecision(12)));
    }
    drawTicks() {
      const group = this.svg.querySelector(".ticks");
      group.replaceChildren();
      const [x0, x1, y0, y1] = this.view.map((unit) => this.rate(unit));
      const bottom = this.top + this.height;
      for (const tick of this.ticks(x0, x1)) {
        const x = short(this.x(tick));
        group.append(element("path", { d: `M${x} ${this.top}V${bottom}`, class: "grid" }));
        group.append(element("text", { x, y: bottom + 21, "text-anchor": "middle" }, rateText(tick)));
      }
      for (const tick of this.ticks(y0, y1)) {
        const y = short(this.y(tick));
        group.append(element("path", { d: `M${this.left} ${y}h${this.width}`, class: "grid" }));
        group.append(element("text", { x: this.left - 7, y, dy: "0.35em", "text-anchor": "end" }, rateText(tick)));
      }
    }
    draw() {
      this.drawTicks();
      for (const group of this.svg.querySelectorAll(".series")) {
        const series = this.figure.data.series[group.dataset.series];
        group.querySelector(".curve").setAttribute("d", this.path(series));
        if (series.band) group.querySelector(".band").setAttribute("d", this.band(series));
        for (const marker of group.querySelectorAll(".marker")) {
          // A marker stays at its rate; the page was drawn with it.
          marker.rate ??= this.rateOf(marker);
          marker.setAttribute("x", short(this.x(marker.rate)));
          marker.setAttribute("y", short(this.y(at(series, marker.rate) ?? 0)));
        }
      }
      const unmeasured = this.svg.querySelector(".unmeasured");
      if (unmeasured) {
        const start = Math.min(...this.figure.data.series.map((s) => s.start).filter((s) => s > 0));
        unmeasured.setAttribute("width", short(clamp(this.x(start) - this.left, 0, this.width)));
      }
      this.drawCross();
    }
    rateOf(marker) {
      const rate = this.rate((Number(marker.getAttribute("x")) - this.left) / this.width);
      return Number(rate.toPrecision(this.log ? 1 : 2));
    }
    drawCross() {
      const { rate, data, hidden, marked } = this.figure;
      const x = this.x(rate);
      this.cross.replaceChildren(element("line", { x1: x, x2: x, y1: this.top, y2: this.top + this.height }));
      data.series.forEach((series, i) => {
        const found = at(series, rate);
        if (found === null || hidden.has(i)) return;
        const look = this.svg.querySelector(`.series[data-series="${i}"]`).getAttribute("class");
        this.cross.append(element("circle", { cx: x, cy: this.y(found), r: i === marked ? 6 : 3.5, class: look.replace("series", "") }));
      });
      if (this.selection) {
        const [[u0, v0], [u1, v1]] = this.selection.map(([u, v]) => [this.rate(u), this.rate(v)]);
        const xs = [this.x(u0), this.x(u1)].sort((a, b) => a - b), ys = [this.y(v0), this.y(v1)].sort((a, b) => a - b);
        this.cross.append(element("rect", { x: xs[0], y: ys[0], width: xs[1] - xs[0], height: ys[1] - ys[0] }));
      }
    }
    look(x0, x1, y0, y1) {
      const span = (low, high) => {
        const size = clamp(high - low, 1 / MAX_ZOOM, 1), start = clamp((low + high - size) / 2, 0, 1 - size);
        return [start, start + size];
      };
      this.view = [...span(x0, x1), ...span(y0, y1)];
      this.draw();
    }
    zoom(how) {
      if (how === "reset") return this.look(0, 1, 0, 1);
      const [x0, x1, y0, y1] = this.view, factor = how === "in" ? 0.5 : 2;
      const first = this.figure.data.series[0];
      const x = this.unit(this.figure.rate), y = this.unit(at(first, this.figure.rate) ?? this.rate((y0 + y1) / 2));
      const half = [(x1 - x0) / 2 * factor, (y1 - y0) / 2 * factor];
      return this.look(x - half[0], x + half[0], y - half[1], y + half[1]);
    }
    follow() {
      const x = this.unit(this.figure.rate), [x0, x1, y0, y1] = this.view;
      if (x >= x0 && x <= x1) return this.drawCross();
      const y = this.unit(at(this.figure.data.series[0], this.figure.rate) ?? 0);
      return this.look(x - (x1 - x0) / 2, x + (x1 - x0) / 2, y - (y1 - y0) / 2, y + (y1 - y0) / 2);
    }
    listen() {
      let from = null;
      this.svg.addEventListener("pointerdown", (event) => {
        if (event.pointerType === "touch") return this.figure.point(this, event, true);
        if (event.button !== 0) return undefined;
        from = this.place(event);
        this.svg.setPointerCapture(event.pointerId);
        return undefined;
      });
      this.svg.addEventListener("pointermove", (event) => {
        if (from) this.selection = [from, this.place(event)];
        this.figure.point(this, event, event.pointerType === "touch");
      });
      this.svg.addEventListener("pointerup", (event) => {
        if (!from) return;
        const to = this.place(event), start = from;
        const moved = [0, 1].map((i) => Math.abs(to[i] - start[i]) / (this.view[2 * i + 1] - this.view[2 * i]));
        from = this.selection = null;
        if (Math.max(...moved) < 0.02) return this.figure.point(this, event, true);
        const sides = [0, 1].map((i) => [Math.min(start[i], to[i]), Math.max(start[i], to[i])]);
        this.figure.leave();
        return this.look(...sides[0], ...sides[1]);
      });
      this.svg.addEventListener("pointercancel", () => { from = this.selection = null; this.drawCross(); });
      this.svg.addEventListener("pointerleave", (event) => { if (event.pointerType !== "touch") this.figure.leave(); });
      this.svg.addEventListener("dblclick", () => this.zoom("reset"));
    }
  }

  class Figure {
    constructor(root) {
      this.root = root;
      this.data = JSON.parse(document.getElementById(`${root.id}-data`).textContent);
      this.kept = this.rate = this.data.rate;
      this.hidden = new Set();
      this.marked = -1;
      this.tooltip = root.querySelector(".tooltip");
      this.slider = root.querySelector("input");
      this.charts = [...root.querySelectorAll(".chart")].map((svg) => new Chart(svg, this));
      this.perDecade = Number(this.slider.max) / -Math.log10(this.data.lowest);
      this.slider.addEventListener("input", () => {
        const exact = this.data.lowest * 10 ** (Number(this.slider.value) / this.perDecade);
        this.keep(Number(exact.toPrecision(2)));
        this.charts.forEach((chart) => chart.follow());
      });
      for (const button of root.querySelectorAll("[data-zoom]")) {
        const chart = this.charts.find((c) => button.closest(".chart-box").contains(c.svg));
        button.addEventListener("click", () => chart.zoom(button.dataset.zoom));
      }
      for (const button of root.querySelectorAll(".legend button")) {
        button.addEventListener("click", () => this.toggle(Number(button.dataset.series), button));
      }
      this.keep(this.kept);
    }
    toggle(index, button) {
      const shown = this.hidden.delete(index);
      if (!shown) this.hidden.add(index);
      button.setAttribute("aria-pressed", String(shown));
      for (const group of this.root.querySelectorAll(`.series[data-series="${index}"]`)) group.classList.toggle("off", !shown);
      this.charts.forEach((chart) => chart.drawCross());
    }
    // The rate that the legend reads out, until another is chosen.
    keep(rate) {
      this.kept = rate;
      this.show(rate);
      this.slider.value = String(Math.round(Math.log10(Math.max(rate, this.data.lowest) / this.data.lowest) * this.perDecade));
      const first = this.data.series[0];
      this.slider.setAttribute("aria-valuetext", `${rateText(rate)}: ${first.name} ${value(first, rate)}`);
    }
    show(rate) {
      this.rate = rate;
      this.root.querySelector(".legend-title").textContent =
        `An attacker who accepts ${rateText(rate)} false alarms finds, of the members:`;
      for (const button of this.root.querySelectorAll(".legend button")) {
        button.querySelector(".value").textContent = value(this.data.series[button.dataset.series], rate);
      }
      this.charts.forEach((chart) => chart.drawCross());
    }
    point(chart, event, keep) {
      const rate = Number(chart.rate(chart.place(event)[0]).toPrecision(2));
      if (keep) this.keep(rate); else this.show(rate);
      this.marked = this.nearest(chart, rate, chart.y(chart.rate(chart.place(event)[1])));
      this.charts.forEach((one) => one.drawCross());
      this.fill(rate, this.marked);
      this.tooltip.hidden = false;
      const box = this.root.getBoundingClientRect();
      const { offsetWidth: width, offsetHeight: height } = this.tooltip;
      const x = event.clientX - box.left, y = event.clientY - box.top;
      const beside = x + 18 + width < box.width ? x + 18 : x - 18 - width;
      this.tooltip.style.left = `${clamp(beside, 4, Math.max(4, box.width - width - 4))}px`;
      // Above the finger or the pointer where it would hide what is below.
      this.tooltip.style.top = `${Math.max(4, event.pointerType === "touch" ? y - height - 24 : y - height / 2)}px`;
    }
    // The visible curve that is nearest to a height in the drawing.
    nearest(chart, rate, height) {
      const distances = this.data.series.map((series, i) => {
        const found = at(series, rate);
        return found === null || this.hidden.has(i) ? Infinity : Math.abs(chart.y(found) - height);
      });
      const least = Math.min(...distances);
      return least === Infinity ? -1 : distances.indexOf(least);
    }
    fill(rate, index) {
      const name = document.createElement("strong"), text = document.createElement("span");
      const series = this.data.series[index];
      name.textContent = series ? series.name : "";
      text.textContent = series ? sentence(series, rate, this.data.confidence) : "No curve is shown.";
      this.tooltip.replaceChildren(name, text);
    }
    leave() {
      this.tooltip.hidden = true;
      this.marked = -1;
      this.show(this.kept);
    }
  }

  const figures = [...document.querySelectorAll("figure.roc")].map((root) => new Figure(root));
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") figures.forEach((figure) => figure.leave());
  });
  document.addEventListener("pointerdown", (event) => {
    for (const figure of figures) if (!figure.root.contains(event.target)) figure.tooltip.hidden = true;
  });

  for (const button of document.querySelectorAll(".copy")) {
    const code = button.parentElement.querySelector("code"), status = button.parentElement.querySelector(".copied");
    button.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(code.textContent);
        status.textContent = "Copied";
      } catch {
        // No right to the clipboard: select it, so that the usual keys copy it.
        getSelection().selectAllChildren(code);
        status.textContent = "Selected: press Ctrl+C";
      }
      setTimeout(() => { status.textContent = ""; }, 4000);
    });
  }
})();
