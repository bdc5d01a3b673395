"use strict";
// Reads out the curves at a rate, hides and shows them, and copies commands. All drawings and all numbers, in words too,
// come from the page: nothing is drawn or rounded here.
(() => {
  document.documentElement.classList.add("scripted");

  class Figure {
    constructor(root) {
      this.root = root;
      this.data = JSON.parse(document.getElementById(`${root.id}-data`).textContent);
      this.charts = [...root.querySelectorAll(".chart")];
      this.tooltip = root.querySelector(".tooltip");
      this.slider = root.querySelector("input");
      this.hidden = new Set();
      this.kept = Number(this.slider.value);
      this.slider.addEventListener("input", () => this.keep(Number(this.slider.value)));
      for (const button of root.querySelectorAll(".legend button")) {
        button.addEventListener("click", () => this.toggle(Number(button.dataset.series), button));
      }
      const axes = [...root.querySelectorAll(".switch button")];
      for (const button of axes) {
        button.addEventListener("click", () => {
          root.dataset.axes = button.dataset.axes;
          for (const one of axes) one.setAttribute("aria-pressed", String(one === button));
        });
      }
      for (const chart of this.charts) {
        const touch = (event) => event.pointerType === "touch";
        chart.addEventListener("pointerdown", (event) => this.point(chart, event, true));
        chart.addEventListener("pointermove", (event) => this.point(chart, event, touch(event)));
        chart.addEventListener("pointerleave", (event) => { if (!touch(event)) this.leave(); });
      }
      this.keep(this.kept);
    }
    // Where a rate lies on an axis, from 0 to 1.
    unit(chart, rate) {
      const { lowest } = this.data;
      return chart.dataset.scale === "log" ? 1 - Math.log10(Math.max(rate, lowest / 10)) / Math.log10(lowest) : rate;
    }
    // Shows what all curves say at a stop; `marked` is the curve that is pointed at.
    show(stop, marked = -1) {
      const { box: [left, top, width, height], series, stops, rates, legend } = this.data;
      this.root.querySelector(".legend-title").textContent = legend.replace("{rate}", rates[stop]);
      this.root.querySelectorAll(".legend .value").forEach((cell, i) => { cell.textContent = this.value(series[i], stop); });
      for (const chart of this.charts) {
        const x = left + this.unit(chart, stops[stop]) * width;
        const pointer = chart.querySelector(".pointer");
        pointer.setAttribute("visibility", "visible");
        pointer.querySelector("path").setAttribute("transform", `translate(${x})`);
        pointer.querySelectorAll("circle").forEach((dot, i) => {
          const tpr = series[i].tpr[stop], shown = tpr !== null && !this.hidden.has(i);
          dot.setAttribute("visibility", shown ? "visible" : "hidden");
          dot.setAttribute("r", i === marked ? 6 : 3.5);
          dot.setAttribute("cx", x);
          dot.setAttribute("cy", top + height * (1 - this.unit(chart, tpr ?? 0)));
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
      const stop = nearest(stops.map((rate) => Math.abs(left + this.unit(chart, rate) * width - place.x)));
      const distances = series.map(({ tpr }, i) => tpr[stop] === null || this.hidden.has(i) ? Infinity
        : Math.abs(top + height * (1 - this.unit(chart, tpr[stop])) - place.y));
      const marked = Math.min(...distances) === Infinity ? -1 : nearest(distances);
      if (keep) this.keep(stop);
      this.show(stop, marked);
      const name = document.createElement("strong"), text = document.createElement("span"), curve = series[marked];
      name.textContent = curve ? curve.name : "";
      text.textContent = curve
        ? curve.sentence.replace("{rate}", rates[stop]).replace("{value}", this.value(curve, stop))
          .replace("{interval}", curve.intervals?.[stop] ?? "")
        : "No curve is shown.";
      const all = document.createElement("ul");
      series.forEach((one, i) => {
        if (this.hidden.has(i) || i === marked) return;
        const item = document.createElement("li");
        item.textContent = `${one.name}: ${this.value(one, stop)}`;
        all.append(item);
      });
      this.tooltip.replaceChildren(name, text, all);
      this.place(event);
    }
    // Beside the pointer, inside the figure; above a finger.
    place(event) {
      const frame = this.root.getBoundingClientRect();
      this.tooltip.hidden = false;
      const { offsetWidth: width, offsetHeight: height } = this.tooltip;
      const x = event.clientX - frame.left, y = event.clientY - frame.top;
      const side = x + 18 + width < frame.width ? x + 18 : x - 18 - width;
      const clamp = (value, most) => Math.max(0, Math.min(value, most));
      this.tooltip.style.left = `${clamp(side, frame.width - width)}px`;
      this.tooltip.style.top = `${Math.max(0, event.pointerType === "touch" ? y - height - 24 : y - height / 2)}px`;
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

  for (const button of document.querySelectorAll(".print")) button.addEventListener("click", () => print());

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
