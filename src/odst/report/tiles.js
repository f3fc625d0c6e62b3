"use strict";
// Pictures from sprite sheets: a row of tiles is one stop of the Tab key, arrows walk in it, Enter shows one large.

function element(tag, className, text) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}

function place(tile, owner, at, album) {
  const columns = Math.min(album.columns, owner.tiles.length);
  tile.classList.add("tile", "s" + owner.sheet);
  tile.style.setProperty("--ratio", album.tile[1] / album.tile[0]);
  tile.style.backgroundSize = `calc(var(--w) * ${columns})`;
  tile.style.backgroundPosition =
    `calc(var(--w) * ${-(at % album.columns)}) calc(var(--w) * ${-Math.floor(at / album.columns)} * var(--ratio))`;
}

function facts(tile) {
  const found = [["pool id", String(tile.id)], ["confidence", tile.p], ["source", tile.src]];
  if (tile.is !== undefined) found.push(["shows", tile.is]);
  found.push(["selected", tile.n === 0 ? "no" : tile.n === 1 ? "once" : `${tile.n} copies`]);
  return found;
}

// `owner` has a sheet and tiles; `places` are numbers of tiles; `idle(tile)` says which are pale.
function tileRow(owner, places, album, label, idle = () => false) {
  const row = element("div", "tiles");
  row.setAttribute("role", "group");
  row.setAttribute("aria-label", label);
  places.forEach((at, i) => {
    const tile = owner.tiles[at], button = element("button");
    button.type = "button";
    place(button, owner, at, album);
    if (tile.ok === false) button.classList.add("wrong");
    if (idle(tile)) button.classList.add("idle");
    if (tile.n > 1) button.dataset.n = tile.n;
    button.title = facts(tile).map(pair => pair.join(": ")).join("\n");
    button.setAttribute("aria-label", `${label}, picture ${i + 1}: confidence ${tile.p}${tile.is ? ", shows " + tile.is : ""}`);
    button.tabIndex = i === 0 ? 0 : -1;
    button.addEventListener("click", () => enlarge(owner, at, album));
    row.append(button);
  });
  row.addEventListener("keydown", event => {
    const step = { ArrowRight: 1, ArrowLeft: -1, Home: -1e9, End: 1e9 }[event.key];
    if (!step) return;
    event.preventDefault();
    const buttons = [...row.children], now = buttons.indexOf(document.activeElement);
    buttons[Math.max(0, Math.min(buttons.length - 1, now + step))].focus();
  });
  row.addEventListener("focusin", event => {
    for (const button of row.children) button.tabIndex = button === event.target ? 0 : -1;
  });
  return row;
}

function enlarge(owner, at, album) {
  const dialog = document.getElementById("large"), picture = element("div"), list = element("dl");
  place(picture, owner, at, album);
  for (const [name, value] of facts(owner.tiles[at])) list.append(element("dt", "", name), element("dd", "", value));
  dialog.querySelector(".content").replaceChildren(picture, list);
  dialog.showModal();
}

document.getElementById("large").addEventListener("click", event => {
  if (event.target === event.currentTarget) event.currentTarget.close();
});

// A group of radio buttons that shows the panel whose data-round is chosen.
function picker(name, onChange) {
  const inputs = [...document.querySelectorAll(`input[name="${name}"]`)];
  const show = () => {
    const chosen = inputs.find(input => input.checked);
    if (!chosen) return;
    for (const panel of document.querySelectorAll(`[data-panel="${name}"]`)) panel.hidden = panel.dataset.round !== chosen.value;
    if (onChange) onChange(chosen.value);
  };
  for (const input of inputs) input.addEventListener("change", show);
  show();
}
