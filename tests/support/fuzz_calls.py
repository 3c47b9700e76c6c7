"""Command lines for fuzzing, drawn from a seed over good and damaged files."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path

from leadline.core import registry
from leadline.core.errors import UsageError
from leadline.core.lengths import parse_depths, parse_lengths
from leadline.core.spec import TaskSpec
from support.fuzz_files import ODD_TEMPLATES, ODD_TEXTS, ODD_VALUES, Damage


class CallWriter:
    """Draws one call at a time: the words of a command line, over good files of which some were damaged."""

    def __init__(self, good: Path, seed: int) -> None:
        self.good = good
        self.draw = random.Random(seed)
        self.damage = Damage(self.draw)
        self.kinds: list[tuple[int, Callable[[], list[str]]]] = [
            (14, self.report),
            (10, self.compare),
            (12, self.score),
            (4, self.rescore),
            (5, self.judge),
            (7, self.summarize),
            (6, self.correlate),
            (14, self.run),
            (10, self.plan),
            (6, self.build),
            (5, self.catalogue),
            (3, self.log),
            (3, self.watch),
            (2, self.view),
            (4, self.prompts),
            (4, self.words),
            (5, self.cards),
            (5, self.export),
            (4, self.certify),
            (3 if (good / "checkpoint").exists() else 0, self.follow),
            (2, self.doctor),
            (8, self.families),
            (6, self.corpus),
            (6, self.tokenizer),
            (3 if (good / "checkpoint").exists() else 0, self.checkpoint),
        ]

    def __call__(self) -> list[str]:
        """The words of a call. Files are written to the current folder, which is empty."""
        weights, kinds = zip(*self.kinds, strict=True)
        kind: Callable[[], list[str]] = self.draw.choices(kinds, weights)[0]
        return kind()

    def file(self, name: str, chance: float = 0.7) -> str:
        """A copy of a good file or folder, damaged by chance."""
        place, number = Path(name), 0
        while place.exists():
            number += 1
            place = Path(f"{number}", name)
        place.parent.mkdir(parents=True, exist_ok=True)
        source = self.good / name
        if source.is_dir():
            shutil.copytree(source, place)
        else:
            shutil.copy(source, place)
        while self.draw.random() < chance:
            if place.exists():
                self.damage.any_file_of(place)
            chance *= 0.4
        return str(place)

    def maybe(self, *words: str, chance: float = 0.3) -> list[str]:
        return list(words) if self.draw.random() < chance else []

    def odd(self) -> str:
        return self.draw.choice(ODD_TEXTS)

    def run_folder(self, chance: float = 0.8) -> str:
        return self.file(f"runs/{self.draw.choice(('base', 'base', 'candidate', 'logprobs'))}", chance)

    def report(self) -> list[str]:
        form = self.draw.choices(
            (["--json"], ["--markdown"], [], ["--data", "x.csv"], ["--data", self.odd(), "--json"]), (30, 1, 2, 1, 2)
        )[0]
        return [
            "report",
            *(self.run_folder() for _ in range(self.draw.choice((1, 1, 2)))),
            *form,
            *self.maybe("--failures", self.draw.choice(("zero", "excluded", "x"))),
        ]

    def compare(self) -> list[str]:
        gates = (
            "overall >= -1",
            "task:* >= -3",
            "length:1k >= -5",
            "effective >= -10%",
            "overall >= nan",
            "x",
            ";",
            "overall >= 1e400",
            "task:niah>=-2;overall>=0",
            self.odd(),
        )
        forms: tuple[list[str], ...] = (["--json"], ["--markdown"], ["--cells"], ["--junit", "x.xml"], [], ["--anyway"])
        return [
            "compare",
            self.file("runs/base"),
            self.file("runs/candidate"),
            *self.maybe("--gate", self.draw.choice(gates), chance=0.5),
            *self.draw.choice(forms),
            *self.maybe("--anyway", chance=0.7),
        ]

    def score(self) -> list[str]:
        name = self.draw.choice(("ruler", "longbench", "longbench-e", "longbench-v2", "infinitebench", "babilong"))
        other = self.draw.choice(("ruler", "longbench", "babilong", self.odd())) if self.draw.random() < 0.1 else name
        return [
            "score",
            self.file(name, 0.9),
            "--as",
            other,
            *self.maybe("--json"),
            *self.maybe("--compensated", chance=0.1),
        ]

    def rescore(self) -> list[str]:
        scorer = self.draw.choice(("match.all", "ruler.v1", f"{self.file('mine.py', 0.5)}:grade", self.odd()))
        return [
            "rescore",
            self.run_folder(),
            *self.maybe("--scorer", scorer, chance=0.7),
            *self.maybe("--only", "--json"),
        ]

    def judge(self) -> list[str]:
        if self.draw.random() < 0.4:
            truth = self.maybe("--truth", self.draw.choice(("truth", "a", self.odd())), chance=0.6)
            return ["agreement", self.file("raters.csv", 0.95), *truth, *self.maybe("--json")]
        judge = self.draw.choice(("sim:perfect?tokenizer=bytes", self.model(), self.odd()))
        labels = self.maybe("--labels", self.file("labels.csv", 0.9)) + self.maybe("--label", self.odd(), chance=0.1)
        return ["judge", self.run_folder(), *self.maybe("--with", judge, chance=0.7), *labels, *self.maybe("--json")]

    def summarize(self) -> list[str]:
        return [
            "summarize",
            self.file("table.csv", 0.9),
            *self.maybe("--threshold", self.odd()),
            *self.maybe("--share", self.odd()),
            *self.maybe("--json"),
        ]

    def correlate(self) -> list[str]:
        if self.draw.random() < 0.4:
            return [
                "correlate",
                "--tasks",
                self.file("tasks.csv", 0.95),
                "--resamples",
                self.draw.choice(("100", self.odd())),
            ]
        targets = self.file(self.draw.choice(("targets.json", "targets.csv")), 0.7)
        return [
            "correlate",
            self.file("submission.json", 0.7),
            targets,
            "--resamples",
            "100",
            *self.maybe("--metric", self.odd(), chance=0.2),
            *self.maybe("--seed", self.odd(), chance=0.1),
        ]

    def options(self) -> list[str]:
        """Options of run and plan, a few of them odd."""
        good = {"--lengths": "1k", "--depths": "2", "--samples": "1"}
        names = (
            "--lengths --depths --samples --reading --seed --workers --attempts --timeout --ray --set --until "
            "--out --model --task --step --run-name --shard --base"
        ).split()
        settings = "keys values queries haystack needle answers spread answer_tokens scorers x wording".split()
        for name in self.draw.sample(names, self.draw.choice((0, 1, 1, 2))):
            if name != "--ray":  # starts a cluster
                good[name] = f"{self.draw.choice(settings)}={self.odd()}" if name == "--set" else self.odd()
        if not is_small(good):
            good["--lengths"] = "1k"
        return [word for pair in good.items() for word in pair]

    def model(self) -> str:
        """A simulated model, or one that cannot be reached, with odd options."""
        keys = (
            "window high low strength slope noise seed rate limit tokenizer timeout base_url temperature extra "
            "api_key_env template max_tokens x"
        ).split()
        key = self.draw.choice(keys)
        value = self.odd().replace("&", "")
        if self.draw.random() < 0.25:
            address = self.draw.choice(
                ("http://127.0.0.1:9/v1", "http://[::1", "http://[", "ftp://x", "", "http://127.0.0.1:99999")
            )
            return f"openai:m?base_url={address}&tokenizer=bytes&window=9999&timeout=1&{key}={value}"
        name = self.draw.choice(("perfect", "cliff", "decay", "flaky", "middle", "floor", "x", "", self.odd()[:50]))
        return f"sim:{name}?tokenizer=bytes" + (
            f"&{key}={value}" if key != "latency_seconds" and self.draw.random() < 0.6 else ""
        )

    def run(self) -> list[str]:
        kind = self.draw.randrange(8)
        words = ["niah", "--model", self.model()]
        if kind == 0:
            words = [self.file("spec.toml", 0.95)]
        elif kind == 1:
            words = ["niah", "--models", self.file(self.draw.choice(("models.toml", "models.json")), 0.95)]
        elif kind == 2:
            words = ["niah", "--model", "sim:cliff?tokenizer=bytes", "--templates", self.file("templates.toml", 0.95)]
        elif kind == 3:
            words = [
                "niah",
                "--model",
                f"{self.file('mine.py', 0.5)}:{self.draw.choice(('generate', 'grade', 'x'))}?tokenizer=bytes",
            ]
        elif kind == 4:
            words = [
                self.draw.choice(("vt", "kv", "passkey", "fwe", "lines", self.odd())),
                "--model",
                "sim:decay?tokenizer=bytes",
            ]
        elif kind == 5:  # resumes a run that was damaged
            return ["run", "niah", "--model", "sim:a", "--out", self.run_folder(0.95), "--no-figure", *self.options()]
        return ["run", *words, "--no-figure", "--attempts", "1", *self.maybe("--json"), *self.options()]

    def plan(self) -> list[str]:
        return [
            "plan",
            *self.run()[1:],
            *self.maybe("--detect", self.odd()),
            *self.maybe("--price-in", self.odd()),
            *self.maybe("--noise-from", self.run_folder(0.9), "--detect", "5pt", chance=0.2),
        ]

    def build(self) -> list[str]:
        tokenizer = self.draw.choice(("bytes", "whitespace", "tokenizer", self.odd()))
        if tokenizer == "tokenizer":
            tokenizer = self.file("tokenizer", 0.8)
        return [
            "build",
            "niah",
            "-o",
            self.draw.choice(("x.jsonl", "x", self.odd())),
            "--tokenizer",
            tokenizer,
            *self.maybe("--chat"),
            *self.maybe("--as", "ruler"),
            *self.options()[:6],
        ]

    def catalogue(self) -> list[str]:
        kind = self.draw.choice(("tasks", "models", "sources", "suites"))
        name = self.draw.choice(("niah", "sim", "prose", "ruler", self.odd(), f"prose:{self.odd()},code:1"))
        if kind == "sources" and self.draw.random() < 0.7:
            name = self.file(self.draw.choice(("hay.txt", "hay.jsonl", "runs")), 0.9)
        words = ["--", name] if name.startswith("-") else [name, *self.maybe("--json")]
        return ["list", kind, "show", *words]

    def log(self) -> list[str]:
        to = self.draw.choice(("tensorboard:logs", "mlflow:file", "wandb:x?mode=offline", "x:y", self.odd()))
        return ["log", self.run_folder(), "--to", to, *self.maybe("--step", self.draw.choice(("auto", self.odd())))]

    def watch(self) -> list[str]:
        return ["watch", self.run_folder()]

    def view(self) -> list[str]:
        """Only what ends by itself: folders that are not there, and ports that cannot be used."""
        return ["view", self.odd().replace("..", "x") + "-", "--port", self.odd()]

    def prompts(self) -> list[str]:
        return [
            "run",
            "--prompts",
            self.file("prompts", 0.95),
            "--model",
            "sim:perfect?tokenizer=bytes",
            "--no-figure",
            "--attempts",
            "1",
        ]

    def corpus(self) -> list[str]:
        """Tasks that read a user's files."""
        text = self.file(self.draw.choice(("hay.jsonl", "hay.txt")), 0.95)
        if self.draw.random() < 0.1:
            self.damage.links_to(Path(text).parent)
            text = "**/*.txt"
        choices = {
            "mean_nll": [f"documents={text}", "least=100"],
            "niah": [f"haystack={text}"],
            "qa_1": [f"data={self.file('squad.json', 0.95)}"],
            "qa_2": [f"data={self.file('hotpot.json', 0.95)}"],
        }
        task = self.draw.choice(sorted(choices))
        settings = [word for value in choices[task] for word in ("--set", value)]
        field = self.maybe("--set", f"field={self.odd()}", chance=0.1)
        model = ["--model", "sim:decay?tokenizer=bytes", "--lengths", "1k", "--depths", "2", "--samples", "1"]
        return [self.draw.choice(("run", "plan")), task, *settings, *field, *model]

    def tokenizer(self) -> list[str]:
        """A model folder with a damaged tokenizer or chat template, or without weights."""
        folder = self.file("tokenizer", 0.8)
        config = Path(folder, "tokenizer_config.json")
        if config.is_file() and self.draw.random() < 0.4:
            values = {"chat_template": self.draw.choice(ODD_TEMPLATES), "bos_token": self.draw.choice(ODD_VALUES)}
            config.write_text(json.dumps(values))
        server = f"openai:m?base_url=http://127.0.0.1:9/v1&template={folder}&tokenizer={folder}"
        words = self.draw.choice(
            (
                ["plan", "niah", "--model", f"sim:perfect?tokenizer={folder}"],
                ["build", "niah", "-o", "x.jsonl", "--tokenizer", folder, "--chat"],
                ["build", "niah", "-o", "x.jsonl", "--model", server],
            )
        )
        return [*words, "--lengths", "1k", "--depths", "1", "--samples", "1"]

    def checkpoint(self) -> list[str]:
        """A damaged model in this process."""
        options = ["--set", "haystack=noise", "--lengths", "400", "--depths", "1", "--samples", "1"]
        return [self.draw.choice(("run", "plan")), "niah", "--model", f"hf:./{self.file('checkpoint', 0.9)}", *options]

    def cards(self) -> list[str]:
        if self.draw.random() < 0.4:
            published = self.maybe("--published", self.file("table.csv", 0.9))
            return ["board", self.run_folder(), *self.maybe(self.run_folder()), "-o", "site", *published]
        out = self.draw.choice(("x.svg", "x.png", "x", self.odd()))
        return [self.draw.choice(("card", "badge")), self.run_folder(), "-o", out]

    def export(self) -> list[str]:
        form = self.draw.choice(("every-eval-ever", "hf-eval-results", "inspect", "lm-eval", self.odd()))
        names = self.maybe("--model-id", self.odd()) + self.maybe("--dataset", self.draw.choice(("a/b", self.odd())))
        return ["export", self.run_folder(), "--as", form, *names]

    def certify(self) -> list[str]:
        """Two runs, or two simulated models over a small grid."""
        if self.draw.random() < 0.7:
            sides = [self.file("runs/base", 0.6), self.file("runs/candidate", 0.6)]
            return ["certify", *sides, *self.draw.choice(([], ["--markdown"], ["--json"]))]
        sides = ["sim:decay?tokenizer=bytes", self.model()]
        grid = ["--task", "niah", "--lengths", "1k", "--depths", "2", "--samples", "2"]
        return ["certify", *sides, *grid, *self.maybe("--detect", self.odd()), *self.maybe("--power", self.odd())]

    def follow(self) -> list[str]:
        """A folder with one damaged checkpoint."""
        folder = Path(self.file("checkpoint", 0.9))
        folder.rename("checkpoint-10")
        base = self.maybe("--base", self.run_folder(), chance=0.2)
        gate = self.maybe("--gate", self.draw.choice(("overall >= -2", self.odd())))
        spec = ["--spec", self.draw.choice(("niah", self.file("spec.toml", 0.9))), "--lengths", "512", "--samples", "1"]
        return ["follow", ".", *spec, "--once", "--settle", "0", "--poll", "0.1", *base, *gate, *self.maybe("--json")]

    def doctor(self) -> list[str]:
        checks = self.maybe("--check", self.draw.choice(("receipts", "logprobs", "template", self.odd())), chance=0.6)
        return [
            "doctor",
            "--model",
            self.model(),
            "--longest",
            self.draw.choice(("1k", self.odd())),
            *checks,
            "--quick",
        ]

    def families(self) -> list[str]:
        """Every family of tasks, with an odd value of one of its own options."""
        name = self.draw.choice(registry.names("tasks"))
        options = sorted(type(registry.task(TaskSpec(name=name))).model_fields)
        setting = self.maybe("--set", f"{self.draw.choice(options)}={self.odd()}", chance=0.6) if options else []
        length = self.draw.choice(("512", "1k", "2k"))
        grid = ["--lengths", length, "--depths", "1", "--samples", "1", "--no-figure", "--attempts", "1"]
        return ["run", name, "--model", "sim:decay?tokenizer=bytes", *grid, *setting]

    def words(self) -> list[str]:
        """Words that are not a command line."""
        first = self.draw.choice(("run", "plan", "report", "compare", "tasks", "score", "", self.odd()))
        return [
            first,
            *(
                self.draw.choice((self.odd(), "--json", "--limit", "-m", "--samples", "--help", "-x"))
                for _ in range(self.draw.randrange(4))
            ),
        ]


def is_small(options: dict[str, str]) -> bool:
    """Whether the grid of a run is small enough to be run here. What is refused is not counted."""
    try:
        lengths, depths = parse_lengths(options["--lengths"]), parse_depths(options["--depths"])
        samples = int(options["--samples"])
    except (UsageError, ValueError):
        return True
    return max(lengths, default=0) <= 4096 and len(depths) * samples * len(lengths) <= 64
