"use strict";
// Sorts and filters the table of candidates, and shows the page of a candidate or a turn when its link is followed.
const byId = (name) => document.getElementById(name);
const body = document.querySelector("#rows tbody");
const rows = [...body.rows];
const valueOf = (row, column) => {
  const cell = row.cells[column];
  return cell.dataset.value === undefined ? cell.textContent.trim().toLowerCase() : cell.dataset.value;
};

function compare(first, second) {
  const numbers = [Number(first), Number(second)];
  return numbers.some(Number.isNaN) ? first.localeCompare(second, undefined, {numeric: true}) : numbers[0] - numbers[1];
}

document.querySelectorAll("#rows thead th").forEach((head, column) => {
  head.querySelector("button").addEventListener("click", () => {
    const isUp = head.getAttribute("aria-sort") !== "ascending";
    document.querySelectorAll("#rows thead th").forEach((other) => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", isUp ? "ascending" : "descending");
    rows.sort((one, other) => {
      const [first, second] = [valueOf(one, column), valueOf(other, column)];
      if (!first || !second) return (first ? 0 : 1) - (second ? 0 : 1); // without a value last, either way
      return compare(first, second) * (isUp ? 1 : -1);
    });
    body.append(...rows);
  });
});

function filter() {
  const words = byId("words").value.toLowerCase().split(/\s+/).filter(Boolean);
  const wanted = {};
  for (const name of ["status", "problem", "column"]) if (byId(name)) wanted[name] = byId(name).value;
  let shown = 0;
  for (const row of rows) {
    const text = (row.textContent + " " + row.dataset.words).toLowerCase();
    const fits = words.every((word) => text.includes(word))
      && Object.entries(wanted).every(([name, value]) => !value || row.dataset[name] === value);
    row.hidden = !fits;
    shown += fits;
  }
  byId("shown").textContent = `${shown} of ${rows.length}`;
}

byId("filter").addEventListener("input", filter);
byId("filter").addEventListener("submit", (event) => event.preventDefault());
byId("filter").addEventListener("reset", () => setTimeout(filter));
document.querySelectorAll("a[data-problem]").forEach((link) => link.addEventListener("click", () => {
  byId("filter").reset();
  byId("problem").value = link.dataset.problem;
  if (byId("column")) byId("column").value = link.dataset.column;
  setTimeout(filter);
}));

let pages = null;
async function unpacked() {
  const bytes = Uint8Array.from(atob(byId("pages").textContent), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return JSON.parse(await new Response(stream).text());
}

async function showPage() {
  const [key, line] = location.hash.slice(1).split(".");
  const place = byId("page");
  if (!/^(c\d+|t\d+-\d+)$/.test(key)) return;
  pages = pages ?? unpacked();
  const found = (await pages)[key];
  if (found === undefined) return;
  if (place.dataset.key !== key) place.innerHTML = found; // the program escaped every text in it
  place.dataset.key = key;
  place.hidden = false;
  document.querySelectorAll("tr.chosen").forEach((row) => row.classList.remove("chosen"));
  byId(`row-${key}`).classList.add("chosen");
  const target = line ? byId(`${key}.${line}`) : place;
  (target ?? place).scrollIntoView();
  place.focus({preventScroll: true});
}

// The page of the chosen candidate shows again although the address does not change.
document.addEventListener("click", (event) => {
  const link = event.target.closest("a[href^='#c'], a[href^='#t']");
  if (link && link.getAttribute("href") === location.hash) showPage();
});
addEventListener("hashchange", showPage);
showPage();
