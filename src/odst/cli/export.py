"""odst export."""

from pathlib import Path
from typing import Annotated

from typer import Option, echo

from odst.cli import RunFolder, TrustCode, app


@app.command()
def export(
    run: RunFolder,
    onnx: Annotated[Path | None, Option(help="The classifier as an ONNX file. Needs odst[onnx].")] = None,
    tensorboard: Annotated[Path | None, Option(help="A folder for its numbers. Needs odst[tensorboard].")] = None,
    round: Annotated[str | None, Option(help="Another round than the one to use, for --onnx.")] = None,
    trust_code: TrustCode = False,
) -> None:
    """Hand a run to other tools: ONNX or TensorBoard.

    The ONNX file has normalisation, temperature and softmax inside; TensorBoard gets every number of metrics.jsonl.

    Example: odst export runs/first --onnx classifier.onnx
    """
    from odst.classifier.export import export_onnx, export_tensorboard
    from odst.classifier.load import load
    from odst.errors import UserError
    from odst.run.directory import RunDir

    if onnx is None and tensorboard is None:
        raise UserError("export: nothing to write. Give --onnx FILE or --tensorboard FOLDER.")
    if onnx is not None:
        difference = export_onnx(load(run, round=round, device="cpu", trust_code=trust_code), onnx)
        echo(f"{onnx}: differs from torch by at most {difference:.0e}")
    if tensorboard is not None:
        folder = RunDir(run)
        folder.info()
        echo(f"{tensorboard}: {export_tensorboard(folder, tensorboard)} numbers")
