// Per class, one row of pictures a run: those that it alone selected.
const page = JSON.parse(document.getElementById("data").textContent);
const count = new Intl.NumberFormat("en");

function galleriesFor(runs) {
  const box = document.getElementById("galleries"), totals = element("ul", "summary");
  for (const one of runs) totals.append(element("li", "", `${one.run}: ${count.format(one.count)} of ${count.format(one.of)} images are its own`));
  box.replaceChildren(totals);
  const names = runs[0].classes.map(one => one.name);
  names.forEach((name, c) => {
    const block = element("details", "class");
    block.append(element("summary", "", name));
    let filled = false;
    const fill = () => {
      if (filled) return;
      filled = true;
      for (const run of runs) {
        const one = run.classes[c];
        block.append(element("p", "sort", `${run.run}: ${count.format(one.count)} alone`));
        if (one.tiles) block.append(tileRow(one, one.tiles.map((_, at) => at), page, `${name}, selected by ${run.run} alone`));
      }
    };
    block.addEventListener("toggle", () => block.open && fill());
    block.open = names.length <= 12 || c < 3;
    if (block.open) fill();
    box.append(block);
  });
}

if (page.story) for (const one of page.story.rows) {
  document.getElementById("told").append(
    element("p", "sort", `${one.run}: ${count.format(one.count)} taken for “${page.story.class}”, ${count.format(one.wrong)} of them wrong`),
    tileRow(one, one.tiles.map((_, at) => at), page, `taken for ${page.story.class} by ${one.run}`));
}
picker("round", t => galleriesFor(page.rounds[t]));
addEventListener("beforeprint", () => { for (const block of document.querySelectorAll("details")) block.open = true; });
