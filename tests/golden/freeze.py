"""How the frozen runs and tokenizers of the golden tests were made. Not run again: the tests ask that what was written
then is still read, and read to the same numbers.

    PYTHONPATH=tests .venv/bin/python tests/golden/freeze.py [NAME ...]
"""

from __future__ import annotations

import gzip
import json
import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from golden.doors import say
from golden.tools import FROZEN, TOKENIZERS, write_haystack

NIAH = ("niah", "--set", "haystack=noise")
GRID = ("--lengths", "512,1k,2k,4k", "--depths", "5", "--samples", "3")
TWO_TASKS = ("niah_single_1", "--task", "vt", "--lengths", "1k,2k,4k")
RULER_TASKS = (
    "niah_single_1 niah_single_2 niah_single_3 niah_multikey_1 niah_multikey_2 niah_multikey_3 niah_multivalue "
    "niah_multiquery vt cwe fwe qa_fiction_1 qa_fiction_2"
).split()

COMMANDS: dict[str, tuple[str, ...]] = {
    "fresh": (*NIAH, "--model", "sim:cliff?window=2k", *GRID),
    "middle": (*NIAH, "--model", "sim:lost-in-the-middle?window=1k", "--lengths", "512,1k,2k,4k", "--depths", "7",
               "--samples", "4"),
    "recency": (*NIAH, "--model", "sim:recency?window=1k", *GRID),
    "nested": (*NIAH, "--model", "sim:decay?window=1k", "--reading", "nested", "--lengths", "512,1k,2k", "--depths",
               "4", "--samples", "5"),
    "shared": (*NIAH, "--model", "sim:decay?window=2k", "--reading", "shared", *GRID),
    "until": (*NIAH, "--model", "sim:cliff?window=1200", "--lengths", "512,1k,2k,4k", "--depths", "3", "--samples",
              "20", "--until", "effective"),
    "until-cell": (*NIAH, "--model", "sim:decay?window=1k", "--lengths", "512,1k", "--depths", "2", "--samples", "30",
                   "--until", "cell +-0.25"),
    "proxies": ("proxies", "--model", "sim:decay?window=1k", "--lengths", "1k,2k", "--depths", "0.1,0.6", "--samples",
                "4", "--set", "short=256", "--set", "step=64"),
    "trap": ("trap", "--model", "sim:cliff?window=1k", "--lengths", "512,1k,2k", "--samples", "3", "--set",
             "haystack=noise", "--set", "least=256"),
    "chance": ("needle_chance", "--model", "sim:decay?window=1k", "--lengths", "1k,2k", "--depths", "4", "--samples",
               "2", "--set", "haystack=noise"),
    "ruler-quick": ("ruler-quick.toml", "--model", "sim:decay?window=2k"),
    "flaky": (*NIAH, "--model", "sim:flaky?rate=0.3", "--lengths", "512,1k", "--depths", "3", "--samples", "6",
              "--attempts", "1"),
    "memory": ("qa_fiction_1", "--model", "sim:decay?window=1k", "--lengths", "1k,2k", "--depths", "2", "--samples",
               "4", "--no-context"),
    "base": (*TWO_TASKS, "--model", "sim:decay?window=4k", "--depths", "3", "--samples", "5"),
    "candidate": (*TWO_TASKS, "--model", "sim:decay?window=2k", "--depths", "3", "--samples", "5"),
    **{
        f"model-{window}": (*TWO_TASKS, "--model", f"sim:decay?window={window}&seed={seed}", "--samples", "4", "--set",
                            "placement=anywhere")
        for seed, window in enumerate(("1k", "2k", "3k", "5k"))
    },
}  # fmt: skip
"""What was typed after `leadline run`."""

_LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def freeze_runs(wanted: list[str]) -> None:
    with TemporaryDirectory() as folder:
        os.chdir(folder)
        write_haystack(Path("golden-haystack.txt"))
        write_quick(Path("ruler-quick.toml"))
        for name in wanted or COMMANDS:
            code = say(["run", *COMMANDS[name], "--no-figure", "--out", name])
            assert code in (0, 1, 2, 3), (name, code)
            _freeze(Path(name), FROZEN / name)


def write_quick(path: Path) -> None:
    """The tasks of ruler-quick, with a text of our own where it has the prose that comes with Python."""
    prose = ("niah_single_2", "niah_single_3", "niah_multikey_1", "niah_multivalue", "niah_multiquery")
    lines = ['lengths = "1536,3k"', "depths = 2", "samples = 2", 'reading = "shared"']
    for task in RULER_TASKS:
        lines += ["[[tasks]]", f'name = "{task}"']
        lines += ['haystack = "golden-haystack.txt"'] if task in prose else []
        lines += ['placement = "anywhere"'] if task in ("cwe", "fwe") else []
    path.write_text("\n".join(lines) + "\n")


def _freeze(run: Path, place: Path) -> None:
    """Without the machine it was made on, and in the order of the cells."""
    place.mkdir(parents=True, exist_ok=True)
    manifest: dict[str, Any] = json.loads((run / "manifest.json").read_bytes())
    manifest["created"] = "2026-01-01T00:00:00+00:00"
    for session in manifest["sessions"]:
        session |= {"started": "2026-01-01T00:00:00+00:00", "ended": "2026-01-01T00:01:00+00:00", "command": "leadline",
                    "python": "3", "platform": "any", "cores": 1, "packages": {}}  # fmt: skip
    (place / "manifest.json").write_text(json.dumps(manifest, indent=1, ensure_ascii=True) + "\n")
    records = [json.loads(line) for line in (run / "records.jsonl").read_text().splitlines()]
    records.sort(key=lambda r: json.dumps(r["cell"], sort_keys=True))
    for number, record in enumerate(records):
        record |= {"started": 1_767_225_600.0 + number, "seconds": 0.5}
    text = "".join(json.dumps(record, ensure_ascii=True) + "\n" for record in records)
    (place / "records.jsonl.gz").write_bytes(gzip.compress(text.encode(), mtime=0))


def freeze_tokenizers() -> None:
    """Two that split differently: byte-level with a rule about words and digits, and one that merges across words."""
    TOKENIZERS.mkdir(exist_ok=True)
    with TemporaryDirectory() as folder:
        text = write_haystack(Path(folder) / "golden-haystack.txt").read_text().split("\n\n")
    text += [Path(__file__).read_text(), Path(__file__).with_name("tools.py").read_text()]

    split = pre_tokenizers.Split(Regex(_LLAMA3), behavior="isolated")
    byte_level = Tokenizer(models.BPE())
    byte_level.pre_tokenizer = pre_tokenizers.Sequence(
        [split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    byte_level.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=700, initial_alphabet=alphabet, show_progress=False)
    byte_level.train_from_iterator(text, trainer)
    byte_level.save(str(TOKENIZERS / "byte-level.json"), pretty=False)

    across = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    across.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never")
    special = ["<unk>", *(f"<0x{i:02X}>" for i in range(256))]
    trainer = trainers.BpeTrainer(vocab_size=700, special_tokens=special, show_progress=False)
    across.train_from_iterator(text, trainer)
    across.pre_tokenizer = None
    across.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    across.save(str(TOKENIZERS / "across-words.json"), pretty=False)


if __name__ == "__main__":
    if not sys.argv[1:]:
        freeze_tokenizers()
    freeze_runs(sys.argv[1:])
