// Audit and triage: pages of pictures, a mark each, a page confirmed at a time. A mark is "x" (wrong), "u" (none of my classes)
// or the number of a class. What is on a confirmed page is seen; what is seen and not marked is right.
const story = JSON.parse(document.getElementById("data").textContent);
const byId = id => document.getElementById(id), count = new Intl.NumberFormat("en");
const shelf = `odst-review:${story.run_hash}:${story.draws}`;
let mode, at = { page: 0, tile: 0 }, anchor = null, done = [], columns = 1;
let kept = { marks: {}, seen: {}, who: "", when: new Date().toISOString().slice(0, 10) };

// what is kept ------------------------------------------------------------------------------------------------------------

function restore() {
  try { Object.assign(kept, JSON.parse(localStorage.getItem(shelf) || "{}")); } catch { say("This browser keeps nothing: export before you close the page."); }
  if (story.saved) fromRows(story.saved);
  for (const one of story.modes) { kept.marks[one.name] ||= {}; kept.seen[one.name] ||= {}; }
}

function fromRows(rows) {
  kept.marks = {}; kept.seen = {};
  for (const one of story.modes) {
    const own = new Map(rows.filter(row => row.part === one.name).map(row => [row.pool_id, row])), marks = kept.marks[one.name] = {}, seen = kept.seen[one.name] = {};
    one.pages.forEach((page, p) => {
      if (!page.tiles.every(tile => own.has(tile.id))) return;
      seen[p] = true;
      for (const tile of page.tiles) {
        const row = own.get(tile.id), mark = { wrong: "x", none: "u", relabelled: story.classes.indexOf(row.label) }[row.verdict];
        if (mark !== undefined) marks[tile.id] = mark;
        kept.who = row.who; kept.when = row.when;
      }
    });
  }
}

function save() {
  try { localStorage.setItem(shelf, JSON.stringify(kept)); say("Kept in this browser. Export to hand your marks on."); } catch { say("This browser keeps nothing: export before you close the page."); }
  if (story.serve) send();
}

let sending = null, again = false;
async function send() {
  if (sending) { again = true; return; }
  sending = fetch("marks", { method: "POST", body: asJson(), headers: { "Content-Type": "application/json" } });
  try { const answer = await sending; say(answer.ok ? await answer.text() : "Not written: " + await answer.text()); }
  catch { say("Not written: odst review --serve has ended. Export, or start it again."); }
  sending = null;
  if (again) { again = false; send(); }
}

function say(text) { byId("kept").textContent = text; }

// marks -------------------------------------------------------------------------------------------------------------------

const marks = () => kept.marks[mode.name], seen = () => kept.seen[mode.name];
const tileAt = place => mode.pages[place.page].tiles[place.tile];

function put(changes, confirm) {
  const before = { mode: mode.name, at: { ...at }, marks: [], seen: [] };
  for (const [id, mark] of changes) {
    before.marks.push([id, marks()[id]]);
    if (mark === undefined) delete marks()[id]; else marks()[id] = mark;
  }
  if (confirm !== undefined) { before.seen.push([confirm, seen()[confirm]]); seen()[confirm] = true; }
  done.push(before);
  after([...changes.map(([id]) => id)]);
}

function undo() {
  const last = done.pop();
  if (!last) return;
  if (mode.name !== last.mode) choose(last.mode);
  for (const [id, mark] of last.marks.reverse()) if (mark === undefined) delete marks()[id]; else marks()[id] = mark;
  for (const [p, was] of last.seen) if (was) seen()[p] = true; else delete seen()[p];
  after(last.marks.map(([id]) => id));
  move(last.at);
}

function after(ids) {
  for (const id of ids) for (const button of document.querySelectorAll(`.tile[data-id="${id}"]`)) paint(button, id);
  mode.pages.forEach((page, p) => page.box && page.box.classList.toggle("seen", Boolean(seen()[p])));
  tell();
  save();
}

function mark(value) {
  const tile = tileAt(at);
  put([[tile.id, marks()[tile.id] === value ? undefined : value]]);
}

function range(to) {
  const order = [], flat = place => mode.pages.slice(0, place.page).reduce((sum, page) => sum + page.tiles.length, place.tile);
  const [low, high] = [flat(anchor || to), flat(to)].sort((a, b) => a - b), value = (anchor && marks()[tileAt(anchor).id]) ?? "x";
  let place = 0;
  for (const page of mode.pages) for (const tile of page.tiles) { if (place >= low && place <= high) order.push([tile.id, value]); place++; }
  put(order);
}

