"""odst export."""

from pathlib import Path
from typing import Annotated, Any

from typer import Option

from odst.cli import RunFolder, TrustCode, app
from odst.cli.results import AsJson, show


@app.command()
def export(
    run: RunFolder,
    onnx: Annotated[Path | None, Option(help="The classifier as an ONNX file. Needs odst[onnx].")] = None,
    hub_folder: Annotated[
        Path | None, Option(metavar="DIR", help="Weights, labels, thresholds and a model card, for a hub or a friend.")
    ] = None,
    tensorboard: Annotated[Path | None, Option(help="A folder for its numbers. Needs odst[tensorboard].")] = None,
    round: Annotated[str | None, Option(help="Another round than the one to use, or labels-alone.")] = None,
    trust_code: TrustCode = False,
    as_json: AsJson = False,
) -> None:
    """Hand a run to others: ONNX, a model folder, TensorBoard.

    The ONNX file has normalisation, temperature and softmax inside. The model folder holds safetensors, config.json and a
    card from the run's numbers; `odst.load(DIR)` and `odst predict DIR` take it. TensorBoard gets every number of
    metrics.jsonl.

    Example: odst export runs/first --hub-folder my-model
    """
    from odst.classifier.export import export_onnx, export_tensorboard
    from odst.classifier.load import load
    from odst.classifier.model_folder import write_folder
    from odst.errors import UserError
    from odst.report.card import model_card
    from odst.run.directory import RunDir

    if onnx is None and tensorboard is None and hub_folder is None:
        raise UserError("export: nothing to write. Give --onnx FILE, --hub-folder DIR or --tensorboard FOLDER.")
    found: dict[str, Any] = {}
    lines = []
    if onnx is not None or hub_folder is not None:
        classifier = load(run, round=round, device="cpu", trust_code=trust_code)
        found["model"] = classifier.name
    if onnx is not None:
        difference = export_onnx(classifier, onnx)
        found |= {"onnx": onnx, "difference": difference}
        lines.append(f"{onnx}: differs from torch by at most {difference:.0e}")
    if hub_folder is not None:
        write_folder(classifier, hub_folder, model_card(classifier, hub_folder.resolve().name))
        found["hub_folder"] = hub_folder
        lines.append(f"{hub_folder}: {classifier.name}, loaded again to the same probabilities. Read its README.md.")
    if tensorboard is not None:
        folder = RunDir(run)
        folder.info()
        found |= {"tensorboard": tensorboard, "numbers": export_tensorboard(folder, tensorboard)}
        lines.append(f"{tensorboard}: {found['numbers']} numbers")
    show(as_json, found, lines)
