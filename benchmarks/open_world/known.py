"""What earlier calls have finished, so that it is not run again."""

import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.open_world.jobs import Job, identity, jobs
from benchmarks.open_world.peers import peers, settings_for
from odst.errors import UserError

Rows = list[dict[str, Any]]


def known_jobs(file: Path, smoke: bool = False) -> dict[str, Rows]:
    """Rows of finished jobs by the job's name; those of a job that there is no more are left out."""
    if not file.exists():
        raise UserError(f"--known: there is no file {file}. Leave it out to run everything.")
    found = by_job(json.loads(file.read_text()))
    ours = {str(job): identity(job) for job in jobs()}
    theirs = {str(job): job for job in peers()}
    for name, rows in found.items():
        for row in rows:
            same = (
                row.get("config") == ours[name]
                if name in ours
                else row["settings"] == asdict(settings_for(theirs[name], row["images"], smoke))
            )
            if not same:
                raise UserError(
                    f"{file}: its {name} was made with other settings. Take its rows out, and it is run anew."
                )
    return found


def by_job(rows: Rows) -> dict[str, Rows]:
    """The rows of every job that there is, in the order of the jobs."""
    found: dict[str, Rows] = {str(job): [] for job in every()}
    for row in rows:
        name = f"{row['share']}/{row['method']}/{row['seed']}"
        if name in found:
            found[name].append(row)
    return {name: own for name, own in found.items() if own}


def every() -> Iterable[Job]:
    return (*jobs(), *peers())
