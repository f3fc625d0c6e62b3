"""The run directory: where each artefact lives. Files appear whole, and each round lists the hashes of its own.

config.toml      the resolved config: `odst run DIR` goes on from it
run.json         format, method, seed, classes, sets, versions
metrics.jsonl    one line per round
final.json       the round to use, and why the run ended
log.txt, timings.jsonl
round-T/         model.safetensors, logits.safetensors, selection.parquet, round.json (written last: the round is whole)
scratch/         the teacher's logits of the pool, and a round's training in progress
"""

import hashlib
import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from safetensors import SafetensorError
from safetensors.numpy import load_file, save
from safetensors.torch import load as load_weights
from torch import nn

from odst.data.images import Data
from odst.errors import UserError
from odst.evaluation.scoring import Scored
from odst.files import digest, sha256, whole, write_json, write_text
from odst.method.labelling import weights
from odst.method.selection import Selection, Thresholds
from odst.run.config import Config, differing_keys, dump_config, read_config
from odst.self_training import Round

FORMAT = 1


@dataclass(frozen=True)
class RunDir:
    path: Path

    @property
    def scratch(self) -> Path:
        return self.path / "scratch"

    def round(self, t: int) -> Path:
        return self.path / f"round-{t}"

    # a run as a whole ------------------------------------------------------------------------------------------------------

    def open(self, config: Config, *, fresh: bool = False) -> bool:
        """Make the directory ready for `config`; True where a run with the same config is there to go on with."""
        if fresh and self.path.exists():
            self._move_aside()
        if not self.path.exists() or self._barely_begun(config):
            return False
        if not (self.path / "run.json").exists():
            raise UserError(
                f"{self.path}: this folder is not empty and holds no run. Choose another --out, or --fresh to move it aside."
            )
        self.info()
        keys = differing_keys(config, read_config(str(self.path), {}))
        if keys:
            raise UserError(
                f"{self.path}: the run there has another config; these keys differ: {', '.join(keys)}. "
                "Choose another --out, or --fresh to move the old run aside."
            )
        return True

    def _barely_begun(self, config: Config) -> bool:
        """Nothing there but what a run writes before run.json: it was killed while it packed its pool or began."""
        mine = {"config.toml": dump_config(config)}
        return all(
            file.name == "pool"
            or file.suffix == ".part"
            or (file.is_file() and file.read_text() == mine.get(file.name))
            for file in self.path.iterdir()
        )

    def _move_aside(self) -> None:
        n = 1
        while (aside := self.path.with_name(f"{self.path.name}.old-{n}")).exists():
            n += 1
        self.path.rename(aside)

    def begin(self, config: Config, info: dict[str, Any]) -> None:
        write_text(self.path / "config.toml", dump_config(config))
        config_hash = sha256(self.path / "config.toml")
        write_json(self.path / "run.json", {"format": FORMAT, "config_hash": config_hash, **info})

    def info(self) -> dict[str, Any]:
        info = self._json("run.json")
        if info.get("format") != FORMAT:
            raise UserError(
                f"{self.path}: this run has format {info.get('format')}, and this odst reads format {FORMAT}. "
                "Use the odst that wrote it, or run it again with --fresh."
            )
        config = self.path / "config.toml"
        if not config.exists() or sha256(config) != info.get("config_hash"):
            raise UserError(f"{config}: it has changed since the run began. Restore it, or start again with --fresh.")
        return info

    def config(self) -> Config:
        return read_config(str(self.path), {})

    # rounds ----------------------------------------------------------------------------------------------------------------

    def rounds(self) -> list[int]:
        """The whole rounds, from 0 on."""
        t = 0
        while (self.round(t) / "round.json").exists():
            t += 1
        return list(range(t))

    def save_round(self, round_: Round, scored: Scored, data: Data, teacher: dict[str, Any] | None) -> None:
        """Write a round; `teacher` is the round.json of the teacher that selected for it. round.json comes last."""
        folder = self.round(round_.t)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        raw = weights(round_.model)
        with whole(folder / "model.safetensors") as temporary:
            temporary.write_bytes(raw)
        with whole(folder / "logits.safetensors") as temporary:
            temporary.write_bytes(save({name: np.ascontiguousarray(z) for name, z in scored.logits.items()}))
        selection = None
        if round_.selection is not None:
            selection = selection_summary(round_.selection, data.classes, teacher)
            write_selection(folder / "selection.parquet", round_.selection, data, teacher)
        note = {
            "round": round_.t,
            "model_hash": hashlib.sha256(raw).hexdigest(),
            "temperature": round_.temperature,
            "thresholds": _thresholds_to_json(round_.thresholds, data.classes),
            "selection": selection,
            "metrics": scored.metrics,
            "files": {file.name: sha256(file) for file in sorted(folder.iterdir())},
        }
        write_json(folder / "round.json", note | {"digest": digest(note)})
        self.tidy()

    def note(self, t: int) -> dict[str, Any]:
        """round.json, after checking that no file of the round has changed since it was written."""
        note = self._json(f"round-{t}/round.json")
        if note.pop("digest", None) != digest(note):
            raise UserError(
                f"{self.round(t) / 'round.json'}: this file is damaged. Restore it, or start again with --fresh."
            )
        for name, hash_ in note["files"].items():
            file = self.round(t) / name
            if not file.exists():
                raise UserError(f"{file}: this file of round {t} is missing. Restore it, or start again with --fresh.")
            if sha256(file) != hash_:
                raise UserError(
                    f"{file}: this file has changed since the run wrote it. Restore it, or start again with --fresh."
                )
        return note

    def load_model(self, t: int, model: nn.Module) -> nn.Module:
        """The weights of round t, into a model of the run's network."""
        file = self.round(t) / "model.safetensors"
        try:
            model.load_state_dict(load_weights(file.read_bytes()))
        except (SafetensorError, RuntimeError, OSError) as error:
            raise UserError(
                f"{file}: these weights do not fit the run's network ({error}). Start again with --fresh."
            ) from None
        return model

    def load_round(self, t: int, model: nn.Module) -> tuple[Round, Scored]:
        """A finished round to go on from; its selection is not needed for that."""
        note = self.note(t)
        logits = load_file(self.round(t) / "logits.safetensors")
        round_ = Round(
            t=t,
            model=self.load_model(t, model),
            temperature=note["temperature"],
            thresholds=thresholds_from_json(note["thresholds"]),
            selection=None,
            logits_in=logits["val_in"],
            logits_out=logits.get("val_out"),
        )
        return round_, Scored(note["metrics"], logits)

    def final(self) -> dict[str, Any] | None:
        """final.json; None for a run that is not finished."""
        return self._json("final.json") if (self.path / "final.json").exists() else None

    def metrics(self) -> list[dict[str, Any]]:
        return [self._json(f"round-{t}/round.json")["metrics"] for t in self.rounds()]

    def tidy(self) -> None:
        """Bring metrics.jsonl up to date and drop what finished rounds and killed writers have left."""
        for t in self.rounds():
            (self.scratch / f"train-{t}.safetensors").unlink(missing_ok=True)
        for part in self.path.rglob(".*.part"):
            part.unlink()
        lines = [json.dumps(one, ensure_ascii=False, allow_nan=False) for one in self.metrics()]
        write_text(self.path / "metrics.jsonl", "".join(line + "\n" for line in lines))

    def _json(self, name: str) -> dict[str, Any]:
        try:
            value = json.loads((self.path / name).read_text(encoding="utf-8"))
        except (FileNotFoundError, NotADirectoryError):
            raise UserError(
                f"{self.path / name}: this file is missing: {self.path} is no run directory, or not a whole one."
            ) from None
        except ValueError as error:
            raise UserError(
                f"{self.path / name}: this file is damaged ({error}). Restore it, or start again with --fresh."
            ) from None
        if not isinstance(value, dict):
            raise UserError(
                f"{self.path / name}: this file is damaged (no object). Restore it, or start again with --fresh."
            )
        return value


