// Audit and triage: pages of pictures, a mark each, a page confirmed at a time. A mark is "x" (wrong), "u" (none of my classes)
// or the number of a class. What was on a confirmed page is seen, picture by picture; what is seen and not marked is right.
const story = JSON.parse(document.getElementById("data").textContent);
const byId = id => document.getElementById(id), count = new Intl.NumberFormat("en"), bar = document.querySelector(".bar");
const shelf = `odst-review-2:${story.run_hash}`;
let mode, at = { page: 0, tile: 0 }, anchor = null, done = [], columns = 1, high = 0, gap = 0, clock = 0, finished = "";
let kept = { marks: {}, seen: {}, pending: {}, sent: {}, who: "", when: new Date().toISOString().slice(0, 10) };
const signed = {};  // what others have written: mode -> picture -> who and when

// what is kept ------------------------------------------------------------------------------------------------------------

function restore() {
  try { Object.assign(kept, JSON.parse(localStorage.getItem(shelf) || "{}")); } catch { say("This browser keeps nothing: export before you close the page."); }
  for (const { name } of story.modes) {
    for (const part of ["marks", "seen", "pending", "sent"]) kept[part][name] ||= {};
    signed[name] = {};
    clock = Math.max(clock, ...Object.values(kept.pending[name]));
  }
  if (story.saved) fromFile(story.saved);
}

// What is on file and what this browser has kept, picture by picture. What was not written yet wins over the file, which wins over
// the rest; a mark on a page that is not confirmed is only here, and stays.
function fromFile(rows) {
  for (const one of story.modes) {
    const [marks, seen, pending, sent] = ["marks", "seen", "pending", "sent"].map(part => kept[part][one.name]), own = new Map();
    for (const row of rows) if (row.part === one.name && (!own.has(row.pool_id) || row.who === kept.who)) own.set(row.pool_id, row);
    for (const { id } of one.pages.flatMap(page => page.tiles)) {
      const row = own.get(id);
      if (pending[id]) continue;
      if (!row) { delete seen[id]; delete sent[id]; continue; }
      const mark = { wrong: "x", none: "u", relabelled: story.classes.indexOf(row.label) }[row.verdict];
      if (mark === undefined) delete marks[id]; else marks[id] = mark;
      seen[id] = true;
      if (row.who && sent[id] === undefined) signed[one.name][id] = [row.who, row.when]; else sent[id] = row.who;
    }
  }
  const last = rows[rows.length - 1];
  if (last && !kept.who) [kept.who, kept.when] = [last.who, last.when];
}

function save() {
  try { localStorage.setItem(shelf, JSON.stringify(kept)); if (!story.serve) say("Kept in this browser. Export to hand your marks on."); } catch { say("This browser keeps nothing: export before you close the page."); }
  if (story.serve) send();
}

// A picture that the file must hear of: one that is seen, or was.
function touch(id, name = mode.name) {
  kept.pending[name][id] = ++clock;
  delete signed[name][id];
}

// Only what has changed here: another tab may have written something else.
function changes() {
  const gone = [], told = [];
  for (const one of story.modes) for (const page of one.pages) for (const { id } of page.tiles) {
    if (!kept.pending[one.name][id]) continue;
    const who = kept.sent[one.name][id];
    if (who !== undefined && (!kept.seen[one.name][id] || who !== kept.who)) gone.push({ mode: one.mode, counts: one.counts, class: page.class, pool_id: id, who });
    told.push([one.name, id, kept.pending[one.name][id]]);
  }
  const marks = rows().filter(row => kept.pending[row.part][row.pool_id]).map(({ part, ...row }) => row);
  return { told, body: JSON.stringify({ format: story.format, marks, gone }) };
}

