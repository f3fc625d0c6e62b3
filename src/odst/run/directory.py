"""The run directory: where each artefact lives. Files appear whole, and each round lists the hashes of its own.

config.toml      the resolved config: `odst run DIR` goes on from it
run.json         format, method, seed, classes, sets, versions
metrics.jsonl    one line per round
final.json       the round to use, and why the run ended
log.txt, timings.jsonl
pool/            the packed pool, where the config names sources that were not packed
round-T/         model.safetensors, logits.safetensors, selection.parquet, round.json (written last: the round is whole)
scratch/         the teacher's logits of the pool, and a round's training in progress: named by those who write them
"""

import hashlib
import json
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from safetensors import SafetensorError
from safetensors.numpy import load_file, save
from safetensors.torch import load as load_weights
from torch import nn

from odst.data.images import Data
from odst.errors import UserError
from odst.evaluation.scoring import Scored
from odst.files import digest, sha256, whole, write_json, write_text
from odst.method.labelling import Predictions, logits_file, read_logits, weights
from odst.progress import listening
from odst.run.config import CONFIG_FILE, Config, differing_keys, dump_config, read_config
from odst.run.journal import Timings, logging_to, read_timings
from odst.run.round_note import selection_summary, thresholds_from_json, thresholds_to_json
from odst.run.selection_file import Teacher, read_table, write_selection
from odst.self_training import Round
from odst.training.state import checkpoint_file

FORMAT = 1
LABELS = "labels/"  # in logits.safetensors, before the name of the set whose labels they are
ASIDE = re.compile(r".+\.old-\d+")  # the name of a run that --fresh has moved aside


