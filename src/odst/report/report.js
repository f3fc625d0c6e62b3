// The slider over alpha and the galleries. Everything shown is text or a picture of the page itself.
const story = JSON.parse(document.getElementById("data").textContent);
const count = new Intl.NumberFormat("en");
const byId = id => document.getElementById(id);

function percent(share) { return (100 * share).toFixed(1) + " %"; }

function sliderFor(round) {
  const slider = byId("alpha");
  if (!slider) return;
  const stops = round.stops;
  byId("slider").hidden = !stops;
  byId("no-slider").hidden = Boolean(stops);
  if (!stops) return;
  slider.max = stops.alphas.length - 1;
  slider.value = stops.own;
  slider.oninput = () => showAlpha(round, Number(slider.value));
  byId("alpha-back").onclick = () => { slider.value = stops.own; showAlpha(round, stops.own); };
  byId("alpha-low").textContent = stops.alphas[0];
  byId("alpha-high").textContent = stops.alphas.at(-1);
  showAlpha(round, stops.own);
}

function showAlpha(round, at) {
  const { stops, k } = round, alpha = stops.alphas[at];
  const taken = (one, stop) => Math.min(k, one.at[stop]);
  const total = stop => round.classes.reduce((sum, one) => sum + taken(one, stop), 0);
  const own = at === stops.own ? " (as run)" : "";
  byId("alpha-value").textContent = (own ? stops.named : alpha) + own;
  byId("alpha").setAttribute("aria-valuetext", `alpha ${alpha}${own}, ${total(at)} images`);
  const change = total(at) - total(stops.own);
  let text = `${count.format(total(at))} images would be selected`;
  if (change) text += `, ${count.format(Math.abs(change))} ${change > 0 ? "more" : "fewer"} than in the run`;
  if (stops.related && total(at)) text += `; ${percent(stops.related[at])} task-related, ${percent(stops.correct[at])} with the right label`;
  byId("alpha-total").textContent = text + ".";
  const rows = byId("alpha-rows");
  rows.replaceChildren();
  const many = round.classes.length > 12;
  let idle = 0;
  for (const one of round.classes) {
    if (many && !taken(one, at) && !taken(one, stops.own)) { idle++; continue; }
    const n = taken(one, at), before = taken(one, stops.own), meter = element("div", "meter"), bar = element("i"), mark = element("b");
    bar.style.width = 100 * n / k + "%";
    mark.style.left = `calc(${100 * before / k}% - 1px)`;
    meter.append(bar, mark);
    const number = element("div", "count");
    number.dataset.class = one.name;
    const above = one.tau[at] === "closed" ? " closed: no threshold is that precise" : ` of ${count.format(one.at[at])} above ${one.tau[at]}`;
    number.append(element("span", "n", count.format(n)), element("span", "change", above));
    const name = element("div", "name", one.name);
    name.title = one.name;
    rows.append(name, meter, number, comeAndGo(one, n, before));
  }
  byId("alpha-idle").textContent = idle ? `${count.format(idle)} more classes take nothing, here as in the run.` : "";
}

function comeAndGo(one, n, before) {
  const box = element("div", "pictures");
  if (n === before) return box;
  const word = n > before ? "come in" : "drop out", low = Math.min(n, before), high = Math.max(n, before);
  const near = (one.ladder || []).filter(([, rank]) => rank >= low && rank < high)
    .sort((a, b) => Math.abs(a[1] - n) - Math.abs(b[1] - n)).slice(0, 24).sort((a, b) => a[1] - b[1]);
  const label = `${count.format(high - low)} ${word}`;
  box.append(element("span", "change " + (n > before ? "good" : "bad"), near.length && near.length < high - low ? `${label}, ${near.length} shown` : label));
  if (near.length) box.append(tileRow(one, near.map(([at]) => at), story, `${one.name}: images that ${word}`));
  return box;
}

const GALLERIES = [
  ["random", "Selected, at random", () => false],
  ["above", "Just above the threshold (pale: not taken, the class was full)", tile => tile.n === 0],
  ["below", "Just below the threshold: not selected", () => false],
  ["repeated", "Most repeated", () => false],
];

function galleriesFor(round) {
  const box = byId("galleries");
  if (!box) return;
  box.replaceChildren();
  const many = round.classes.length > 12;
  let opened = 0;
  for (const one of round.classes) {
    const block = element("details", "class"), title = element("summary", "", one.name);
    title.append(element("span", "faint", `${count.format(one.used)} selected, ${count.format(one.above)} above the threshold, at most ${count.format(round.k)}`));
    block.append(title);
    let filled = false;
    const fill = () => {
      if (filled) return;
      filled = true;
      if (!one.tiles) block.append(element("p", "sort", one.used ? "No pictures of this class fit on the page." : "Nothing selected: " + one.stop + "."));
      for (const [key, heading, idle] of GALLERIES) {
        if (!one.tiles || !(one.rows[key] || []).length) continue;
        block.append(element("p", "sort", heading), tileRow(one, one.rows[key], story, `${one.name}, ${heading.toLowerCase()}`, idle));
      }
    };
    block.addEventListener("toggle", () => block.open && fill());
    block.open = !many || (one.used > 0 && opened++ < 3);
    if (block.open) fill();
    box.append(block);
  }
}

picker("student", t => { sliderFor(story.rounds[t]); galleriesFor(story.rounds[t]); });
picker("histogram");
picker("model");
addEventListener("beforeprint", () => { for (const block of document.querySelectorAll("details")) block.open = true; });
