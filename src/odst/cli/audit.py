"""odst audit."""

from pathlib import Path
from typing import Annotated

from typer import Option

from odst.cli import RunFolder, TrustCode, app
from odst.cli.results import AsJson, show


@app.command()
def audit(
    run: RunFolder,
    marks: Annotated[
        list[Path] | None,
        Option(metavar="FILE", help="Exported by the review page; once for each [default: JSON and CSV in RUN/marks]."),
    ] = None,
    target: Annotated[float, Option(help="The precision to certify.")] = 0.95,
    delta: Annotated[float, Option(help="How probable a wrong certificate may be, over all classes.")] = 0.05,
    round: Annotated[int | None, Option(help="Another round than the final one.")] = None,
    plan: Annotated[bool, Option("--plan", help="Only say how many draws it takes.")] = False,
    trust_code: TrustCode = False,
    as_json: AsJson = False,
) -> None:
    """Certify how precise a selection is, from marks.

    Only the audit pages of `odst review` count, and a class only when all its draws are seen. The certificate goes into the run,
    its report, final.json and what `odst export` writes.

    Example: odst audit runs/first --marks marks.json
    """
    from odst.errors import UserError
    from odst.run.audit import audit_run, headline
    from odst.run.audit import plan as planned
    from odst.run.directory import RunDir

    folder = RunDir(run, trust_code)
    folder.info()
    if plan:
        needed = planned(folder, t=round, target=target, delta=delta)
        show(as_json, needed, needed.lines())
        return
    files = marks or sorted(file for file in folder.marks.glob("*") if file.suffix.lower() in (".json", ".csv"))
    if not files:
        raise UserError(f"{run}: no marks. Make its pages with `odst review {run}`, then give --marks FILE.")
    found = audit_run(folder, files, t=round, target=target, delta=delta)
    lines = [headline(found), *(f"  {line}" for line in found["words"])]
    lines += [f"  two people disagree: {line}" for line in found["disagreements"]]
    if left := found["left_out"]["triage"]:
        lines.append(f"  {left} triage {'mark' if left == 1 else 'marks'} left out: they were not drawn at random")
    if left := found["left_out"]["other_rounds"]:
        lines.append(f"  {left} audit {'mark' if left == 1 else 'marks'} of other rounds left out")
    file = folder.audit_file(found["round"])
    show(as_json, {**found, "file": file}, [*lines, f"Written: {file}"])