let sending = false, again = false;
async function send() {
  if (sending) { again = true; return; }
  const { told, body } = changes(), who = kept.who;
  if (!told.length) return;
  sending = true;
  try {
    const answer = await fetch("marks", { method: "POST", body, headers: { "Content-Type": "application/json" } });
    if (!answer.ok) throw new Error(await answer.text());
    const { said, marks } = await answer.json();
    for (const [name, id, then] of told) {
      if (kept.seen[name][id]) kept.sent[name][id] = who; else delete kept.sent[name][id];
      if (kept.pending[name][id] === then) delete kept.pending[name][id];
    }
    say(said + (marks > rows().length ? " Others have written there too: reload to see it." : ""));
    try { localStorage.setItem(shelf, JSON.stringify(kept)); } catch { /* said before */ }
  } catch (error) {
    again = false;
    say(`Not written: ${error instanceof TypeError ? "odst review --serve has ended. Export, or start it again." : error.message}`);
  }
  sending = false;
  if (again) { again = false; send(); }
}

function say(text) { byId("kept").textContent = byId("kept").title = text; }

// marks -------------------------------------------------------------------------------------------------------------------

const marks = () => kept.marks[mode.name], seen = () => kept.seen[mode.name];
const tileAt = place => mode.pages[place.page].tiles[place.tile];
const pageSeen = page => page.tiles.every(tile => seen()[tile.id]);
// the class that a picture stands under is no correction: it says that it is right
const mended = (page, value) => typeof value === "number" && story.classes[value] === page.class ? undefined : value;

function put(changes, confirm = []) {
  const before = { mode: mode.name, at: { ...at }, marks: [], seen: confirm.filter(id => !seen()[id]) };
  for (const [id, mark] of changes) {
    before.marks.push([id, marks()[id]]);
    if (mark === undefined) delete marks()[id]; else marks()[id] = mark;
    if (seen()[id]) touch(id);
  }
  for (const id of before.seen) { seen()[id] = true; touch(id); }
  done.push(before);
  after(changes.map(([id]) => id));
}

function undo() {
  const last = done.pop();
  if (!last) return;
  if (mode.name !== last.mode) choose(last.mode);
  for (const [id, mark] of last.marks.reverse()) {
    if (mark === undefined) delete marks()[id]; else marks()[id] = mark;
    if (seen()[id]) touch(id);
  }
  for (const id of last.seen) { delete seen()[id]; touch(id); }
  finished = "";
  after(last.marks.map(([id]) => id));
  move(last.at);
}

function after(ids) {
  for (const id of ids) for (const button of document.querySelectorAll(`.tile[data-id="${id}"]`)) paint(button, id);
  for (const page of mode.pages) if (page.box) page.box.classList.toggle("seen", pageSeen(page));
  tell();
  save();
}

function mark(value) {
  follow();
  const page = mode.pages[at.page], { id } = tileAt(at), meant = mended(page, value);
  if (meant === undefined && value !== undefined) {
    if (marks()[id] !== undefined) put([[id, undefined]]);
    say(`Right: it stands under ${page.class}.`);
  } else put([[id, marks()[id] === meant ? undefined : meant]]);
}

function range(to) {
  const order = [], flat = place => mode.pages.slice(0, place.page).reduce((sum, page) => sum + page.tiles.length, place.tile);
  const [low, high] = [flat(anchor || to), flat(to)].sort((a, b) => a - b), value = (anchor && marks()[tileAt(anchor).id]) ?? "x";
  let place = 0;
  for (const page of mode.pages) for (const tile of page.tiles) { if (place >= low && place <= high) order.push([tile.id, mended(page, value)]); place++; }
  put(order);
}

// Only what has been on the screen can be confirmed: a page that goes on below is shown to its end first.
function confirmPage() {
  follow();
  look();
  const here = at.page, page = mode.pages[here];
  if (!page) return;
  const hidden = unshown(page);
  if (hidden >= 0) { move({ page: here, tile: hidden }, true); return; }
  const group = mode.groups.find(one => one.name === page.group), open = tally(group).seen < group.draws;
  finished = "";
  put([], page.tiles.map(tile => tile.id));
  const found = tally(group);
  if (open && found.seen === group.draws) finished = `${group.name} is done: ${inShort(group, found)}.`;
  const next = mode.pages.findIndex((one, p) => p > here && !pageSeen(one)), first = mode.pages.findIndex(one => !pageSeen(one));
  const to = next >= 0 ? next : first;
  if (to >= 0) move({ page: to, tile: 0 }, true); else tell();
}

