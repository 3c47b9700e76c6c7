"""Needles and key-value pairs in German, French and Spanish: texts and keys of our own, with a haystack each.

OneRuler (arXiv 2503.01996) finds that the language of the instructions alone moves scores by up to 20 points. The
wordings here were written in each language, not translated word for word, so that articles and genders are right.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from leadline.core.seeds import Split
from leadline.core.types import ValueKind
from leadline.tasks.wording import PromptPart, WordedTask
from leadline.tasks.words import WORDS, draw_new_pair

Language = Literal["", "de", "fr", "es"]


@dataclass(frozen=True, slots=True)
class LanguageTexts:
    """What `niah` and `kv` say in one language. `forms` has the words for a value by placeholder, for each kind."""

    haystack: str
    instruction: str
    needles: tuple[str, ...]
    questions: tuple[str, ...]
    prefix: str
    reminder: str
    pairs_instruction: str
    pairs_question: str
    pairs_prefix: str
    forms: Mapping[ValueKind, Mapping[str, str]]
    nouns: tuple[str, ...]

    @property
    def placeholders(self) -> tuple[str, ...]:
        return tuple(self.forms["numbers"])

    def draw_key(self, draw: random.Random, taken: set[str], split: Split) -> str:
        """Two nouns of the language, such as Hafen-Laterne, that are not in `taken`; the pair is added to `taken`."""
        return draw_new_pair(self.nouns, self.nouns, draw, taken, split)


LANGUAGES: dict[str, LanguageTexts] = {
    "de": LanguageTexts(
        haystack="german",
        instruction="Im folgenden Text werden {kinds} genannt, die zu bestimmten Namen gehören. Lies ihn und merke dir "
        "die {kinds}; danach folgt eine Frage dazu.\n\n",
        needles=(
            "{The} für {key} lautet {value}.",
            "Im Verzeichnis steht neben {key} {the} {value}.",
            "Wer nach {key} fragt, soll {them} {value} bekommen.",
            "Man beachte, dass {key} {them} {value} erhalten hat.",
            "Das Hafenamt führt {key} unter {under} {value}.",
        ),
        questions=(
            "\n\nFrage: {Which} gehört zu {key}?",
            "\n\nFrage: Wie lautet {the} von {key}?",
            "\n\nFrage: {Which} steht laut Text bei {key}?",
        ),
        prefix="{The} von {key} lautet",
        reminder="\n\nBeantworte jetzt die Frage, die vor dem Text gestellt wurde.",
        pairs_instruction="Unten steht ein Ausschnitt eines JSON-Objekts, auf jeder Zeile ein Schlüssel mit seinem "
        "Wert. Danach folgt eine Frage dazu.\n\n",
        pairs_question='\n\nFrage: Welchen Wert hat der Schlüssel "{key}"?',
        pairs_prefix='Der Wert von "{key}" ist',
        forms={
            "numbers": {
                "kinds": "Zahlen", "the": "die Zahl", "The": "Die Zahl", "them": "die Zahl", "under": "der Zahl",
                "Which": "Welche Zahl",
            },
            "words": {
                "kinds": "Wörter", "the": "das Wort", "The": "Das Wort", "them": "das Wort", "under": "dem Wort",
                "Which": "Welches Wort",
            },
            "uuids": {
                "kinds": "Codes", "the": "der Code", "The": "Der Code", "them": "den Code", "under": "dem Code",
                "Which": "Welcher Code",
            },
        },
        nouns=WORDS["german nouns"],
    ),
    "fr": LanguageTexts(
        haystack="french",
        instruction="Le texte ci-dessous mentionne des {kinds} qui appartiennent à certains noms. Lis-le et retiens "
        "les {kinds} ; une question suivra.\n\n",
        needles=(
            "Le {kind} réservé à {key} est {value}.",
            "Dans le registre, {key} figure à côté du {kind} {value}.",
            "À qui demande {key}, il faut donner le {kind} {value}.",
            "Notons que {key} a reçu le {kind} {value}.",
            "La capitainerie a classé {key} sous le {kind} {value}.",
        ),
        questions=(
            "\n\nQuestion : Quel {kind} correspond à {key} ?",
            "\n\nQuestion : Quel est le {kind} qui va avec {key} ?",
            "\n\nQuestion : D'après le texte, quel {kind} appartient à {key} ?",
        ),
        prefix="Le {kind} de {key} est",
        reminder="\n\nRéponds maintenant à la question posée avant le texte.",
        pairs_instruction="Voici un extrait d'un objet JSON, une clef avec sa valeur sur chaque ligne. Une question "
        "suivra.\n\n",
        pairs_question='\n\nQuestion : Quelle est la valeur de la clef "{key}" ?',
        pairs_prefix='La valeur de "{key}" est',
        forms={
            "numbers": {"kind": "nombre", "kinds": "nombres"},
            "words": {"kind": "mot", "kinds": "mots"},
            "uuids": {"kind": "code", "kinds": "codes"},
        },
        nouns=WORDS["french nouns"],
    ),
    "es": LanguageTexts(
        haystack="spanish",
        instruction="El texto siguiente menciona {kinds} que pertenecen a ciertos nombres. Léelo y recuerda {them}; "
        "después viene una pregunta.\n\n",
        needles=(
            "{The} de {key} es {value}.",
            "En el registro, junto a {key} figura {the} {value}.",
            "A quien pregunte por {key} hay que darle {the} {value}.",
            "Conste que a {key} le tocó {the} {value}.",
            "La capitanía archivó {key} con {the} {value}.",
        ),
        questions=(
            "\n\nPregunta: ¿Qué {kind} corresponde a {key}?",
            "\n\nPregunta: ¿Cuál es {the} que va con {key}?",
            "\n\nPregunta: Según el texto, ¿qué {kind} pertenece a {key}?",
        ),
        prefix="{The} que corresponde a {key} es",
        reminder="\n\nResponde ahora a la pregunta que se hizo antes del texto.",
        pairs_instruction="A continuación hay un fragmento de un objeto JSON, una clave con su valor en cada línea. "
        "Después viene una pregunta.\n\n",
        pairs_question='\n\nPregunta: ¿Cuál es el valor de la clave "{key}"?',
        pairs_prefix='El valor de "{key}" es',
        forms={
            "numbers": {
                "kind": "número", "kinds": "números", "the": "el número", "The": "El número", "them": "los números",
            },
            "words": {
                "kind": "palabra", "kinds": "palabras", "the": "la palabra", "The": "La palabra",
                "them": "las palabras",
            },
            "uuids": {
                "kind": "código", "kinds": "códigos", "the": "el código", "The": "El código", "them": "los códigos",
            },
        },
        nouns=WORDS["spanish nouns"],
    ),
}  # fmt: skip


class TranslatedTask(WordedTask):
    """A task that can be asked in other languages, with `LANGUAGES` in place of its own texts."""

    language: Language = Field("", description="de, fr or es: texts, keys and haystack in German, French or Spanish")

    @property
    def translation(self) -> LanguageTexts | None:
        return LANGUAGES.get(self.language)

    def reminder(self) -> str:
        return self.translation.reminder if self.translation else super().reminder()


def translated_needle_parts(texts: LanguageTexts) -> dict[str, PromptPart]:
    """The parts of `niah` in a language."""
    may = texts.placeholders
    return {
        "instruction": PromptPart((texts.instruction,), may=may, opens=True),
        "needle": PromptPart(texts.needles, needs=("key", "value"), may=may, planted=True),
        "question": PromptPart(texts.questions, needs=("key",), may=may, asks=True),
        "prefix": PromptPart((texts.prefix,), may=("key", *may)),
    }
