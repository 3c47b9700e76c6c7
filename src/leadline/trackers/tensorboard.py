"""TensorBoard: event files with scalars by step, the pictures and the verdict.

Each step has a file of its own under the line's folder, so that measuring a checkpoint again replaces its points:
event files can only grow. The folder must not be the one that the training writes to, since TensorBoard reads the
files of one folder one after the other and would leave the training's behind.
"""

from __future__ import annotations

import struct
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar

from leadline.core.errors import MissingExtra, TrackerError
from leadline.core.trackers import Tracker, TrackerEntry


class TensorBoard(Tracker):
    """A folder that TensorBoard is pointed at; a folder for each line of checkpoints is made in it."""

    summary: ClassVar[str] = "TensorBoard: tensorboard:FOLDER, the folder that --logdir names"

    def check(self, place: str) -> None:
        if find_spec("tensorboardX") is None:
            raise MissingExtra("tensorboardX", "tensorboard", where=f"tensorboard:{place}")

    def write(self, place: str, entry: TrackerEntry) -> str:
        self.check(place)
        folder = Path(place or "runs").expanduser() / _folder_name(entry.name)
        try:
            _write(folder, entry)
        except OSError as error:
            raise TrackerError(
                f"TensorBoard: {error.strerror or error}", where=str(folder), fix="name a folder that can be written to"
            ) from None
        return str(folder)


def _write(folder: Path, entry: TrackerEntry) -> None:
    from tensorboardX import SummaryWriter
    from tensorboardX.proto.summary_pb2 import Summary

    folder.mkdir(parents=True, exist_ok=True)
    ending = f".leadline-step-{entry.step}"
    before = set(folder.glob(f"events.out.tfevents.*{ending}"))
    with SummaryWriter(str(folder), filename_suffix=ending, write_to_disk=True) as writer:
        for name, value in entry.numbers.items():
            writer.add_scalar(name, value, entry.step, walltime=entry.at)
        for name, png in entry.figures.items():
            width, height = struct.unpack_from(">II", png, 16)  # a PNG says its size right after its first header
            picture = Summary.Image(encoded_image_string=png, width=width, height=height, colorspace=4)
            summary = Summary(value=[Summary.Value(tag=f"leadline/{name}", image=picture)])
            writer.file_writer.add_summary(summary, entry.step, walltime=entry.at)
        facts = "\n".join(f"| {name} | `{text.replace('`', '')}` |" for name, text in entry.facts.items())
        words = f"{entry.verdict}\n\n| | |\n|---|---|\n{facts}"
        writer.add_text("leadline/verdict", words, entry.step, walltime=entry.at)
    if set(folder.glob(f"events.out.tfevents.*{ending}")) > before:  # else the same second wrote over the same file
        for old in before:
            old.unlink(missing_ok=True)


def _folder_name(name: str) -> str:
    """A name that is one folder, wherever it is read."""
    kept = "".join(c if c.isalnum() or c in "-_.=" else "-" for c in name).strip("-.")
    return kept or "leadline"