// what is on the screen -----------------------------------------------------------------------------------------------------

const bottom = () => bar.getBoundingClientRect().top + 1;
const unshown = page => pageSeen(page) ? -1 : page.tiles.findIndex((_, i) => !page.shown[i]);

// Where a row of a page's grid lies, whether its pictures are there or not.
function rowAt(page, tile) {
  const top = page.grid.getBoundingClientRect().top + Math.floor(tile / columns) * (high + gap);
  return { top, end: top + high };
}

// Note which pictures are wholly between the top and the bar.
function look() {
  const end = bottom();
  for (const page of close) {
    if (!page.full || !page.grid) continue;
    for (let i = 0; i < page.tiles.length; i += columns) {
      const row = rowAt(page, i);
      if (row.top > end) break;
      if (high < end ? row.top >= -1 && row.end <= end : row.end > 0) for (let j = i; j < Math.min(i + columns, page.tiles.length); j++) page.shown[j] = true;
    }
  }
  label();
}

// The place follows the eye: where scrolling has taken it off the screen, it goes to the page that fills most of that.
function follow() {
  const page = mode.pages[at.page], end = bottom(), row = page && rowAt(page, at.tile);
  if (!page || (row.top >= -1 && row.end <= end) || high >= end) return;
  let best = null, most = 0;
  close.forEach(one => {
    const box = one.grid.getBoundingClientRect(), part = Math.min(box.bottom, end) - Math.max(box.top, 0);
    if (part > most) { best = one; most = part; }
  });
  if (!best || most < high) return;
  const tile = best.tiles.findIndex((_, i) => rowAt(best, i).top >= -1);
  at = { page: mode.pages.indexOf(best), tile: Math.max(0, tile) };
  for (const other of document.querySelectorAll('.tile[tabindex="0"]')) other.tabIndex = -1;
  if (best.full) best.grid.children[at.tile].tabIndex = 0;
  highlight();
  tell();
}

let waiting = false;
function scrolled() {
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => { waiting = false; follow(); look(); });
}

function label() {
  const page = mode.pages[at.page], button = byId("confirm");
  if (!page) return;
  const rest = unshown(page) >= 0, text = `${rest ? "↓ rest of" : "✓ confirm"} page ${at.page + 1}`;
  if (button.textContent === text) return;
  button.replaceChildren(rest ? "↓ " : "✓ ", element("span", "", rest ? "rest of " : "confirm "), `page ${at.page + 1}`);
}

// pages -------------------------------------------------------------------------------------------------------------------

const close = new Set();  // pages on the screen or near it
const near = new IntersectionObserver(entries => {
  for (const entry of entries) {
    const page = mode.pages[Number(entry.target.dataset.page)];
    if (!page || page.box !== entry.target) continue;
    if (entry.isIntersecting) close.add(page); else close.delete(page);
    if (entry.isIntersecting) fill(page); else if (!page.box.contains(document.activeElement)) empty(page);
  }
  scrolled();
}, { rootMargin: "900px 0px" });

