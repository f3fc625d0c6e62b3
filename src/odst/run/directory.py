"""The run directory: where each artefact lives. Files appear whole.

config.toml      the resolved config: `odst run DIR` goes on from it
run.json         format, method, seed, classes, sets, versions
metrics.jsonl    one line per round
final.json       the round to use, and why the run ended
forecast.json, log.txt, timings.jsonl: what `odst forecast` expected, what was said and how long it took
pool/            the packed pool, where the config names sources that were not packed
round-T/         a round: round_folder.py
labels-alone/, weight-W/, bases.json: kept like rounds, the labelled images' model and bases that were tried; which was taken
marks/, learnt/  what people said of its selections, as `odst review --serve` writes it; copies of the marks it learns from
scratch/         the teacher's logits of the pool, and a round's training in progress: named by those who write them
"""

import json
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from torch import nn

from odst.data.images import Data
from odst.errors import UserError
from odst.evaluation.scoring import Scored
from odst.files import digest, sha256, write_text
from odst.locks import FILE as LOCK_FILE
from odst.locks import is_lock
from odst.method.labelling import Predictions
from odst.method.stored import logits_folder, read_predictions
from odst.progress import listening
from odst.rounds import Round
from odst.run import round_folder
from odst.run.bases import ALONE, Base, read_bases
from odst.run.config import CONFIG_FILE, FORECAST_FILE, LEARNT, Config, differing_keys, dump_config, read_config
from odst.run.journal import Timings, logging_to, read_timings
from odst.run.round_note import thresholds_from_json
from odst.run.sealed import FORMAT, SEAL, UNSEALED, read_info, read_json, read_sealed, write_sealed
from odst.run.selection_file import Teacher
from odst.training.state import checkpoint_file

OWN_FILES = (CONFIG_FILE, "run.json", "metrics.jsonl", "final.json")
Which = int | str  # a round by its number, or the folder of another model that is kept like one
ASIDE = re.compile(r".+\.old-\d+")  # the name of a run that --fresh has moved aside


