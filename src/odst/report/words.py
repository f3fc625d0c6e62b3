"""Numbers and verdicts in plain words."""

from math import exp, isinf

from odst.evaluation.paired import Change
from odst.recipe import Recipe
from odst.report.findings import Findings
from odst.report.measures import percent

MINUS = "\N{MINUS SIGN}"


def points(value: float) -> str:
    return f"{100 * value:+.2f}".replace("-", MINUS)


def interval(low: float, high: float) -> str:
    return f"{points(low)} to {points(high)}"


def probability(log_odds: float) -> str:
    """A confidence for people; near 1 what is left to it."""
    if isinf(log_odds):
        return "closed" if log_odds > 0 else "none"
    rest = 1 / (1 + exp(log_odds)) if log_odds < 700 else 0.0
    if rest >= 5e-5:
        return f"{100 * (1 - rest):.2f} %"
    return f"1 {MINUS} {rest:.0e}".replace("e-0", "e-").replace("e-", f"e{MINUS}") if rest else f"1 {MINUS} 0"


def alphas(recipe: Recipe) -> str:
    """Of the thresholds, as a run asked for them: one number, or one for each."""
    if recipe.alpha_in is None and recipe.alpha_out is None:
        return f"{recipe.alpha:g}"
    inside, outside = recipe.alphas(val_out=True)
    texts = [f"{alpha:g} {on}" for alpha, on in ((inside, "on val_in"), (outside, "on val_out")) if alpha is not None]
    return ", ".join(texts)


def headline(found: Findings) -> str:
    """The verdict in one sentence."""
    best, change = found.best.t, found.error
    if found.use_alone:
        return "Use your labels alone: no round is as good as they are on the validation images."
    if len(found.rounds) == 1:
        return f"There is only the base classifier, with {percent(change.after)} % error."
    if best == 0:
        return (
            "Use the base: no student is better on the validation images without being worse there in something else."
        )
    if not change.clear:
        verdict = "No clear difference from the base"
    elif change.difference < 0:
        verdict = "Better than the base"
    else:
        verdict = "Worse than the base"
    return (
        f"{verdict}: use round {best}." if found.final else f"{verdict} so far: round {best} is the last one finished."
    )


def summary(found: Findings) -> list[str]:
    """What a reader must know, most important first."""
    images = (
        "test images" if found.tested else "validation images (there is no test set, and these also chose the round)"
    )
    lines = []
    if found.final and (alone := found.final.get("labels_alone")):
        lines.append(f"{alone['says'][0].upper()}{alone['says'][1:]}.")
    last = found.rounds[-1]
    judged = found.best if found.best.t else last
    error, auroc = found.error_from_base(judged), found.auroc_from_base(judged)
    if judged.t > 0:
        lines.append(
            f"Error on the {len(found.labels):,} {images}: {percent(error.before)} % for the base, {percent(error.after)} % for "
            f"round {judged.t}, {_difference(error, 'fewer errors', 'more errors')}."
        )
        if auroc is not None:
            lines.append(
                f"Telling task images from unrelated ones (OD-AUROC): {percent(auroc.before)} for the base, "
                f"{percent(auroc.after)} for round {judged.t}, {_difference(auroc, 'worse', 'better')}."
            )
    lines += _hidden_collapse(found)
    if last.metrics["selected"] is not None:
        lines.append(_selected(found))
    for one in found.rounds[1:]:
        if one.metrics.get("harm"):
            lines.append(f"Round {one.t} is worse than its teacher: {one.metrics['harm']}.")
    stopped = found.final and found.final["stopped"]
    if stopped == "harm":
        lines.append(f"The run stopped after round {last.t}, because that student does harm.")
    elif stopped:
        lines.append(f"The run stopped after round {last.t}: {stopped}.")
    return lines


def _difference(change: Change, lower: str, higher: str) -> str:
    word = (lower if change.difference < 0 else higher) if change.clear else "no clear difference"
    return f"{points(change.difference)} points (95 % interval {interval(change.low, change.high)}): {word}"


def _hidden_collapse(found: Findings) -> list[str]:
    """The paper's point: the error may look well while the classifier loses its sense for what is unrelated."""
    last = found.rounds[-1]
    error, auroc = found.error_from_base(last), found.auroc_from_base(last)
    if last.t == 0 or auroc is None or not (auroc.clear and auroc.difference < -0.01):
        return []
    if error.clear and error.difference > 0:
        return []
    return [
        f"The error hides a collapse: over {last.t} {'round' if last.t == 1 else 'rounds'} it went from {percent(error.before)} % "
        f"to {percent(error.after)} %, but OD-AUROC fell from {percent(auroc.before)} to {percent(auroc.after)}. "
        "Unrelated images now get high confidence."
    ]


def _selected(found: Findings) -> str:
    last = found.rounds[-1]
    m = last.metrics
    text = f"Round {last.t} was trained on {m['selected']:,} pool images beside the {found.labelled:,} labelled ones"
    if m["related"] is not None:
        text += f"; {percent(m['related'], 1)} % of them show a task class and {percent(m['correct'], 1)} % got the right label"
    assert last.selection is not None
    rows = last.selection["classes"]
    short = sum(row["used"] < last.selection["k"] for row in rows.values())
    if short:
        text += f". {short} of {len(rows)} classes stayed below the cap of {last.selection['k']:,}"
    return text + "."
