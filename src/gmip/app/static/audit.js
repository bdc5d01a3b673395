// Sends a file to gmip on this machine, lets people choose its columns, and shows the card that comes back.
const byId = (id) => document.getElementById(id);
const roles = [...document.querySelectorAll("[data-role]")];
let file = null;
let report = "";
let asked = 0;

async function audit() {
  if (!file) return;
  const mine = ++asked;
  const columns = {};
  for (const select of roles) if (select.value) columns[select.dataset.role] = select.value;
  const called = byId("member-value").value.trim();
  if (called && columns.member) {
    columns[`member:${called}`] = columns.member;
    delete columns.member;
  }
  const query = new URLSearchParams({
    name: file.name,
    columns: JSON.stringify(columns),
    target: `tpr=${byId("target-tpr").value.trim()}@${byId("target-fpr").value.trim()}`,
  });
  byId("problem").hidden = true;
  byId("status").textContent = `Auditing ${file.name} ...`;
  document.body.classList.add("stale");
  let found;
  try {
    const response = await fetch(`/audit?${query}`, { method: "POST", headers: { "Content-Type": "application/octet-stream" }, body: file });
    found = await response.json();
  } catch {
    found = { problem: "No answer: is gmip app still running in its terminal?" };
  }
  if (mine !== asked) return; // another question is on its way
  document.body.classList.remove("stale");
  byId("status").textContent = found.card ? file.name : "";
  if (found.names?.length) offer(found.names);
  byId("card").innerHTML = found.card ?? "";
  byId("after").hidden = !found.card;
  report = found.report ?? "";
  byId("problem").textContent = found.problem ?? "";
  byId("problem").hidden = !found.problem;
}

function offer(names) {
  byId("columns").hidden = false;
  for (const select of roles) {
    const chosen = select.value;
    select.replaceChildren(new Option("automatic", ""), ...names.map((name) => new Option(name, name)));
    select.value = names.includes(chosen) ? chosen : "";
  }
}

function take(given) {
  if (!given) return;
  file = given;
  for (const select of roles) select.value = "";
  audit();
}

byId("file").addEventListener("change", (event) => take(event.target.files[0]));
for (const name of ["dragover", "dragenter"]) {
  document.addEventListener(name, (event) => {
    event.preventDefault();
    byId("zone").classList.add("over");
  });
}
document.addEventListener("dragleave", () => byId("zone").classList.remove("over"));
document.addEventListener("drop", (event) => {
  event.preventDefault();
  byId("zone").classList.remove("over");
  take(event.dataTransfer.files[0]);
});
byId("columns").addEventListener("submit", (event) => event.preventDefault());
byId("columns").addEventListener("change", audit);
byId("download").addEventListener("click", () => {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([report], { type: "text/html" }));
  link.download = `${file.name.replace(/\.[^.]*$/, "")}-report.html`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
});
