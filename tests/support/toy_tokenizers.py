"""Small trained tokenizers that split text the way the well-known families do."""

from __future__ import annotations

import atexit
import shutil
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from leadline.core.contracts import Tokenizer as AnyTokenizer
from leadline.text.sources import open_source
from leadline.text.tokenizers import open_tokenizer

FAMILIES = ("gpt2", "llama3", "llama2", "unigram", "digits")
_LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


_FOLDER = Path(mkdtemp(prefix="leadline-tests-"))
atexit.register(shutil.rmtree, _FOLDER, ignore_errors=True)


def _small(name: str, source: str, ending: str, pieces: int) -> str:
    """A file with a little of a built-in haystack, so that tokenizing it is fast."""
    path = _FOLDER / f"{name}{ending}"
    path.write_text("".join(open_source(source).filler(seed=0).bank.pieces[:pieces]))
    return str(path)


SMALL_PROSE = _small("prose", "python-docs", ".txt", 2200)
SMALL_CODE = _small("code", "python-code", ".py", 2400)
SMALL_HAYSTACKS = (SMALL_PROSE, SMALL_CODE, f"{SMALL_PROSE}:0.6,{SMALL_CODE}:0.4")


@cache
def toy_tokenizer(family: str) -> AnyTokenizer:
    """Trained once a process on Python's documentation and saved, so that it is read back as a user's file would be."""
    path = _FOLDER / family / "tokenizer.json"
    path.parent.mkdir()
    _train(family).save(str(path))
    return open_tokenizer(str(path))


def _train(family: str) -> Tokenizer:
    special = ["<|start|>", "<|end|>"]
    if family == "unigram":
        made = Tokenizer(models.Unigram())
        made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
        trainer: trainers.Trainer = trainers.UnigramTrainer(
            vocab_size=1200, special_tokens=["<unk>", *special], unk_token="<unk>"
        )
    elif family == "llama2":
        # Trained on words, then used on whole texts without any split, as the original is.
        made = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
        made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never")
        bytes_ = [f"<0x{i:02X}>" for i in range(256)]
        trainer = trainers.BpeTrainer(vocab_size=1500, special_tokens=["<unk>", *special, *bytes_], show_progress=False)
    else:
        made = Tokenizer(models.BPE())
        made.pre_tokenizer = _byte_level(family)
        made.decoder = decoders.ByteLevel()
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        trainer = trainers.BpeTrainer(
            vocab_size=1500, special_tokens=special, initial_alphabet=alphabet, show_progress=False
        )
    pieces = list(open_source("python-docs").filler(seed=0).bank.pieces[:800])
    made.train_from_iterator([*pieces, *[" \n"] * 200 * (family == "digits_and_breaks")], trainer)
    if family == "llama2":
        made.pre_tokenizer = None
        made.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    return made


def _byte_level(family: str) -> pre_tokenizers.PreTokenizer:
    if family == "llama3":
        split = pre_tokenizers.Split(Regex(_LLAMA3), behavior="isolated")
        return pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    plain = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    if family.startswith("digits"):  # digits_and_breaks, as SmolLM2's, has a token for a space and a line break
        return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), plain])
    return plain