function confirmPage() {
  const here = at.page;
  put([], here);
  const next = mode.pages.findIndex((_, p) => p > here && !seen()[p]), first = mode.pages.findIndex((_, p) => !seen()[p]);
  const to = next >= 0 ? next : first;
  if (to >= 0) move({ page: to, tile: 0 }, true);
}

// pages -------------------------------------------------------------------------------------------------------------------

const near = new IntersectionObserver(entries => {
  for (const entry of entries) {
    const page = mode.pages[Number(entry.target.dataset.page)];
    if (!page || page.box !== entry.target) continue;
    if (entry.isIntersecting) fill(page); else if (!page.box.contains(document.activeElement)) empty(page);
  }
}, { rootMargin: "900px 0px" });

function choose(name) {
  mode = story.modes.find(one => one.name === name);
  document.querySelector(`input[name="mode"][value="${name}"]`).checked = true;
  for (const about of document.querySelectorAll("p[data-mode]")) about.hidden = about.dataset.mode !== name;
  near.disconnect();
  const boxes = mode.pages.map((page, p) => {
    const box = page.box = element("section", "sheet"), title = element("h2"), grid = element("div", "grid");
    page.full = false;
    box.dataset.page = p;
    title.append(element("span", "name", page.title), element("span", "faint", `page ${p + 1} of ${mode.pages.length}`));
    grid.setAttribute("role", "group");
    grid.setAttribute("aria-label", page.title);
    box.append(title, grid);
    box.classList.toggle("seen", Boolean(seen()[p]));
    return box;
  });
  byId("pages").replaceChildren(...boxes);
  measure();
  boxes.forEach(box => near.observe(box));
  const first = mode.pages.findIndex((_, p) => !seen()[p]);
  at = { page: Math.max(0, first), tile: 0 };
  anchor = null;
  if (mode.pages.length) fill(mode.pages[at.page]);
  highlight();
  tell();
}

// The height of a page's grid is known before its pictures are there, so nothing jumps while scrolling.
function measure() {
  const grid = document.querySelector(".grid");
  if (!grid) return;
  const style = getComputedStyle(grid), side = parseFloat(style.getPropertyValue("--w")), gap = parseFloat(style.columnGap);
  columns = Math.max(1, Math.floor((grid.clientWidth + gap) / (side + gap)));
  const high = side * story.tile[1] / story.tile[0];
  for (const page of mode.pages) {
    const lines = Math.ceil(page.tiles.length / columns);
    page.box.lastElementChild.style.height = `${lines * (high + gap) - gap}px`;
  }
}

function fill(page) {
  if (page.full) return;
  page.full = true;
  const made = document.createDocumentFragment(), p = mode.pages.indexOf(page);
  page.tiles.forEach((tile, i) => {
    const button = element("button");
    button.type = "button";
    place(button, page, i, story);
    button.dataset.id = tile.id;
    button.dataset.at = i;
    button.tabIndex = p === at.page && i === at.tile ? 0 : -1;
    paint(button, tile.id, i, tile);
    made.append(button);
  });
  page.box.lastElementChild.append(made);
}

function empty(page) { if (page.full) { page.full = false; page.box.lastElementChild.replaceChildren(); } }

function paint(button, id, i, tile) {
  const value = marks()[id], word = value === "x" ? "✗" : value === "u" ? "∅" : value === undefined ? null : story.classes[value];
  button.classList.toggle("wrong", value === "x");
  button.classList.toggle("none", value === "u");
  button.classList.toggle("label", typeof value === "number");
  if (word === null) delete button.dataset.mark; else button.dataset.mark = word;
  if (tile && tile.note) button.title = tile.note;
  const spoken = value === "x" ? story.words.wrong : value === "u" ? "none of my classes" : word === null ? "not marked" : "relabelled " + word;
  button.setAttribute("aria-label", `picture ${Number(button.dataset.at) + 1}: ${spoken}`);
  button.setAttribute("aria-pressed", String(value !== undefined));
}

function highlight() { mode.pages.forEach((page, p) => page.box.classList.toggle("current", p === at.page)); }

