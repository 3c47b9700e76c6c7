"""TensorBoard: event files with scalars by step, the figures and the verdict.

Event files can only grow, so each step has its own file in the folder of its series, and measuring a checkpoint again
replaces that file. The folder must not be the training's: TensorBoard reads the files of a folder in order and would
leave the training's behind.
"""

from __future__ import annotations

import struct
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar

from leadline.core.contracts import Tracker, TrackerEntry
from leadline.core.errors import MissingExtra, TrackerError
from leadline.core.files import expand_path


class TensorBoard(Tracker):
    """A log folder; each series of checkpoints gets a folder in it."""

    summary: ClassVar[str] = "TensorBoard: tensorboard:FOLDER, the folder that --logdir names"

    def check(self, destination: str) -> None:
        if find_spec("tensorboardX") is None:
            raise MissingExtra("tensorboardX", "tensorboard", where=f"tensorboard:{destination}")

    def write(self, destination: str, entry: TrackerEntry) -> str:
        self.check(destination)
        folder = expand_path(destination or "runs") / _folder_name(entry.name)
        try:
            _write(folder, entry)
        except OSError as error:
            raise TrackerError(
                f"TensorBoard: {error.strerror or error}", where=str(folder), fix="choose a writable folder"
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
            width, height = struct.unpack_from(">II", png, 16)  # the size in the IHDR chunk
            picture = Summary.Image(encoded_image_string=png, width=width, height=height, colorspace=4)
            summary = Summary(value=[Summary.Value(tag=f"leadline/{name}", image=picture)])
            writer.file_writer.add_summary(summary, entry.step, walltime=entry.at)
        facts = "\n".join(f"| {name} | `{text.replace('`', '')}` |" for name, text in entry.facts.items())
        text = f"{entry.verdict}\n\n| | |\n|---|---|\n{facts}"
        writer.add_text("leadline/verdict", text, entry.step, walltime=entry.at)
    # Within one second, the new file has the name of the old one and has replaced it.
    if set(folder.glob(f"events.out.tfevents.*{ending}")) > before:
        for old in before:
            old.unlink(missing_ok=True)


def _folder_name(name: str) -> str:
    """The name as one folder on every system."""
    plain = "".join(c if c.isalnum() or c in "-_.=" else "-" for c in name).strip("-.")
    return plain or "leadline"
