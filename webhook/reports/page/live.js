// Renews the parts of the page. Without this script the page shows what was read when it was opened.
const live = document.querySelector("#live");
const state = document.querySelector("#state");
const waiting = new Map();
const written = new Map();
let paused = false;

// What a folded part, or a table that can be scrolled, is called within its section: it stays when other text changes.
function called(element) {
  if (element.matches("summary")) return `summary ${called(element.parentElement)}`;
  const title = element.querySelector(":scope > summary h3") ?? element.querySelector(":scope > summary");
  const own = element.dataset.fold ?? element.getAttribute("aria-label") ?? (element.id || title?.textContent);
  const outer = element.parentElement.closest("details, figure[id]");
  return outer ? `${called(outer)}\n${own}` : own;
}

function selected(inside) {
  const selection = getSelection();
  return selection && !selection.isCollapsed && inside.contains(selection.anchorNode);
}

function put(section, part) {
  const inside = section.querySelector(".part");
  section.querySelector(".at").textContent = part.at;
  section.dataset.version = part.version;
  if (written.get(section) === part.html) return;
  written.set(section, part.html);
  const open = new Map([...inside.querySelectorAll("details")].map((each) => [called(each), each.open]));
  const aside = new Map([...inside.querySelectorAll(".scroll")].map((each) => [called(each), each.scrollLeft]));
  const focused = inside.contains(document.activeElement) ? called(document.activeElement) : undefined;
  inside.innerHTML = part.html;
  for (const each of inside.querySelectorAll("details")) if (open.has(called(each))) each.open = open.get(called(each));
  for (const each of inside.querySelectorAll(".scroll")) each.scrollLeft = aside.get(called(each)) ?? 0;
  if (focused !== undefined) {
    const same = [...inside.querySelectorAll("summary, .scroll")].find((each) => called(each) === focused);
    same?.focus({ preventScroll: true });
  }
}

// A part with a selected text is renewed afterwards, so that the text can be copied.
function renew() {
  if (paused) return;
  for (const [name, part] of waiting) {
    const section = document.getElementById(name);
    if (section && section.dataset.version !== part.version) {
      if (selected(section.querySelector(".part"))) continue;
      put(section, part);
    }
    waiting.delete(name);
  }
}

function say(words) {
  if (state.textContent !== words) state.textContent = words;
}

if (live) {
  live.hidden = false;
  const button = live.querySelector("button");
  button.addEventListener("click", () => {
    paused = !paused;
    button.setAttribute("aria-pressed", String(paused));
    say(paused ? "Paused" : "Live");
    renew();
  });
  live.addEventListener("submit", (event) => event.preventDefault());
  const connect = () => {
    const source = new EventSource(live.dataset.live);
    source.addEventListener("error", () => {
      say("Not connected: slicewarden ui has ended, or too many pages are open");
      if (source.readyState === EventSource.CLOSED) setTimeout(connect, 3000);
    });
    source.addEventListener("part", (event) => {
      const part = JSON.parse(event.data);
      if (part.proof !== live.dataset.proof) return; // another program has the port now
      say(paused ? "Paused" : "Live");
      waiting.set(part.part, part);
      renew();
    });
  };
  connect();
  document.addEventListener("selectionchange", renew);
}