function choose(name) {
  mode = story.modes.find(one => one.name === name);
  document.querySelector(`input[name="mode"][value="${name}"]`).checked = true;
  for (const about of document.querySelectorAll("p[data-mode]")) about.hidden = about.dataset.mode !== name;
  near.disconnect();
  close.clear();
  finished = "";
  const boxes = mode.pages.map((page, p) => {
    const box = page.box = element("section", "sheet"), title = element("h2"), grid = page.grid = element("div", "grid");
    page.full = false;
    page.shown = [];
    box.dataset.page = p;
    title.append(element("span", "name", page.title), element("span", "faint", `page ${p + 1} of ${mode.pages.length}`));
    grid.setAttribute("role", "group");
    grid.setAttribute("aria-label", page.title);
    box.append(title, grid);
    box.classList.toggle("seen", pageSeen(page));
    return box;
  });
  byId("pages").replaceChildren(...boxes);
  measure();
  boxes.forEach(box => near.observe(box));
  const first = mode.pages.findIndex(page => !pageSeen(page));
  at = { page: Math.max(0, first), tile: 0 };
  anchor = null;
  if (mode.pages.length) { close.add(mode.pages[at.page]); fill(mode.pages[at.page]); }
  highlight();
  tell();
}

// The height of a page's grid is known before its pictures are there, so nothing jumps while scrolling.
function measure() {
  const grid = document.querySelector(".grid");
  if (!grid) return;
  const style = getComputedStyle(grid), side = parseFloat(style.getPropertyValue("--w"));
  gap = parseFloat(style.columnGap);
  columns = Math.max(1, Math.floor((grid.clientWidth + gap) / (side + gap)));
  high = side * story.tile[1] / story.tile[0];
  for (const page of mode.pages) page.grid.style.height = `${Math.ceil(page.tiles.length / columns) * (high + gap) - gap}px`;
  scrolled();
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
  page.grid.append(made);
}

function empty(page) { if (page.full) { page.full = false; page.grid.replaceChildren(); } }

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

