"""The card of a model that leaves the house: what it is, what it was made of, how good it is and where not to trust it."""

from collections.abc import Iterable

from odst.classifier.model import Classifier
from odst.evaluation.contract import ClassContract
from odst.report.findings import Findings, RoundFindings, gather
from odst.report.measures import measures, percent
from odst.report.tables import markdown_text
from odst.report.words import probability, summary
from odst.run.audit import headline as certificate
from odst.run.bases import ALONE
from odst.run.outlook import val_out_from

ROUNDS = measures("error", "ece", "od_auroc", "val_error", "val_od_auroc", "selected", "related", "correct")


def model_card(classifier: Classifier, name: str) -> str:
    """README.md of a model folder called `name`: the numbers are the run's, every name is escaped."""
    run = classifier.of_run("tell of")
    found = gather(run, None)
    one = found.alone if not isinstance(classifier.round, int) else found.rounds[classifier.round]
    assert one is not None
    parts = [
        FRONT,
        f"# {markdown_text(name)}",
        _what(classifier, found),
        "## Use it",
        _use(classifier),
        "## What it was made of",
        _sets(found),
        "## How good it is",
        _good(found, one),
        "## What `unknown` means, class by class",
        _contract(found, one),
        "## What people have certified",
        _certified(classifier),
        "## Known limits",
        _bullets(_limits(classifier, found, one)),
        _origin(classifier, found),
    ]
    return "\n\n".join(parts) + "\n"


FRONT = "---\nlibrary_name: odst\npipeline_tag: image-classification\ntags:\n- odst\n- self-training\n- out-of-distribution\n---"


def _what(classifier: Classifier, found: Findings) -> str:
    if classifier.encoding is not None:
        takes = f"pictures, through the backbone {_code(str(classifier.encoding.identity))}"
    elif len(classifier.shape) == 3:
        takes = f"pictures of {classifier.shape[0]}×{classifier.shape[1]} pixels"
    else:
        takes = f"vectors of {classifier.shape[0]:,} numbers"
    names = ", ".join(f"*{markdown_text(one)}*" for one in classifier.classes[:20])
    more = f" and {len(classifier.classes) - 20} more" if len(classifier.classes) > 20 else ""
    return (
        f"A classifier of {found.K} classes ({names}{more}) that also says `unknown`. It takes {takes} and gives calibrated "
        f"probabilities. It was made by odst (out-distribution aware self-training), method {_code(found.info['method'])}: it is "
        f"{'the model of the labelled images alone' if classifier.round == ALONE else classifier.name} of a run of "
        f"{len(found.rounds) - 1} rounds."
    )


def _use(classifier: Classifier) -> str:
    pictures = len(classifier.shape) == 3 or classifier.encoding is not None
    how = {"crop": "their middle square", "pad": "grey bars", "stretch": "squeezing"}[classifier.fit]
    lines = [
        '```python\nimport odst\n\nmodel = odst.load("this folder")\n'
        + (
            'pictures = model.read("photos/", model.fit).x  # a folder, a tar, a table of paths …\nmodel.predict(pictures)'
            if pictures
            else "model.predict(vectors)"
        )
        + '  # a class or "unknown" for each\n```',
        "Or `odst predict FOLDER photos/ --csv labels.csv`.",
    ]
    if pictures:
        lines.append(
            f"Pictures that are not square become so by {how}, at {classifier.encoding.identity.size if classifier.encoding else classifier.shape[0]} "
            "pixels a side with Pillow's bicubic filter; normalisation is inside. `config.json` has labels, thresholds and preprocessing."
        )
    name = classifier.of_run("tell of").config().model.name
    if name.startswith("timm:"):
        lines.append(
            f"With timm alone, without thresholds and temperature: `timm.create_model({name[5:]!r}, num_classes={len(classifier.classes)}, "
            'checkpoint_path="this folder/model.safetensors")`; mean and std are in `config.json`.'
        )
    return "\n\n".join(lines)


def _sets(found: Findings) -> str:
    rows = []
    for name, role in SETS.items():
        one = found.info["sets"].get(name)
        if one:
            rows.append(f"| {name} | {one['images']:,} | {role} |")
    for name, one in found.info["sets"].items():
        if name.startswith("out_test."):
            rows.append(f"| {markdown_text(name)} | {one['images']:,} | none of the classes, for scoring only |")
    return "\n".join(["| set | images | role |", "|---|---:|---|", *rows])


