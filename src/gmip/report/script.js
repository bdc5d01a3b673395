"use strict";
// Reads out the curves at a rate, hides and shows them, zooms, and copies commands. All drawings and all numbers that are
// read out come from the page; zooming moves what is drawn and writes other ticks.
(() => {
  document.documentElement.classList.add("scripted");
  const CLOSEST = 16; // how much larger than the whole
  let zoom = null; // {x: [from, to], y: [from, to]} in rates, the same for all figures of the page; null: all is shown

  const percent = (rate, digits) => `${Number((100 * rate).toPrecision(digits))}%`;
  // At least three round numbers between two rates.
  function ticks(from, to, log) {
    const inside = (all) => all.filter((one) => one >= from * (1 - 1e-9) && one <= to * (1 + 1e-9));
    const steps = (factors) => [-6, -5, -4, -3, -2, -1, 0].flatMap((k) => factors.map((one) => Number(`${one}e${k}`)));
    for (const factors of log ? [[1], [1, 2, 5]] : []) {
      const found = inside(steps(factors));
      if (found.length > 2) return found;
    }
    const least = (to - from) / 8, size = 10 ** Math.floor(Math.log10(least));
    const step = size * [1, 2, 5, 10].find((one) => one * size >= least * (1 - 1e-9));
    const first = Math.ceil(from / step - 1e-9);
    return Array.from({ length: 10 }, (_, i) => Number(((first + i) * step).toPrecision(9))).filter((one) => one <= to * (1 + 1e-9));
  }

  class Figure {
    constructor(root) {
      this.root = root;
      this.data = JSON.parse(document.getElementById(`${root.id}-data`).textContent);
      this.charts = [...root.querySelectorAll(".chart")];
      this.tooltip = root.querySelector(".tooltip");
      this.slider = root.querySelector("input");
      this.hidden = new Set();
      this.kept = Number(this.slider.value);
      this.slider.addEventListener("input", () => {
        this.keep(Number(this.slider.value));
        const at = this.unit(this.visible(), this.data.stops[this.kept], "x");
        if (at < 0 || at > 1) this.zoom(1); // what is shown follows
      });
      for (const button of root.querySelectorAll(".legend button")) {
        button.addEventListener("click", () => this.toggle(Number(button.dataset.series), button));
      }
      const axes = [...root.querySelectorAll(".switch [data-axes]")];
      for (const button of axes) {
        button.addEventListener("click", () => {
          root.dataset.axes = button.dataset.axes;
          for (const one of axes) one.setAttribute("aria-pressed", String(one === button));
        });
      }
      for (const button of root.querySelectorAll("[data-zoom]")) {
        button.addEventListener("click", () => this.zoom(Number(button.dataset.zoom)));
      }
      root.addEventListener("keydown", (event) => {
        const factor = { "+": 0.5, "-": 2, "0": Infinity }[event.key];
        if (factor && !event.ctrlKey && !event.metaKey && !event.altKey) this.zoom(factor);
      });
      this.drawn = new Map(this.charts.map((chart) => [chart, this.original(chart)]));
      for (const chart of this.charts) {
        const touch = (event) => event.pointerType === "touch";
        chart.addEventListener("pointerdown", (event) => {
          this.point(chart, event, true);
          if (!touch(event) && event.button === 0) this.drag(chart, event);
        });
        chart.addEventListener("pointermove", (event) => { if (!this.dragged) this.point(chart, event, touch(event)); });
        chart.addEventListener("pointerleave", (event) => { if (!touch(event)) this.leave(); });
        chart.addEventListener("dblclick", () => this.zoom(Infinity));
      }
      this.keep(this.kept);
    }
    // Where a rate lies on the whole axis, from 0 to 1, and back.
    whole(chart, rate) {
      const { lowest } = this.data;
      return chart.dataset.scale === "log" ? 1 - Math.log10(Math.max(rate, lowest / 10)) / Math.log10(lowest) : rate;
    }
    rate(chart, unit) {
      return chart.dataset.scale === "log" ? this.data.lowest ** (1 - unit) : unit;
    }
    // What is shown of an axis ("x" or "y"), in units of the whole.
    shown(chart, axis) {
      return zoom ? zoom[axis].map((rate) => Math.max(0, Math.min(1, this.whole(chart, rate)))) : [0, 1];
    }
    // Where a rate lies on what is shown of an axis; from 0 to 1 inside.
    unit(chart, rate, axis) {
      const [from, to] = this.shown(chart, axis);
      return (this.whole(chart, rate) - from) / (to - from);
    }
    // What zooming moves, as Python drew it.
    original(chart) {
      const all = (selector) => [...chart.querySelectorAll(selector)];
      return {
        paths: all(".curve, .band").map((one) => [one, one.getAttribute("d")]),
        markers: all(".marker").map((one) => [one, ...one.getAttribute("transform").match(/[\d.]+/g).map(Number)]),
        ring: all(".ring").map((one) => [one, Number(one.getAttribute("cx")), Number(one.getAttribute("cy"))]),
        grey: all(".unmeasured").map((one) => [one, Number(one.getAttribute("width"))]),
        ticks: all(".ticks > *"),
      };
    }
    redraw() {
      for (const chart of this.charts) this.redrawChart(chart);
      for (const button of this.root.querySelectorAll("[data-zoom]:not([data-zoom='0.5'])")) button.disabled = !zoom;
      const told = (axis) => zoom[axis].map((rate) => percent(rate, 2)).join(" to ");
      this.root.querySelector(".zoomed").textContent = zoom ? `Shown: ${told("x")} false alarms, ${told("y")} of the members.` : "";
      this.show(this.kept);
    }
    redrawChart(chart) {
      const { box: [left, top, width, height] } = this.data, { paths, markers, ring, grey, ticks: old } = this.drawn.get(chart);
      const [[x0, x1], [y0, y1]] = ["x", "y"].map((axis) => this.shown(chart, axis));
      const short = (place) => Number(place.toFixed(2));
      const x = (place) => short(left + width * ((place - left) / width - x0) / (x1 - x0));
      const y = (place) => short(top + height * (1 - ((top + height - place) / height - y0) / (y1 - y0)));
      const moved = (_, command, rest) => command + rest.trim().split(/[ ,]+/)
        .map((one, i) => (command === "V" || (command !== "H" && i % 2) ? y : x)(Number(one))).join(" ");
      for (const [one, d] of paths) one.setAttribute("d", zoom ? d.replace(/([MLHV])([^MLHVZ]*)/g, moved) : d);
      for (const [one, a, b] of markers) one.setAttribute("transform", `translate(${x(a)} ${y(b)})`);
      const within = (a, b) => a >= left - 1 && a <= left + width + 1 && b >= top - 1 && b <= top + height + 1;
      for (const [one, a, b] of ring) {
        one.setAttribute("cx", x(a));
        one.setAttribute("cy", y(b));
        one.setAttribute("visibility", within(x(a), y(b)) ? "visible" : "hidden");
      }
      for (const [one, wide] of grey) one.setAttribute("width", Math.max(0, Math.min(width, x(left + wide) - left)));
      chart.querySelector(".ticks").replaceChildren(...(zoom ? this.ticks(chart) : old));
    }
    ticks(chart) {
      const { box: [left, top, width, height] } = this.data, log = chart.dataset.scale === "log";
      const make = (name, attributes, text = "") => {
        const made = document.createElementNS("http://www.w3.org/2000/svg", name);
        for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
        made.textContent = text;
        return made;
      };
      return ["x", "y"].flatMap((axis) => {
        const [from, to] = this.shown(chart, axis).map((unit) => this.rate(chart, unit));
        return ticks(from, to, log).flatMap((rate) => {
          const at = this.unit(chart, rate, axis), x = left + width * at, y = top + height * (1 - at), text = percent(rate, 6);
          return axis === "x"
            ? [make("path", { d: `M${x} ${top}V${top + height}`, class: "grid" }), make("text", { x, y: top + height + 21, "text-anchor": "middle" }, text)]
            : [make("path", { d: `M${left} ${y}H${left + width}`, class: "grid" }), make("text", { x: left - 7, y, dy: "0.35em", "text-anchor": "end" }, text)];
        });
      });
    }
    visible() {
      return this.charts.find((chart) => chart.dataset.scale === (this.root.dataset.axes === "log" ? "log" : "linear"));
    }
    // Closer (a factor below 1) or farther, around the kept rate and the first curve there.
    zoom(factor) {
      const chart = this.visible(), { stops, series } = this.data;
      const wide = ["x", "y"].map((axis) => this.shown(chart, axis)).map(([from, to]) => Math.max((to - from) * factor, 1 / CLOSEST));
      if (Math.max(...wide) >= 1) return this.setZoom(null);
      const shown = series.find((one, i) => !this.hidden.has(i) && one.tpr[this.kept] !== null);
      const middle = [stops[this.kept], shown ? shown.tpr[this.kept] : stops[this.kept]].map((rate) => this.whole(chart, rate));
      const [x, y] = wide.map((size, i) => {
        const from = Math.max(0, Math.min(1 - size, middle[i] - size / 2));
        return [from, from + size].map((unit) => this.rate(chart, unit));
      });
      return this.setZoom({ x, y });
    }
    setZoom(next) {
      zoom = next;
      figures.forEach((figure) => figure.redraw());
    }
    // A rectangle by the mouse; Escape gives it up.
    drag(chart, begin) {
      const { box: [left, top, width, height] } = this.data;
      const place = (event) => {
        const { x, y } = new DOMPoint(event.clientX, event.clientY).matrixTransform(chart.getScreenCTM().inverse());
        const share = (value) => Math.max(0, Math.min(1, value));
        return [share((x - left) / width), share(1 - (y - top) / height)];
      };
      const start = place(begin), frame = document.createElementNS("http://www.w3.org/2000/svg", "rect");
      const over = new AbortController();
      frame.setAttribute("class", "selection");
      const listen = (name, what) => addEventListener(name, what, { signal: over.signal });
      const end = () => {
        over.abort();
        frame.remove();
        this.dragged = null;
      };
      listen("pointermove", (event) => {
        const now = place(event), size = now.map((one, i) => Math.abs(one - start[i]));
        if (!this.dragged && Math.max(...size) < 0.03) return;
        if (!this.dragged) {
          this.dragged = true;
          this.leave();
          chart.append(frame);
        }
        const [x, y] = [Math.min(start[0], now[0]), Math.max(start[1], now[1])];
        const drawn = { x: left + width * x, y: top + height * (1 - y), width: width * size[0], height: height * size[1] };
        for (const [key, value] of Object.entries(drawn)) frame.setAttribute(key, value);
      });
      listen("pointerup", (event) => {
        const dragged = this.dragged, now = place(event);
        end();
        if (!dragged) return;
        const [x, y] = ["x", "y"].map((axis, i) => {
          const [from, to] = this.shown(chart, axis), size = Math.max(Math.abs(now[i] - start[i]) * (to - from), 1 / CLOSEST);
          const middle = from + (to - from) * (now[i] + start[i]) / 2, low = Math.max(0, Math.min(1 - size, middle - size / 2));
          return [low, low + size].map((unit) => this.rate(chart, unit));
        });
        this.setZoom({ x, y });
      });
      listen("keydown", (event) => { if (event.key === "Escape") end(); });
      listen("pointercancel", end);
    }
    // Shows what all curves say at a stop; `marked` is the curve that is pointed at.
    show(stop, marked = -1) {
      const { box: [left, top, width, height], series, stops, rates, legend } = this.data;
      this.root.querySelector(".legend-title").textContent = legend.replace("{rate}", rates[stop]);
      this.root.querySelectorAll(".legend .value").forEach((cell, i) => { cell.textContent = this.value(series[i], stop); });
      for (const chart of this.charts) {
        const x = left + this.unit(chart, stops[stop], "x") * width;
        const pointer = chart.querySelector(".pointer");
        pointer.setAttribute("visibility", "visible");
        pointer.querySelector("path").setAttribute("transform", `translate(${x})`);
        pointer.querySelectorAll("circle").forEach((dot, i) => {
          const tpr = series[i].tpr[stop], shown = tpr !== null && !this.hidden.has(i);
          dot.setAttribute("visibility", shown ? "visible" : "hidden");
          dot.setAttribute("r", i === marked ? 6 : 3.5);
          dot.setAttribute("cx", x);
          dot.setAttribute("cy", top + height * (1 - this.unit(chart, tpr ?? 0, "y")));
        });
      }
    }
    value({ prefix, values }, stop) {
      return values[stop] === null ? "not measured" : prefix + values[stop];
    }
    // Until another rate is chosen.
    keep(stop) {
      const { rates, series: [first] } = this.data;
      this.kept = stop;
      this.slider.value = stop;
      this.slider.setAttribute("aria-valuetext", `${rates[stop]}: ${first.name} ${this.value(first, stop)}`);
      this.show(stop);
    }
    toggle(index, button) {
      const shown = this.hidden.delete(index);
      if (!shown) this.hidden.add(index);
      button.setAttribute("aria-pressed", String(shown));
      for (const group of this.root.querySelectorAll(`.series[data-series="${index}"]`)) group.classList.toggle("off", !shown);
      this.show(this.kept);
    }
    // The stop below the pointer and the visible curve that is nearest to it.
    point(chart, event, keep) {
      const { box: [left, top, width, height], series, stops, rates } = this.data;
      const place = new DOMPoint(event.clientX, event.clientY).matrixTransform(chart.getScreenCTM().inverse());
      const nearest = (distances) => distances.indexOf(Math.min(...distances));
      const stop = nearest(stops.map((rate) => Math.abs(left + this.unit(chart, rate, "x") * width - place.x)));
      const distances = series.map(({ tpr }, i) => tpr[stop] === null || this.hidden.has(i) ? Infinity
        : Math.abs(top + height * (1 - this.unit(chart, tpr[stop], "y")) - place.y));
      const marked = Math.min(...distances) === Infinity ? -1 : nearest(distances);
      if (keep) this.keep(stop);
      this.show(stop, marked);
      const name = document.createElement("strong"), text = document.createElement("span"), curve = series[marked];
      name.textContent = curve ? curve.name : "";
      text.textContent = curve
        ? curve.sentence.replace("{rate}", rates[stop]).replace("{value}", this.value(curve, stop))
          .replace("{interval}", curve.intervals?.[stop] ? curve.interval.replace("{ends}", curve.intervals[stop]) : "")
        : "No curve is shown.";
      const all = document.createElement("ul");
      series.forEach((one, i) => {
        if (this.hidden.has(i) || i === marked) return;
        const item = document.createElement("li");
        item.textContent = `${one.name}: ${this.value(one, stop)}`;
        all.append(item);
      });
      this.tooltip.replaceChildren(name, text, all);
      this.place();
    }
    // Beside the curves and not on them: at the right of the chart where there is room, else below it.
    place() {
      const frame = this.root.getBoundingClientRect(), chart = this.visible().getBoundingClientRect();
      this.tooltip.hidden = false;
      const { offsetWidth: width, offsetHeight: height } = this.tooltip, beside = frame.right - chart.right > width + 12;
      this.tooltip.style.left = `${beside ? chart.right - frame.left + 8 : Math.max(0, (frame.width - width) / 2)}px`;
      this.tooltip.style.top = `${chart.bottom - frame.top - (beside ? height : 0)}px`;
    }
    leave() {
      this.tooltip.hidden = true;
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

  // What a link leads to is unfolded first; so is all about each run for the printer.
  const unfold = () => {
    const place = location.hash && document.getElementById(location.hash.slice(1));
    if (!place) return;
    for (let one = place.closest("details"); one; one = one.parentElement.closest("details")) one.open = true;
    place.scrollIntoView();
  };
  addEventListener("hashchange", unfold);
  unfold();
  let folded = [];
  addEventListener("beforeprint", () => {
    folded = [...document.querySelectorAll("details.whole:not([open])")];
    for (const one of folded) one.open = true;
  });
  addEventListener("afterprint", () => { for (const one of folded) one.open = false; });

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