function move(to, top) {
  const page = mode.pages[to.page];
  if (!page) return;
  at = { page: to.page, tile: Math.max(0, Math.min(page.tiles.length - 1, to.tile)) };
  if (top) page.box.scrollIntoView({ block: "start", behavior: "auto" });
  fill(page);
  for (const other of document.querySelectorAll('.tile[tabindex="0"]')) other.tabIndex = -1;
  const button = page.box.lastElementChild.children[at.tile];
  button.tabIndex = 0;
  button.focus({ preventScroll: Boolean(top) });
  if (!top) {
    const box = button.getBoundingClientRect(), bar = document.querySelector(".bar").getBoundingClientRect().top;
    if (box.bottom > bar - 8) scrollBy(0, box.bottom - bar + 24);
  }
  highlight();
  tell();
}

function step(by) {
  const page = mode.pages[at.page], to = at.tile + by;
  if (to < 0) { if (at.page) move({ page: at.page - 1, tile: mode.pages[at.page - 1].tiles.length + (by === -1 ? -1 : to) }); }
  else if (to >= page.tiles.length) { if (mode.pages[at.page + 1]) move({ page: at.page + 1, tile: by === 1 ? 0 : to - page.tiles.length }); }
  else move({ page: at.page, tile: to });
}

// what is said ------------------------------------------------------------------------------------------------------------

function tally(group) {
  const found = { seen: 0, wrong: 0, inside: (group.sets || []).map(() => 0) };
  mode.pages.forEach((page, p) => {
    if (page.group !== group.name || !seen()[p]) return;
    for (const tile of page.tiles) {
      found.seen++;
      const value = marks()[tile.id];
      if (value === undefined || (story.none_is_right && value === "u")) continue;
      found.wrong++;
      (group.sets || []).forEach((set, s) => { if (tile.rank < set.size) found.inside[s]++; });
    }
  });
  return found;
}

const percent = share => (100 * share).toFixed(1) + " %";

function verdict(group, found) {
  if (found.seen < group.draws) return "";
  if (group.says) return group.says[found.wrong];
  let best = null;
  for (const [s, set] of group.sets.entries()) { if (found.inside[s] > set.allowed) break; best = { ...set, wrong: found.inside[s] }; }
  const alone = group.bounds[found.wrong] === undefined ? "" : ` Taken alone, at least ${percent(group.bounds[found.wrong])} of all ${count.format(group.selected)} are right.`;
  const delta = ` (δ ${story.delta} over ${story.split} ${story.split === 1 ? "class" : "classes"}: ${Number(story.share.toPrecision(3))})`;
  if (!best) return `not certified at ${story.target_text}${delta}.${alone}`;
  const what = best.size === group.selected ? `all ${count.format(best.size)} selected images` : `the ${count.format(best.size)} most confident of ${count.format(group.selected)} selected images`;
  return `${what} certified at ${story.target_text} precision${delta}.${alone}`;
}

function certifiedSize(group, found) {
  if (!group.sets || found.seen < group.draws) return 0;
  let size = 0;
  for (const [s, set] of group.sets.entries()) { if (found.inside[s] > set.allowed) break; size = set.size; }
  return size;
}

function tell() {
  const rows = mode.groups.map(group => {
    const found = tally(group), row = element("tr"), name = element("th", "name", group.name);
    name.scope = "row";
    row.append(name, element("td", "", `${found.seen} of ${group.draws}`), element("td", "", String(found.wrong)), element("td", "left", verdict(group, found)));
    Object.assign(row.dataset, { name: group.name, seen: found.seen, wrong: found.wrong, certified: certifiedSize(group, found) });
    return row;
  });
  byId("classes").replaceChildren(...rows);
  const page = mode.pages[at.page], group = page && mode.groups.find(one => one.name === page.group);
  if (!group) { byId("live").textContent = "Nothing to look at here."; return; }
  const found = tally(group), all = Object.keys(seen()).length;
  const says = verdict(group, found);
  byId("live").textContent = `${group.name}: ${found.seen} of ${group.draws} seen, ${found.wrong} ${story.words.wrong_short}${says ? "; " + says : "."} Page ${at.page + 1} of ${mode.pages.length}, ${all} confirmed.`;
}

// files -------------------------------------------------------------------------------------------------------------------