@dataclass(frozen=True)
class RunDir:
    path: Path
    trust_code: bool = False  # what its config names may be imported: run/trust.py

    @property
    def scratch(self) -> Path:
        return self.path / "scratch"

    @property
    def pool(self) -> Path:
        return self.path / "pool"

    @property
    def marks(self) -> Path:
        return self.path / "marks"

    def round(self, t: Which) -> Path:
        return self.path / (f"round-{t}" if isinstance(t, int) else t)

    # a run as a whole ------------------------------------------------------------------------------------------------------

    def begun(self) -> bool:
        """Whether there is a config to go on with; a run is there only when run.json is."""
        return (self.path / CONFIG_FILE).is_file()

    def exists(self) -> bool:
        return (self.path / "run.json").is_file()

    def open(self, config: Config) -> bool:
        """Whether a run with the same config is there to go on with; a directory with anything else in it is refused."""
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
        mine = {CONFIG_FILE: dump_config(config, self.path).encode()}
        return all(
            file in (self.pool, self.path / LEARNT)
            or file.suffix == ".part"
            or (is_lock(file) or file.name == FORECAST_FILE)
            or (file.name in mine and file.is_file() and file.read_bytes() == mine[file.name])
            for file in self.path.iterdir()
        )

    def move_aside(self) -> None:
        """Whatever is there, under another name; the lock that stands in it has no meaning there."""
        if all(is_lock(file) for file in self.path.iterdir()):
            return
        n = 1
        while (aside := self.path.with_name(f"{self.path.name}.old-{n}")).exists():
            n += 1
        self.path.rename(aside)
        (aside / LOCK_FILE).unlink(missing_ok=True)

    def begin(self, config: Config, info: dict[str, Any]) -> None:
        write_text(self.path / CONFIG_FILE, dump_config(config, self.path))
        config_hash = sha256(self.path / CONFIG_FILE)
        write_sealed(self.path / "run.json", {"format": FORMAT, "config_hash": config_hash, **info})

    def info(self) -> dict[str, Any]:
        """run.json, after checking that neither it nor the config has changed since the run began."""
        info = read_info(self.path / "run.json")
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
        while round_folder.is_whole(self.round(t)):
            t += 1
        return list(range(t))

    def finished_rounds(self) -> list[int]:
        """The same for those who need at least one."""
        if not (there := self.rounds()):
            raise UserError(f"{self.path}: no round of this run is finished yet. Go on with `odst run {self.path}`.")
        return there

    def save_round(self, round_: Round, scored: Scored, data: Data, *, chosen_by_teacher: bool = True) -> None:
        """Write a round. Its selection names the teacher of the round before, unless it was given."""
        teacher = None
        if round_.t and chosen_by_teacher:
            note = self.note(round_.t - 1)
            teacher = Teacher(note["round"], note["model_hash"], thresholds_from_json(note["thresholds"]).tau)
        before = round_folder.read_note(self.round(round_.t - 1))["model_hash"] if round_.t else None
        round_folder.write_round(self.round(round_.t), round_, scored, data, teacher, before=before, run=self.bond())
        self.tidy()

    def note(self, t: Which) -> dict[str, Any]:
        """round.json, after checking that no file of the round has changed since it was written."""
        self._check_place(t)
        return round_folder.read_note(self.round(t))

    def _check_place(self, t: Which) -> dict[str, Any]:
        """The note of a round, if it is of this run and its classes, and follows the round before it."""
        bonds: dict[str, Any] = {"run": self.bond()}
        if isinstance(t, int):
            before = round_folder.read_note(self.round(t - 1), files=False)["model_hash"] if t else None
            bonds |= {"round": t, "before": before}
        note = round_folder.read_note(self.round(t), files=False)
        round_folder.check_bonds(self.round(t), note, self.info()["classes"], **bonds)
        return note

    def bond(self) -> str:
        """What every round's note says of the run that it belongs to."""
        return digest(self.info())

    def logits(self, t: Which) -> dict[str, np.ndarray]:
        """Of val_in, val_out, test and out/NAME, as far as the run has them."""
        return round_folder.read_arrays(self.round(t))[0]

    def labels(self, t: Which) -> dict[str, np.ndarray]:
        """Of val_in and, where there is one, test, row by row as in the logits; empty in a run of an older odst."""
        return round_folder.read_arrays(self.round(t))[1]

    def selection(self, t: int) -> pa.Table | None:
        """What the student t was trained on; None for a base."""
        return round_folder.read_selected(self.round(t)) if t in self.rounds() else None

    def selection_table(self, t: int) -> pa.Table:
        """The same with every column: sources, hashes, thresholds, reasons."""
        return round_folder.read_selected(self.round(t), every=True)

    def pool_predictions(self, t: int, temperature: float) -> Predictions | None:
        """What teacher t made of the pool, mapped from disk; None where its logits are not there, or not all."""
        return read_predictions(logits_folder(self.scratch, t), temperature)

    def load_model(self, t: Which, model: nn.Module) -> nn.Module:
        """The weights of round t, into a model of the run's network."""
        return round_folder.read_model(self.round(t), model)

    def load_round(self, t: int, model: nn.Module) -> tuple[Round, Scored]:
        """A finished round to go on from; its selection is not needed for that."""
        self._check_place(t)
        return round_folder.read_round(self.round(t), model)

    def bases(self) -> list[Base]:
        """Labels alone and what was tried, in the order of it; none for a run with a single base."""
        return read_bases(self.path)

    def finish(self, best: int, planned: int, stopped: str | None, use: Which | None = None, alone: Any = None) -> None:
        """Write final.json: the best round, the model to `use` (that round, or labels-alone), and why the run ended."""
        metrics, use = self.metrics(), best if use is None else use
        used = self.note(use)
        final = {
            "use": use,
            "round": best,
            "last_round": metrics[-1]["round"],
            "planned_rounds": planned,
            "stopped": stopped,
            "harmful_rounds": [one["round"] for one in metrics if one.get("harm")],
            "model": round_folder.model_file(self.round(use)).relative_to(self.path).as_posix(),
            "model_hash": used["model_hash"],
            "val_error": used["metrics"]["val_error"],
            "val_od_auroc": used["metrics"]["val_od_auroc"],
            **({} if alone is None else {"labels_alone": alone}),
        }
        self._write_final(final)

    def _write_final(self, final: dict[str, Any]) -> None:
        """With the certificates that people's marks have given its rounds, in words: how sure, who looked, class by class."""
        audits = {str(t): audit["certificate"] for t in self.rounds() if (audit := self.audit(t)) is not None}
        write_sealed(self.path / "final.json", final | ({"certificates": audits} if audits else {}))

    def audit_file(self, t: int) -> Path:
        return self.round(t) / "audit.json"

    def audit(self, t: int) -> dict[str, Any] | None:
        """What people's marks certify of round t's selection; None where nobody has."""
        if not self.audit_file(t).exists():
            return None
        found = read_sealed(self.audit_file(t), "Delete it, then give the marks to `odst audit` again.")
        return {"certificate": found["words"], **found}  # an older odst did not say there who looked

    def save_audit(self, t: int, found: dict[str, Any]) -> None:
        write_sealed(self.audit_file(t), found)
        if (final := self.final()) is not None:
            self._write_final(final)

    def final(self) -> dict[str, Any] | None:
        """final.json, after checking that it is about the rounds that are there; None for a run that is not finished."""
        file = self.path / "final.json"
        if not file.exists():
            return None
        final, there = read_json(file), self.rounds()
        sealed = self.info()["format"] == UNSEALED or final.pop(SEAL, None) == digest(final)
        best = final.get("round")
        use: Any = final.get("use", best)  # an older odst knew of rounds only
        known = type(best) is int and best in there and final.get("last_round") == there[-1] and use in (best, ALONE)
        if not sealed or not known or final.get("model_hash") != self._check_place(use)["model_hash"]:
            raise UserError(
                f"{file}: it does not fit the rounds of this run. `odst run {self.path}` writes it, or what is missing, again."
            )
        return final

    def metrics(self) -> list[dict[str, Any]]:
        return [self._check_place(t)["metrics"] for t in self.rounds()]

    def tidy(self) -> None:
        """Bring metrics.jsonl up to date and drop what finished rounds and killed writers have left."""
        for t in self.rounds():
            checkpoint_file(self.scratch, t).unlink(missing_ok=True)
        for name in (one.name for one in self.bases() if one.name):
            shutil.rmtree(self.scratch / name, ignore_errors=True)
        own = (self.path.glob(f".{name}.*.part") for name in OWN_FILES)  # a page may be being written beside them
        for part in (*chain.from_iterable(own), *self.path.glob("*-*/.*.part"), *self.scratch.rglob(".*.part")):
            part.unlink(missing_ok=True)
        lines = [json.dumps(one, ensure_ascii=False, allow_nan=False) for one in self.metrics()]
        write_text(self.path / "metrics.jsonl", "".join(line + "\n" for line in lines))