# the parts of round.json -----------------------------------------------------------------------------------------------------


def _number(value: float) -> float | str:
    return (
        float(value) if np.isfinite(value) else str(value)
    )  # JSON has no infinity: "inf" closes a class, "-inf" opens it


def _thresholds_to_json(tau: Thresholds, classes: tuple[str, ...]) -> dict[str, Any]:
    return {
        name: {
            "log_odds": _number(tau.tau[c]),
            "in": _number(tau.inside[c]),
            "in_above": int(tau.in_above[c]),
            "in_right": int(tau.in_right[c]),
            "out": _number(tau.outside[c]),
            "out_above": int(tau.out_above[c]),
        }
        for c, name in enumerate(classes)
    }


def thresholds_from_json(values: dict[str, Any]) -> Thresholds:
    def column(key: str, kind: type) -> np.ndarray:
        return np.array([kind(one[key]) for one in values.values()])

    return Thresholds(
        column("in", float),
        column("in_above", int),
        column("in_right", int),
        column("out", float),
        column("out_above", int),
    )


def selection_summary(I: Selection, classes: tuple[str, ...], teacher: dict[str, Any] | None) -> dict[str, Any]:
    """`selection` of round.json: the cap, who chose, and per class how many lay above, were used, and stand in I."""
    used = np.bincount(I.classes, minlength=len(classes))
    copies = np.bincount(I.classes, weights=I.copies, minlength=len(classes)).astype(int)
    rows = {
        name: {"above": int(I.above[c]), "used": int(used[c]), "entries": int(copies[c]), "stop": I.stop[c]}
        for c, name in enumerate(classes)
    }
    return {"k": I.k, "teacher": None if teacher is None else teacher["round"], "classes": rows}


SELECTION = pa.schema(
    {
        "pool_id": pa.int64(),
        "source": pa.string(),
        "content_hash": pa.string(),
        "class": pa.string(),
        "log_odds": pa.float64(),
        "probability": pa.float64(),
        "threshold": pa.float64(),
        "repeats": pa.int64(),
        "reason": pa.string(),
        "model_hash": pa.string(),
    }
)


def write_selection(file: Path, I: Selection, data: Data, teacher: dict[str, Any] | None) -> None:
    """selection.parquet: what was selected and why, so that it can be re-applied to another copy of the pool. `repeats` is how
    often the image stands in I; `threshold` is the teacher's, in log-odds like `log_odds`."""
    assert data.pool is not None
    names = np.array(data.classes, dtype=object)
    tau = np.full(data.K, np.nan)
    if teacher is not None:
        tau = thresholds_from_json(teacher["thresholds"]).tau
    reasons = np.array([stop.split(":")[0] for stop in I.stop], dtype=object)
    why = {
        "full": "among the k most confident above the threshold",
        "short": "above the threshold",
        "given": "given in a file",
    }
    columns = [
        I.ids,
        list(data.pool.source(I.ids)),
        list(data.pool.content_hash(I.ids)),
        list(names[I.classes]),
        I.log_odds,
        1 / (1 + np.exp(-I.log_odds)),
        tau[I.classes],
        I.copies,
        [why[reason] for reason in reasons[I.classes]],
        [None if teacher is None else teacher["model_hash"]] * len(I),
    ]
    table = pa.Table.from_arrays(
        [pa.array(c, type=f.type) for c, f in zip(columns, SELECTION, strict=True)], schema=SELECTION
    )
    with whole(file) as temporary:
        pq.write_table(table, temporary)