// To a picture; with `top`, its row, or its page's heading, comes to the top.
function move(to, top) {
  const page = mode.pages[to.page];
  if (!page) return;
  at = { page: to.page, tile: Math.max(0, Math.min(page.tiles.length - 1, to.tile)) };
  close.add(page);
  fill(page);
  const row = rowAt(page, at.tile);
  if (top) scrollBy({ top: at.tile < columns ? page.box.getBoundingClientRect().top : row.top - 8, behavior: "instant" });
  else if (row.end > bottom() - 8) scrollBy({ top: row.end - bottom() + 16, behavior: "instant" });
  else if (row.top < 8) scrollBy({ top: row.top - 16, behavior: "instant" });
  for (const other of document.querySelectorAll('.tile[tabindex="0"]')) other.tabIndex = -1;
  const button = page.grid.children[at.tile];
  button.tabIndex = 0;
  button.focus({ preventScroll: true });
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
  mode.pages.forEach(page => {
    if (page.group !== group.name) return;
    for (const tile of page.tiles) {
      if (!seen()[tile.id]) continue;
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
  if (!group.sets.length) return `${group.draws} draws are too few to certify ${story.target_text}${delta}.${alone}`;
  if (!best) return `not certified at ${story.target_text}${delta}.${alone}`;
  const what = best.size === group.selected ? `all ${count.format(best.size)} selected images` : `the ${count.format(best.size)} most confident of ${count.format(group.selected)} selected images`;
  return `${what} certified at ${story.target_text} precision${delta}.${alone}`;
}

// The same in a few words, for the bar.
function inShort(group, found) {
  if (!group.sets) return group.says[found.wrong] || `${found.wrong} ${story.words.wrong_short}`;
  const size = certifiedSize(group, found), all = count.format(group.selected);
  return !group.sets.length ? `too few draws for ${story.target_text}` : size === 0 ? `not certified at ${story.target_text}` : size === group.selected ? `all ${all} certified at ${story.target_text}` : `${count.format(size)} of ${all} certified at ${story.target_text}`;
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
  byId("overview").classList.toggle("mute", !mode.counts);  // triage certifies nothing
  label();
  const page = mode.pages[at.page], group = page && mode.groups.find(one => one.name === page.group);
  if (!group) { byId("live").textContent = mode.nothing || "Nothing to look at here."; return; }
  const found = tally(group), whole = found.seen === group.draws;
  const so = `${found.seen} of ${group.draws} seen, ${found.wrong} ${story.words.wrong_short}`, end = whole && mode.counts ? inShort(group, found) : "";
  const now = `${group.name}: ${!end ? so : group.says ? end : `${so}; ${end}`}`;
  byId("live").textContent = `${finished && !finished.startsWith(group.name + " is done") ? finished + " " : ""}${now} · page ${at.page + 1} of ${mode.pages.length}`;
}

// files -------------------------------------------------------------------------------------------------------------------

function rows() {
  const found = [];
  for (const one of story.modes) for (const page of one.pages) for (const tile of page.tiles) {
    if (!kept.seen[one.name][tile.id]) continue;
    const value = kept.marks[one.name][tile.id], [who, when] = signed[one.name][tile.id] || [kept.who, kept.when];
    found.push({
      part: one.name, pool_id: tile.id, content_hash: tile.hash, run_hash: story.run_hash, round: story.round, mode: one.mode,
      draws: one.counts ? story.draws : null, class: page.class, verdict: value === "x" ? "wrong" : value === "u" ? "none" : value === undefined ? "right" : "relabelled",
      label: typeof value === "number" ? story.classes[value] : null, who, when,
    });
  }
  return found;
}

const asJson = () => JSON.stringify({ format: story.format, marks: rows().map(({ part, ...row }) => row) }, null, 1) + "\n";

function asCsv() {
  // as data/cells.py has it: a spreadsheet must not take a name for a formula
  const safe = value => typeof value === "string" && /^'*[=+\-@\t\r]/.test(value) && !/^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$/.test(value) ? `'${value}` : String(value);
  const cell = value => value === null ? "" : /[",\r\n]/.test(safe(value)) ? `"${safe(value).replaceAll('"', '""')}"` : safe(value);
  return [story.columns_of_marks.join(","), ...rows().map(row => story.columns_of_marks.map(key => cell(row[key])).join(","))].join("\n") + "\n";
}

function download(text, kind, ending) {
  const open = story.modes.flatMap(one => one.pages.flatMap(page => page.tiles.filter(({ id }) => !kept.seen[one.name][id] && kept.marks[one.name][id] !== undefined))).length;
  const link = element("a");
  link.href = URL.createObjectURL(new Blob([text], { type: kind }));
  link.download = `${story.file}.${ending}`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60000);
  const n = rows().length;
  say(`${count.format(n)} ${n === 1 ? "mark" : "marks"} in ${story.file}.${ending}.` + (open ? ` Left out: ${open} more on pages that are not confirmed yet.` : ""));
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
  if (event.key === "Enter" && event.repeat) { event.preventDefault(); return; }  // a key held down has looked at nothing
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input:not([type=radio]), select, summary") || (event.key === "Enter" && event.target.closest(".bar"))) return;
  const steps = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns };
  const key = event.key.toLowerCase(), c = story.keys.indexOf(key);
  if (steps[event.key]) { follow(); step(steps[event.key]); }
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
restore();
for (const name of ["who", "when"]) {
  byId(name).value = kept[name];
  byId(name).oninput = event => { kept[name] = event.target.value; try { localStorage.setItem(shelf, JSON.stringify(kept)); } catch { /* said before */ } };
  byId(name).onchange = () => {
    for (const one of story.modes) for (const id of Object.keys(kept.seen[one.name])) if (!signed[one.name][id]) touch(id, one.name);
    save();
  };
}
for (const input of document.querySelectorAll('input[name="mode"]')) input.addEventListener("change", () => choose(input.value));
addEventListener("resize", measure);
addEventListener("scroll", scrolled, { passive: true });
new ResizeObserver(() => document.documentElement.style.setProperty("--bar", `${bar.offsetHeight}px`)).observe(bar);
choose(story.modes[0].name);
if (!byId("kept").textContent) say(story.serve ? "Written to a file as you confirm pages." : "Kept in this browser. Export to hand your marks on.");
