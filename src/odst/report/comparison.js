// Per class, one row of pictures a run: those that it alone selected.
const story = JSON.parse(document.getElementById("data").textContent);
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
        if (one.tiles) block.append(tileRow(one, one.tiles.map((_, at) => at), story, `${name}, selected by ${run.run} alone`));
      }
    };
    block.addEventListener("toggle", () => block.open && fill());
    block.open = names.length <= 12 || c < 3;
    if (block.open) fill();
    box.append(block);
  });
}

picker("round", t => galleriesFor(story.rounds[t]));
addEventListener("beforeprint", () => { for (const block of document.querySelectorAll("details")) block.open = true; });
