"""Invented people, places and firms, and dates and sums, for generated text."""

from __future__ import annotations

import random

FIRST_NAMES = (
    "Adela Agnes Alba Alma Amira Anton Arlo Arvid Asta Benno Berit Blanka Bram Bruno Carla Casper Celia Clara Conrad "
    "Cosima Dagny Daria Delia Dirk Dora Edda Edith Egon Elias Elin Elmar Elsa Emil Enno Erna Ester Eugen Fanny Felix "
    "Fenna Finn Flora Frida Gerda Gisela Greta Gustav Hanne Harald Hedda Heike Helmer Henrik Hilde Hugo Ida Ilse Imke "
    "Ingrid Irma Isak Ivo Jakob Janna Jarle Jette Johan Jonas Jorun Judith Jules Karin Kaspar Katja Kilian Klara Knut "
    "Lars Leander Lena Leonie Liv Lorenz Lotte Ludo Magda Malin Marek Margit Marlene Marten Mathis Mika Mina Moritz "
    "Nadia Nele Nils Nora Oda Olaf Oskar Otto Paula Petra Pia Quirin Ragna Ralf Rasmus Rike Rosa Ruben Runa Samuel "
    "Selma Sigrid Silje Simon Solveig Stella Sven Svea Tabea Tara Theo Thora Tilda Tomas Ulla Ulrik Vera Viktor Vilma "
    "Wanda Wenzel Wilma Xaver Yara Yorick Zelda Zora"
).split()
_FIRST = ("Al Ber Bran Brei Dal Dor Ebb El Fal Fen Gar Gold Hal Har Hol Ing Kel Kir Lan Lind Lor Mal Mar Mol Nor Ost "
          "Quel Rav Ren Ros Sand Sol Stein Sten Tal Thorn Ulm Val Ver Wal Wen West Wil Zan").split()  # fmt: skip
_MIDDLE = "a e i o el en er in on an ar or is ul".split()
_SURNAME_END = "berg bach by dahl den feld gren hall holm kamp lund mark mann ner nik sen sko son stad ter vik wald".split()
_TOWN_END = "bridge burg by dale field ford gate ham haven head hill holt lake marsh mere mouth port ridge side stead ton vale water wick wood".split()
MONTHS = "January February March April May June July August September October November December".split()
_FIRM_END = "and Sons;Brothers;and Company;Works;Partners;Trading;and Daughters;Holdings;Collective;Workshop".split(";")


def surname(draw: random.Random) -> str:
    return draw.choice(_FIRST) + draw.choice(_MIDDLE) * (draw.random() < 0.5) + draw.choice(_SURNAME_END)


def town(draw: random.Random) -> str:
    return draw.choice(_FIRST) + draw.choice(_MIDDLE) * (draw.random() < 0.5) + draw.choice(_TOWN_END)


def firm(draw: random.Random) -> str:
    return f"{surname(draw)} {draw.choice(_FIRM_END)}"


def person(draw: random.Random, key: str) -> dict[str, str]:
    """A person under `key`: full name, first and last name, and pronouns that agree."""
    first, last = draw.choice(FIRST_NAMES), surname(draw)
    she, her, hers = draw.choice((("she", "her", "her"), ("he", "him", "his")))
    return {key: f"{first} {last}", f"{key}_first": first, f"{key}_last": last, f"{key}_she": she, f"{key}_her": her,
            f"{key}_hers": hers}  # fmt: skip


def day(draw: random.Random, year: int) -> str:
    return f"{draw.randint(1, 28)} {draw.choice(MONTHS)} {year}"
