// "What if": two sliders pick a cell of the table. All sentences come from the page.
for (const root of document.querySelectorAll(".what-if")) {
  const data = JSON.parse(document.getElementById(root.id.replace(/-strip$/, "-data")).textContent);
  const sliders = [...root.querySelectorAll("input")], rows = [...root.querySelectorAll("tbody tr")];
  const answer = root.querySelector(".what-if-answer"), place = { noise: data.own[0], batch: data.own[1] };
  const show = () => {
    for (const slider of sliders) {
      slider.value = place[slider.dataset.axis];
      slider.setAttribute("aria-valuetext", data[slider.dataset.axis][place[slider.dataset.axis]]);
    }
    root.querySelector(".at")?.classList.remove("at");
    rows[place.noise].querySelectorAll("td")[place.batch].classList.add("at");
    answer.textContent = data.sentences[place.noise][place.batch];
  };
  for (const slider of sliders) {
    slider.addEventListener("input", () => { place[slider.dataset.axis] = Number(slider.value); show(); });
  }
  rows.forEach((row, noise) => row.querySelectorAll("td").forEach((cell, batch) => {
    cell.addEventListener("click", () => { Object.assign(place, { noise, batch }); show(); });
  }));
  show();
}
