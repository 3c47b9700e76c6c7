"""The zoo: variants of one small model that differ only in what they make of far context.

A variant changes how positions are encoded (RoPE stretched in four ways), how far back a token sees (windows, with and
without the first tokens kept), or what is left of what it sees (quantised keys and values, evicted tokens, scrambled
positions). Weights are the same in all of them. "Far" is what stands before the stretch of `CHUNK` tokens being read
and the `near` tokens before that, as in caches that work block by block.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

CHUNK = 1024


@dataclass(frozen=True, slots=True)
class Variant:
    name: str
    rope: str = ""
    """linear:F, yarn:F, ntk:F (base stretched once) or dynamic:F (base stretched by the length being read)."""
    window: int = 0
    """Tokens before the stretch being read that are seen; 0: all."""
    sinks: int = 0
    """First tokens that are seen whatever the window (Xiao et al., arXiv 2309.17453)."""
    bits: int = 0
    """Of keys and values once they are in the cache, each token and head by itself; 0: as they are."""
    near: int = 1024
    """Tokens before the stretch being read that are left alone by what follows."""
    kept: float = 1.0
    """Share of far tokens that stay in the cache, drawn once."""
    scramble: int = 0
    """Far tokens stand up to so many places from where they were, drawn once."""

    @property
    def family(self) -> str:
        return self.name.partition(" ")[0]

    @property
    def changes_view(self) -> bool:
        return bool(self.window or self.bits or self.kept < 1 or self.scramble)

    def words(self) -> str:
        return ",".join(f"{k}={v}" for k, v in asdict(self).items() if k != "name")


BASE = "dynamic:2"
"""Of variants that change what is seen and not where it stands: up to the native window it changes nothing, and beyond
it the model goes on reading, so that there is something left to lose."""

ZOO = (
    Variant("native"),
    Variant("dynamic 2", rope="dynamic:2"),
    Variant("dynamic 4", rope="dynamic:4"),
    Variant("ntk 2", rope="ntk:2"),
    Variant("ntk 4", rope="ntk:4"),
    Variant("linear 1.1", rope="linear:1.1"),
    Variant("linear 1.25", rope="linear:1.25"),
    Variant("linear 2", rope="linear:2"),
    Variant("yarn 2", rope="yarn:2"),
    Variant("yarn 4", rope="yarn:4"),
    Variant("yarn 8", rope="yarn:8"),
    Variant("window 512", BASE, window=512),
    Variant("window 1k", BASE, window=1024),
    Variant("window 2k", BASE, window=2048),
    Variant("window 4k", BASE, window=4096),
    Variant("sinks 1k", BASE, window=1024, sinks=4),
    Variant("sinks 2k", BASE, window=2048, sinks=4),
    Variant("sinks 4k", BASE, window=4096, sinks=4),
    Variant("quantised 8", BASE, bits=8),
    Variant("quantised 4", BASE, bits=4),
    Variant("quantised 3", BASE, bits=3),
    Variant("quantised 2", BASE, bits=2),
    Variant("evicted 5%", BASE, kept=0.95),
    Variant("evicted 10%", BASE, kept=0.9),
    Variant("evicted 20%", BASE, kept=0.8),
    Variant("evicted 50%", BASE, kept=0.5),
    Variant("scrambled 4", BASE, scramble=4),
    Variant("scrambled 32", BASE, scramble=32),
    Variant("scrambled 256", BASE, scramble=256),
)


def named(names: list[str]) -> list[Variant]:
    known = {variant.name: variant for variant in ZOO}
    return [known[name] for name in names]