@dataclass(frozen=True)
class RunDir:
    path: Path

    @property
    def scratch(self) -> Path:
        return self.path / "scratch"

    @property
    def pool(self) -> Path:
        return self.path / "pool"

    def round(self, t: int) -> Path:
        return self.path / f"round-{t}"

    # a run as a whole ------------------------------------------------------------------------------------------------------

    def begun(self) -> bool:
        """Whether there is a config to go on with; a run is there only when run.json is."""
        return (self.path / CONFIG_FILE).is_file()

    def exists(self) -> bool:
        return (self.path / "run.json").is_file()

    def open(self, config: Config, *, fresh: bool = False) -> bool:
        """Make the directory ready for `config`; True where a run with the same config is there to go on with."""
        if fresh and self.path.exists():
            self._move_aside()
        if not self.path.exists() or self._barely_begun(config):
            return False
        if not self.exists():
            raise UserError(
                f"{self.path}: this folder is not empty and holds no run. Choose another --out, or --fresh to move it aside."
            )
        self.info()
        keys = differing_keys(config, self.config())
        if keys:
            raise UserError(
                f"{self.path}: the run there has another config; these keys differ: {', '.join(keys)}. "
                "Choose another --out, or --fresh to move the old run aside."
            )
        return True

    def _barely_begun(self, config: Config) -> bool:
        """Nothing there but what a run writes before run.json: it was killed while it packed its pool or began."""
        mine = {CONFIG_FILE: dump_config(config).encode()}
        return all(
            file == self.pool
            or file.suffix == ".part"
            or (file.name in mine and file.is_file() and file.read_bytes() == mine[file.name])
            for file in self.path.iterdir()
        )

    def _move_aside(self) -> None:
        n = 1
        while (aside := self.path.with_name(f"{self.path.name}.old-{n}")).exists():
            n += 1
        self.path.rename(aside)

    def begin(self, config: Config, info: dict[str, Any]) -> None:
        write_text(self.path / CONFIG_FILE, dump_config(config))
        config_hash = sha256(self.path / CONFIG_FILE)
        write_json(self.path / "run.json", {"format": FORMAT, "config_hash": config_hash, **info})

    def info(self) -> dict[str, Any]:
        info = self._json("run.json")
        if info.get("format") != FORMAT:
            raise UserError(
                f"{self.path}: this run has format {info.get('format')}, and this odst reads format {FORMAT}. "
                "Use the odst that wrote it, or run it again with --fresh."
            )
        config = self.path / CONFIG_FILE
        if not config.exists() or sha256(config) != info.get("config_hash"):
            raise UserError(f"{config}: it has changed since the run began. Restore it, or start again with --fresh.")
        return info

    def config(self) -> Config:
        return read_config(str(self.path), {})

    def config_text(self) -> str:
        return (self.path / CONFIG_FILE).read_text(encoding="utf-8")

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Keep the log, and the time that each stage takes."""
        with logging_to(self.path / "log.txt"), listening(Timings(self.path / "timings.jsonl")):
            yield

    def timings(self) -> list[tuple[str, float, int]]:
        return read_timings(self.path / "timings.jsonl")

    def runs_beside(self) -> Iterator["RunDir"]:
        """The other runs in the same folder, without those that were moved aside."""
        for beside in sorted(self.path.resolve().parent.iterdir()):
            run = RunDir(beside)
            if beside != self.path.resolve() and not ASIDE.fullmatch(beside.name) and run.exists():
                yield run

    # rounds ----------------------------------------------------------------------------------------------------------------

    def rounds(self) -> list[int]:
        """The whole rounds, from 0 on."""
        t = 0
        while (self.round(t) / "round.json").exists():
            t += 1
        return list(range(t))

    def finished_rounds(self) -> list[int]:
        """The same for those who need at least one."""
        if not (there := self.rounds()):
            raise UserError(f"{self.path}: no round of this run is finished yet. Go on with `odst run {self.path}`.")
        return there

    def save_round(self, round_: Round, scored: Scored, data: Data, *, chosen_by_teacher: bool = True) -> None:
        """Write a round; round.json comes last. Its selection names the teacher of the round before, unless it was given."""
        folder, raw, teacher = self.round(round_.t), weights(round_.model), None
        if round_.t and chosen_by_teacher:
            note = self.note(round_.t - 1)
            teacher = Teacher(note["round"], note["model_hash"], thresholds_from_json(note["thresholds"]).tau)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        with whole(folder / "model.safetensors") as temporary:
            temporary.write_bytes(raw)
        labels = {"val_in": data.val_in.y} | ({} if data.test is None else {"test": data.test.y})
        arrays = scored.logits | {LABELS + name: np.asarray(y, np.int64) for name, y in labels.items()}
        with whole(folder / "logits.safetensors") as temporary:
            temporary.write_bytes(save({name: np.ascontiguousarray(array) for name, array in arrays.items()}))
        selection = None
        if round_.selection is not None:
            selection = selection_summary(round_.selection, data.classes, teacher)
            write_selection(folder / "selection.parquet", round_.selection, data, teacher)
        note = {
            "round": round_.t,
            "model_hash": hashlib.sha256(raw).hexdigest(),
            "temperature": round_.temperature,
            "thresholds": thresholds_to_json(round_.thresholds, data.classes),
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

    def logits(self, t: int) -> dict[str, np.ndarray]:
        """Of val_in, val_out, test and out/NAME, as far as the run has them."""
        arrays = load_file(self.round(t) / "logits.safetensors")
        return {name: array for name, array in arrays.items() if not name.startswith(LABELS)}

    def labels(self, t: int) -> dict[str, np.ndarray]:
        """Of val_in and, where there is one, test, row by row as in the logits; empty in a run of an older odst."""
        arrays = load_file(self.round(t) / "logits.safetensors")
        return {name.removeprefix(LABELS): y for name, y in arrays.items() if name.startswith(LABELS)}

    def selection(self, t: int) -> pa.Table | None:
        """What the student t was trained on; None for a base."""
        file = self.round(t) / "selection.parquet"
        return read_table(file) if t in self.rounds() and file.exists() else None

    def pool_predictions(self, t: int, temperature: float) -> Predictions | None:
        """What teacher t made of the pool, mapped from disk; None where its logits are not there, or not all."""
        logits = read_logits(logits_file(self.scratch, t))
        return None if logits is None else Predictions(logits, temperature)

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
        note, logits = self.note(t), self.logits(t)
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

    def finish(self, best: int, planned: int, stopped: str | None) -> None:
        """Write final.json: the round to use, and why the run ended."""
        metrics = self.metrics()
        final = {
            "round": best,
            "last_round": metrics[-1]["round"],
            "planned_rounds": planned,
            "stopped": stopped,
            "harmful_rounds": [one["round"] for one in metrics if one.get("harm")],
            "model": f"round-{best}/model.safetensors",
            "model_hash": self.note(best)["model_hash"],
            "val_error": metrics[best]["val_error"],
            "val_od_auroc": metrics[best]["val_od_auroc"],
        }
        write_json(self.path / "final.json", final)

    def final(self) -> dict[str, Any] | None:
        """final.json; None for a run that is not finished."""
        return self._json("final.json") if (self.path / "final.json").exists() else None

    def metrics(self) -> list[dict[str, Any]]:
        return [self._json(f"round-{t}/round.json")["metrics"] for t in self.rounds()]

    def tidy(self) -> None:
        """Bring metrics.jsonl up to date and drop what finished rounds and killed writers have left."""
        for t in self.rounds():
            checkpoint_file(self.scratch, t).unlink(missing_ok=True)
        for part in self.path.rglob(".*.part"):
            part.unlink()
        lines = [json.dumps(one, ensure_ascii=False, allow_nan=False) for one in self.metrics()]
        write_text(self.path / "metrics.jsonl", "".join(line + "\n" for line in lines))

    def _json(self, name: str) -> dict[str, Any]:
        file = self.path / name
        try:
            value = json.loads(file.read_text(encoding="utf-8"))
            if not isinstance(value, dict):
                raise ValueError("no object")
            return value
        except (FileNotFoundError, NotADirectoryError):
            raise UserError(
                f"{file}: this file is missing: {self.path} is no run directory, or not a whole one."
            ) from None
        except ValueError as error:
            raise UserError(
                f"{file}: this file is damaged ({error}). Restore it, or start again with --fresh."
            ) from None