function rows() {
  const found = [];
  for (const one of story.modes) one.pages.forEach((page, p) => {
    if (!kept.seen[one.name][p]) return;
    for (const tile of page.tiles) {
      const value = kept.marks[one.name][tile.id];
      found.push({
        pool_id: tile.id, content_hash: tile.hash, run_hash: story.run_hash, round: story.round, mode: one.mode,
        draws: one.counts ? story.draws : null, class: page.class, verdict: value === "x" ? "wrong" : value === "u" ? "none" : value === undefined ? "right" : "relabelled",
        label: typeof value === "number" ? story.classes[value] : null, who: kept.who, when: kept.when,
      });
    }
  });
  return found;
}

const asJson = () => JSON.stringify({ format: story.format, marks: rows() }, null, 1) + "\n";

function asCsv() {
  // as data/cells.py has it: a spreadsheet must not take a name for a formula
  const safe = value => typeof value === "string" && /^'*[=+\-@\t\r]/.test(value) && !/^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$/.test(value) ? `'${value}` : String(value);
  const cell = value => value === null ? "" : /[",\r\n]/.test(safe(value)) ? `"${safe(value).replaceAll('"', '""')}"` : safe(value);
  return [story.columns_of_marks.join(","), ...rows().map(row => story.columns_of_marks.map(key => cell(row[key])).join(","))].join("\n") + "\n";
}

function download(text, kind, ending) {
  const open = story.modes.reduce((sum, one) => sum + one.pages.reduce((n, page, p) => n + (kept.seen[one.name][p] ? 0 : page.tiles.filter(tile => kept.marks[one.name][tile.id] !== undefined).length), 0), 0);
  const link = element("a");
  link.href = URL.createObjectURL(new Blob([text], { type: kind }));
  link.download = `${story.file}.${ending}`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60000);
  say(`${count.format(rows().length)} marks in ${story.file}.${ending}.` + (open ? ` ${open} more stand on pages that are not confirmed yet and are left out.` : ""));
}

// hands -------------------------------------------------------------------------------------------------------------------

byId("pages").addEventListener("click", event => {
  const button = event.target.closest(".tile");
  if (!button) return;
  const here = { page: Number(button.closest(".sheet").dataset.page), tile: Number(button.dataset.at) };
  if (event.shiftKey && anchor) { move(here); range(here); return; }
  move(here);
  const id = tileAt(here).id;
  put([[id, marks()[id] === undefined ? "x" : undefined]]);
  anchor = here;
});
byId("pages").addEventListener("focusin", event => {
  const button = event.target.closest(".tile");
  if (!button) return;
  at = { page: Number(button.closest(".sheet").dataset.page), tile: Number(button.dataset.at) };
  highlight();
});

addEventListener("keydown", event => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input:not([type=radio]), select, summary") || (event.key === "Enter" && event.target.closest(".bar"))) return;
  const steps = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns };
  const key = event.key.toLowerCase(), c = story.keys.indexOf(key);
  if (steps[event.key]) step(steps[event.key]);
  else if (event.key === "Enter") confirmPage();
  else if (c >= 0) mark(c);
  else if (key === "x") { mark("x"); anchor = { ...at }; }
  else if (key === "u") mark("u");
  else if (key === "z") undo();
  else if (key === "+" || key === "-") resize(key === "+" ? 1.25 : 0.8);
  else return;
  event.preventDefault();
});

function resize(by) {
  const side = parseFloat(getComputedStyle(document.querySelector(".grid")).getPropertyValue("--w"));
  document.documentElement.style.setProperty("--side", `${Math.round(Math.max(32, Math.min(320, side * by)))}px`);
  measure();
}

byId("wrong").onclick = () => mark("x");
byId("none").onclick = () => mark("u");
byId("relabel").onchange = event => { if (event.target.value !== "") mark(Number(event.target.value)); event.target.value = ""; };
byId("undo").onclick = undo;
byId("confirm").onclick = confirmPage;
byId("json").onclick = () => download(asJson(), "application/json", "json");
byId("csv").onclick = () => download(asCsv(), "text/csv", "csv");
byId("save").open = innerWidth > 736;
restore();
for (const name of ["who", "when"]) {
  byId(name).value = kept[name];
  byId(name).oninput = event => { kept[name] = event.target.value; save(); };
}
for (const input of document.querySelectorAll('input[name="mode"]')) input.addEventListener("change", () => choose(input.value));
addEventListener("resize", measure);
choose(story.modes[0].name);
