"""Needles and key-value pairs in German, French and Spanish: texts and keys of our own, with a haystack each.

OneRuler (arXiv 2503.01996) finds that the language of the instructions alone moves scores by up to 20 points. The
wordings here were written in each language, not translated word for word, so that articles and genders are right.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from pydantic import Field

from leadline.core.seeds import Split
from leadline.core.types import ValueKind
from leadline.tasks.wording import PromptPart, WordedTask
from leadline.tasks.words import value_side

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
        for _ in range(4000):
            key = f"{draw.choice(self.nouns)}-{draw.choice(self.nouns)}"
            if key not in taken and value_side(key) == split:
                taken.add(key)
                return key
        raise ValueError(f"cannot draw another key: {len(taken)} are taken")


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
        nouns=tuple(
            """
            Abend Acker Ahorn Ampel Amsel Anker Apfel Balkon Balken Bach Berg Besen Biene Birke Birne Blatt Boot Brief
            Brot Brunnen Brücke Buche Bühne Dach Damm Decke Distel Dorf Eiche Eimer Ernte Esche Eule Fackel Faden
            Falke Farbe Feder Feld Fenster Fichte Flöte Fuchs Garten Gasse Geige Glocke Graben Hafen Hagel Hammer
            Hecht Heide Herbst Himmel Hügel Insel Kanne Karte Kerze Kessel Kirsche Klinge Knopf Koffer Korb Krähe
            Kreide Kugel Küste Laden Lampe Laterne Leiter Linde Löffel Luchs Mantel Markt Mauer Messer Mohn Mond Möwe
            Mühle Nadel Nebel Nelke Ofen Orgel Otter Pappel Pfad Pfeil Pflug Quelle Rabe Regen Reiher Ring Ruder
            Sattel Schirm Schnee Segel Sichel Sieb Spiegel Stein Stern Sturm Tanne Teich Treppe Trommel Truhe Turm
            Ufer Wagen Wald Weide Welle Wiese Winter Wolke Wurzel Zaun Zelt Ziegel Zweig
            """.split()
        ),
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
        nouns=tuple(
            """
            abeille abri aigle aiguille ancre anneau arbre arc argile armoire avoine balai balance balcon banc barque
            bassin bateau blé bois bouleau bourg branche brique brume bruyère cabane canal carafe carte castor cerise
            chaise champ chandelle chanson chapeau chemin cheminée chêne cloche clocher coffre colline corbeau corde
            coteau couteau crique cuivre dune échelle écluse écorce écurie église épi érable étable étang étoile
            faucon fenêtre feuille figue fleuve flûte fontaine forge fossé foudre four fraise frêne galet gare genêt
            givre grange grenier grue guitare hameau héron hibou horloge jardin jetée lampe lanterne laurier lierre
            loutre lune luth maison marais marché marteau mer miroir moulin mousse mur navire neige nuage olive orage
            orge orme panier peigne perdrix phare pierre pin plage plume pluie poire pomme pont port poterie pré puits
            rame ravin renard rive roche rose roseau ruche ruisseau sable sapin saule seau sel selle sentier source
            table tambour tilleul toit tour tuile vague vallée verger vigne village voile
            """.split()
        ),
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
        nouns=tuple(
            """
            abeja abeto aceite acequia águila aguja álamo alba aldea almendra ancla anillo árbol arado arcilla arena
            armario arroyo avena azada balanza balcón banco barca barro bosque brújula buey bruma cabaña cadena
            caldero camino campana canal cántaro caña carbón carro castillo cebada cedro cencerro cera cereza ceniza
            cerro cesta ciruela cobre cofre colina colmena corcho cordero cuchara cuervo dehesa duna encina erizo
            escoba espejo espiga estanque estrella faro farol flauta fragua fresno fuente gallo garza granero granja
            grulla guitarra halcón harina helecho hiedra higo hoguera hormiga huerto isla jardín junco lago lámpara
            lana laurel lechuza leña limón lince lirio llave lluvia lobo luna madera maíz manta manzana martillo mesa
            miel mimbre molino montaña muelle muro musgo naranja navaja nido niebla nieve nogal nube olivo olmo orilla
            oveja pala paloma pan patio peine pera perdiz piedra pino playa pluma pozo prado presa puente puerta queso
            rama remo rincón roble rosa rueda sal sauce sierra silla tambor teja tilo torre trigo trueno valle vela
            ventana viento viña yegua yunque zarza zorro
            """.split()
        ),
    ),
}  # fmt: skip


class TranslatedTask(WordedTask):
    """A task that can be asked in other languages, with `LANGUAGES` in place of its own texts."""

    language: Language = Field("", description="de, fr or es: texts, keys and haystack in German, French or Spanish")

    later_options: ClassVar[frozenset[str]] = WordedTask.later_options | {"language"}

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


def translated_pair_parts(texts: LanguageTexts, line: PromptPart) -> dict[str, PromptPart]:
    """The parts of `kv` in a language; `line` is the same in all of them."""
    return {
        "instruction": PromptPart((texts.pairs_instruction,), opens=True),
        "line": line,
        "question": PromptPart((texts.pairs_question,), needs=("key",), asks=True),
        "prefix": PromptPart((texts.pairs_prefix,), may=("key",)),
    }
