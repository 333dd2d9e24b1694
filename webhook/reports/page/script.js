"use strict";
// Searches the findings. Without this script the page shows all of them.
const form = document.querySelector("#search");
const found = document.querySelector("#found");
const groups = [...document.querySelectorAll(".namespace")].map((element) => ({
  element,
  folds: [element, ...element.querySelectorAll(".rest")].map((fold) => ({ fold, open: fold.open })),
  entries: [...element.querySelectorAll(".entry")].map((entry) => ({
    element: entry,
    text: entry.textContent.toLowerCase(),
    marks: [...entry.querySelectorAll(".finding")].map((mark) => mark.dataset),
    verdict: entry.dataset.style,
  })),
}));

function show() {
  const words = form.elements.words.value.toLowerCase().split(/\s+/).filter(Boolean);
  const action = form.elements.action.value;
  const rule = form.elements.rule.value;
  const fits = (entry) =>
    words.every((word) => entry.text.includes(word)) &&
    (action === "allow" || !action || entry.marks.some((mark) => mark.style === action && (!rule || mark.rule === rule))) &&
    (action !== "allow" || entry.verdict === "allow") &&
    (!rule || entry.marks.some((mark) => mark.rule === rule));
  let count = 0;
  for (const group of groups) {
    let here = 0;
    for (const entry of group.entries) {
      const hidden = !fits(entry);
      if (entry.element.hidden !== hidden) entry.element.hidden = hidden;
      here += !hidden;
    }
    group.element.hidden = here === 0;
    const searched = Boolean(words.length || action || rule);
    for (const { fold, open } of group.folds) if (fold.open !== (searched || open)) fold.open = searched || open;
    count += here;
  }
  found.textContent = `${count.toLocaleString("en")} of ${form.dataset.all} objects shown`;
}

if (form) {
  let waiting = 0;
  form.hidden = false;
  form.addEventListener("input", () => {
    cancelAnimationFrame(waiting);
    waiting = requestAnimationFrame(show);
  });
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", () => setTimeout(show));
}

// A closed part of the page is printed, too.
let closed = [];
addEventListener("beforeprint", () => {
  closed = [...document.querySelectorAll("details:not([open])")];
  for (const part of closed) part.open = true;
});
addEventListener("afterprint", () => {
  for (const part of closed) part.open = false;
});
