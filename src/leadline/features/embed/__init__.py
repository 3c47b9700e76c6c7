"""Short evaluations inside long documents: items of the user's or generated, and what they lose by length and depth."""
