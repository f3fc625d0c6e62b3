"""odst export."""

from pathlib import Path
from typing import Annotated

import typer

from odst.cli import app


@app.command()
def export(
    run: Annotated[Path, typer.Argument(help="A run directory.")],
    onnx: Annotated[Path | None, typer.Option(help="The classifier as an ONNX file. Needs odst[onnx].")] = None,
    tensorboard: Annotated[
        Path | None,
        typer.Option(help="The run's numbers as TensorBoard events in this folder. Needs odst[tensorboard]."),
    ] = None,
    round: Annotated[int | None, typer.Option(help="Another round than the final one, for --onnx.")] = None,
) -> None:
    """Hand a run to other tools: ONNX with normalisation, temperature and softmax inside, or TensorBoard events.

    Example: odst export runs/first --onnx classifier.onnx
    """
    from odst.classifier.export import export_onnx, export_tensorboard
    from odst.classifier.load import load
    from odst.errors import UserError
    from odst.run.directory import RunDir

    if onnx is None and tensorboard is None:
        raise UserError("export: nothing to write. Give --onnx FILE or --tensorboard FOLDER.")
    if onnx is not None:
        difference = export_onnx(load(run, round=round, device="cpu"), onnx)
        typer.echo(f"{onnx}: differs from torch by at most {difference:.0e}")
    if tensorboard is not None:
        folder = RunDir(run)
        folder.info()
        typer.echo(f"{tensorboard}: {export_tensorboard(folder, tensorboard)} numbers")