SETS = {
    "labelled": "labelled images it learnt from",
    "pool": "unlabelled images, most of them unrelated",
    "val_in": "calibrates and sets thresholds",
    "val_out": "none of the classes; sets thresholds",
    "test": "for scoring only",
}


def _good(found: Findings, one: RoundFindings) -> str:
    shown = [measure for measure in ROUNDS if any(r.metrics.get(measure.key) is not None for r in found.rounds)]
    rows = [("labels alone", found.alone)] if found.alone else []
    rows += [(str(r.t), r) for r in found.rounds]
    low, high = one.error_interval
    table = [
        f"| round | {' | '.join(measure.title for measure in shown)} |",
        f"|---|{'---:|' * len(shown)}",
        *(
            f"| {f'**{name}**' if r is one else name} | {' | '.join(m.text(r.metrics.get(m.key)) for m in shown)} |"
            for name, r in rows
        ),
    ]
    interval = f"Its error on {found.set_name} lies between {percent(low)} and {percent(high)} % (95 % interval)."
    return "\n".join(table) + "\n\n" + "\n\n".join([f"This folder holds the row in bold. {interval}", *summary(found)])


def _contract(found: Findings, one: RoundFindings) -> str:
    """Thresholds and what they keep on images that did not set them."""
    rows = []
    for c, name in enumerate(found.classes):
        kept = one.contract[c] if one.contract else None
        rows.append(
            f"| {markdown_text(name)} | {probability(float(one.thresholds.tau[c]))} | {_share(kept, inside=True)} | {_share(kept, inside=False)} |"
        )
    return "\n".join(
        [
            "A prediction counts only above its class's threshold; below it is `unknown`. What the thresholds keep is counted on "
            "validation images that did not set them, with exact 95 % intervals.\n",
            "| class | threshold | right among those above it | of val_out above it |",
            "|---|---:|---|---|",
            *rows,
        ]
    )


def _share(kept: ClassContract | None, *, inside: bool) -> str:
    if kept is None:
        return "–"
    hits, n = (kept.in_right, kept.in_above) if inside else (kept.out_above, kept.out_total)
    if not n:
        return "none above" if inside else "–"
    low, high = kept.precision_interval if inside else kept.out_rate_interval
    return f"{hits:,} of {n:,} ({percent(low, 1)} to {percent(high, 1)} %)"


def _certified(classifier: Classifier) -> str:
    run = classifier.of_run("tell of")
    audit = run.audit(classifier.round) if isinstance(classifier.round, int) and classifier.round else None
    if audit is None:
        return "Nothing: nobody has audited what was selected from the pool (`odst review`, then `odst audit`)."
    return markdown_text(certificate(audit)) + "\n\n" + _bullets(map(markdown_text, audit["words"]))


def _limits(classifier: Classifier, found: Findings, one: RoundFindings) -> Iterable[str]:
    run = classifier.of_run("tell of")
    yield "It knows these classes only, as they look in the labelled images; `unknown` is no name for anything else."
    if not found.tested:
        yield "There was no test set: errors are of the validation images, which also chose round and thresholds."
    where = val_out_from(run.config())
    if where == "from the pool":
        yield (
            "val_out was drawn from the pool and cleaned by a quick network: images that look like a class and are none are rarer "
            "in it than in the world, so OD-AUROC is rosy."
        )
    elif where == "none":
        yield "There was no val_out: no threshold guards against unrelated images."
    if closed := [name for name, tau in zip(found.classes, one.thresholds.tau, strict=True) if tau == float("inf")]:
        yield f"Closed, always `unknown`: {', '.join(map(markdown_text, closed))}."
    yield from map(markdown_text, one.shortfalls)
    if one.metrics.get("harm"):
        yield f"This round is worse than its teacher: {markdown_text(str(one.metrics['harm']))}."
    if not found.final:
        yield "The run was not finished."
    elif (use := found.final.get("use", found.final["round"])) != classifier.round:
        named = "its labels alone" if use == ALONE else f"round {use}"
        yield f"The run says to use {named}, and this folder holds {classifier.name}."


def _origin(classifier: Classifier, found: Findings) -> str:
    hash_ = classifier.of_run("tell of").note(classifier.round)["model_hash"]
    versions = ", ".join(f"{name} {value}" for name, value in found.info.get("versions", {}).items())
    return f"Seed {found.info['seed']}; weights SHA-256 {_code(hash_)}; {versions}."


def _bullets(lines: Iterable[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)


def _code(text: str) -> str:
    return f"`{' '.join(text.split()).replace('`', '')}`"
