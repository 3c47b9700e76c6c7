"""Documents for log-probability metrics: from folders, files, archives and built-in texts, the same for all models."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest

from leadline.core.errors import SourceError
from leadline.core.types import Cell
from leadline.features.logprobs.tasks import LogProbs
from leadline.run.measure import measure, plan
from leadline.store.runs import read_records
from leadline.text.fitting import Fitter
from support.logprob_model import RuleLogprobModel, remembers, spec, use


def corpus_of(kind: str, folder: Path, texts: list[str]) -> str:
    if kind == "folder":
        for number, text in enumerate(texts):
            (folder / f"{number}.txt").write_text(text)
        return str(folder)
    if kind == "jsonl":
        lines = "\n".join(json.dumps({"id": i, "body": t}) for i, t in enumerate(texts))
        (folder / "texts.jsonl").write_text(lines)
        return str(folder / "texts.jsonl")
    (folder / "texts.json").write_text(json.dumps(texts))
    return str(folder / "texts.json")


@pytest.mark.parametrize("kind", ["folder", "jsonl", "list"])
def test_documents_come_from_folders_lines_and_lists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    use(monkeypatch, RuleLogprobModel(remembers))
    texts = [" ".join(f"w{document}.{n}" for n in range(size)) for document, size in enumerate((50, 120, 300, 400))]
    (tmp_path / "texts").mkdir()
    name = corpus_of(kind, tmp_path / "texts", texts)
    options = {"documents": name, "field": "body", "least": 100}
    measure(spec(options=options), tmp_path / "run")
    records = list(read_records(tmp_path / "run"))
    assert {r.body_tokens for r in records} == {120, 256}  # 50 tokens are passed over, 120 are used as they are
    assert {r.question.labels.get("short") for r in records if r.body_tokens == 120} == {"true"}
    assert len({r.cluster for r in records}) == 3
    with pytest.raises(SourceError, match="2 documents of 256 tokens or more"):
        plan(spec(options={**options, "whole": True}))


def test_a_corpus_that_cannot_be_read_says_what_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, RuleLogprobModel(remembers))
    (tmp_path / "a.jsonl").write_text('{"body": "one two"}\n')
    with pytest.raises(SourceError, match="no text field") as caught:
        plan(spec(options={"documents": str(tmp_path / "a.jsonl")}))
    assert "field=body" in str(caught.value)
    with pytest.raises(SourceError, match="there are no documents"):
        plan(spec(options={"documents": str(tmp_path / "missing")}))


def test_a_download_is_read_from_its_archive_and_asked_for_where_it_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LEADLINE_CACHE", str(tmp_path))
    use(monkeypatch, RuleLogprobModel(remembers))
    with pytest.raises(SourceError) as caught:
        plan(spec(options={"documents": "govreport"}))
    assert "leadline sources pull govreport" in caught.value.fix
    (tmp_path / "data").mkdir()
    with zipfile.ZipFile(tmp_path / "data" / "gov_report.zip", "w") as archive:
        for split in ("train", "validation"):
            lines = [json.dumps({"id": n, "input": " ".join(f"{split}{n}.{i}" for i in range(300))}) for n in range(3)]
            archive.writestr(f"gov_report/{split}.jsonl", "\n".join(lines))
    measure(spec(options={"documents": "govreport"}), tmp_path / "run")
    assert all("validation" in record.question.text for record in read_records(tmp_path / "run"))


def test_built_in_texts_are_cut_into_documents_that_share_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, RuleLogprobModel(lambda before, token: 1.0))
    measure(spec("mean_nll", samples=4, options={"documents": "prose"}), tmp_path / "run")
    records = list(read_records(tmp_path / "run"))
    assert all(r.body_tokens > 200 for r in records)
    assert len({r.sent.digest for r in records}) == 4


def test_documents_of_a_length_begin_as_those_of_another_and_a_seed_gives_others() -> None:
    def ids(length: int, seed: int, sample: int) -> list[int]:
        model = RuleLogprobModel(remembers)
        fitter = Fitter(model.tokenizer, model.frame, model.plain)
        document = LogProbs(least=64).document([Cell("g", length, 0.1, sample)], seed=seed, fitter=fitter)
        return [int(i) for i in document.ids]

    assert ids(512, 0, 0)[:256] == ids(256, 0, 0)
    assert len({tuple(ids(256, seed, sample)) for seed in (0, 1) for sample in (0, 1)}) == 4
