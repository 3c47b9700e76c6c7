"""Documents of an exact length: pieces counted once per tokenizer, facts planted, one piece cut to size."""

from leadline.text.fitting.fitter import Fitter

__all__ = ["Fitter"]
