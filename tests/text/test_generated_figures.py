"""Generated texts do not contradict themselves: figures of reports, dates and sums of legal texts, doses and days of
medical ones, the names of code, and who speaks to whom."""

from __future__ import annotations

import ast
import builtins
import itertools
import re
from collections import defaultdict
from collections.abc import Iterator

import pytest

from leadline.tasks.words import MONTHS
from leadline.text.generated import GeneratedText

TEXTS = 60
"""Texts read of each source: some 500 paragraphs."""
NUMBERS = "two three four five six seven eight nine ten eleven".split()
TENS = {"sixteen": 16, "twenty": 20, "twenty-four": 24, "twenty-eight": 28, "thirty-two": 32, "thirty-six": 36}
IN_ALL = TENS | {"forty": 40, "forty-four": 44}
HOUR = "|".join(NUMBERS[2:])
WEEKDAY = "Monday|Tuesday|Wednesday|Thursday|Friday|Saturday|Sunday"


def texts(name: str) -> Iterator[str]:
    """One text of each of many seeds: what is drawn once a text is the same in all of its paragraphs."""
    source = GeneratedText(name)
    for number in range(TEXTS):
        [order] = source._grammar.write([number], number % 7, 1)
        yield "".join(source.bank.pieces[i] for i in order.tolist())


def paragraphs(name: str) -> Iterator[str]:
    for text in texts(name):
        yield from text.strip().split("\n\n")


# --- reports ---

LEVELS = {
    "usual": (r"(?:rated|usual) [a-z ]+? is (\d+) ", r"(?:as a rule|normally) (\d+) ", r"rose from (\d+) to",
              r"mean [a-z ]+? was (\d+) ", r"mean of (\d+) nearer", r"had been (\d+) [a-z ]+? for \w+ days",
              r"gives (\d+) [a-z ]+? as the mean"),
    "low": (r"the lowest (\d+) ", r"with (\d+) as the lowest", r"lay between (\d+) and", r"may expect (\d+) "),
    "upper": (r"lay between \d+ and (\d+) ", r"must not pass (\d+) "),
    "limit": (r"where (\d+) are permitted", r"(\d+) being permitted", r"the limit of (\d+)", r"withstands (\d+) ",
              r"requirement, (\d+) ", r"Since (\d+) [a-z ]+? are permitted", r"fails above (\d+) ",
              r"(?:raised at|trips at|permitted ends at) (\d+)"),
    "peak": (r"rose from \d+ to (\d+) ", r"reached (\d+) ", r"the highest (\d+)", r"and (\d+) as the highest",
             r"that of (\d+) on line", r"though (\d+) was read", r"would allow (\d+)"),
}  # fmt: skip
"""How a report says the levels of its quantity."""
SHARES = re.compile(
    r"[Oo]f (\d+) (?:readings|daily means) (\d+) [^.]*?"
    r"(?:and|the other) (\d+)(?: above| were discarded)?,(?: or)? (\d+) per cent"
)
"""How many were taken, and kept; how many were not, and their share."""


def test_the_levels_that_a_report_names_agree_in_all_of_its_paragraphs() -> None:
    checked = 0
    for text in texts("reports"):
        named: dict[str, set[int]] = defaultdict(set)
        for level, sentences in LEVELS.items():
            for value in itertools.chain.from_iterable(re.findall(sentence, text) for sentence in sentences):
                named[level].add(int(value))
                checked += 1
        assert all(len(values) == 1 for values in named.values()), (named, text)
        order = [min(named[level]) for level in ("low", "usual", "upper", "limit", "peak") if level in named]
        assert order == sorted(set(order)), (named, text)
    assert checked > 2 * TEXTS


def test_counts_and_shares_of_a_report_add_up() -> None:
    checked = 0
    for paragraph in paragraphs("reports"):
        for figures in SHARES.findall(paragraph):
            taken, kept, dropped, share = map(int, figures)
            assert taken == kept + dropped, paragraph
            assert 100 * dropped == taken * share, paragraph
            checked += 1
    assert checked > TEXTS // 8


def test_the_costs_of_a_report_add_up() -> None:
    checked = 0
    for paragraph in paragraphs("reports"):
        if not (bill := re.search(r"(?:cost|is put at|comes to) (\d+) thousand", paragraph)):
            continue
        total, sentence = int(bill.group(1)), paragraph[bill.start() : paragraph.index(".", bill.end())]
        parts = [int(n) for n in re.findall(r"(\d+) thousand", sentence)][1:]
        share = re.search(r"(\d+) per cent", sentence)
        if share:
            assert 100 * parts[0] == total * int(share.group(1)), sentence
        else:
            assert sum(parts) == total, sentence
        checked += 1
    assert checked > TEXTS // 8


def test_times_of_a_day_and_dates_of_a_report_are_in_order() -> None:
    for text in texts("reports"):
        dates = [
            (int(year), MONTHS.index(month), int(day))
            for day, month, year in re.findall(r"(\d+) ([A-Z][a-z]+) (\d{4})", text)
        ]
        assert dates, text
        assert dates[-1] == max(dates), text
        assert not re.search(rf"(?:{WEEKDAY}), \d+ [A-Z]", text)
        for paragraph in text.strip().split("\n\n"):
            spoken = re.findall(
                rf"\b(?:a little before|shortly after|about|at|until|towards|from) ({HOUR})\b", paragraph.lower()
            )
            hours = [NUMBERS.index(hour) for hour in spoken]
            assert not hours or min(hours) == hours[0], paragraph


def test_parts_and_wear_of_a_report_are_within_what_there_is() -> None:
    for text in texts("reports"):
        whole = {IN_ALL[word] for word in re.findall(rf"\b({'|'.join(sorted(IN_ALL, key=len, reverse=True))})\b", text)}
        assert len(whole) <= 1, text
        wear = {
            float(w)
            for w in re.findall(r"(\d\.\d) millimetres (?:after|where|was measured|against|on the loaded)", text)
        }
        assert len(wear) <= 1, text
        for worn, allowed in re.findall(r"(\d\.\d) millimetres[^.]*?, where (\d\.\d) are allowed", text):
            assert float(worn) <= float(allowed), text


# --- legal, medical ---


def test_a_contract_is_signed_on_the_day_that_its_title_names() -> None:
    checked = 0
    for text in texts("legal"):
        title, *_, last = text.strip().split("\n\n")
        signed = re.search(r"(?:Signed|Done|Given|Written|approved) at [^,.]+?(?: on|,) (\d+ [A-Z][a-z]+ \d{4})", last)
        if signed:
            assert signed.group(1) in title, (title, last)
            checked += 1
    assert checked > TEXTS // 8


def test_a_court_awards_what_it_assesses_and_no_more_than_was_claimed() -> None:
    checked = 0
    for text in texts("legal"):
        claimed = re.search(r"plaintiff (?:claims|demands|seeks) ([\d,]+) ", text)
        awarded = re.search(r"(?:ordered to pay|judgment is given for) ([\d,]+) ", text)
        if claimed and awarded:
            claim, award = (int(m.group(1).replace(",", "")) for m in (claimed, awarded))
            assert award < claim, text
            for assessed in re.findall(r"loss is assessed at ([\d,]+) ", text):
                assert int(assessed.replace(",", "")) == award, text
            checked += 1
    assert checked > TEXTS // 15


def test_a_leaflet_has_one_strength_and_the_days_of_a_ward_ascend() -> None:
    leaflets = wards = 0
    for text in texts("medical"):
        if text.startswith("PATIENT LEAFLET"):
            strengths = re.findall(r"(?:LEAFLET: \w+|contains|usual dose is|one tablet of) (\d+) mg", text)
            assert len(set(strengths)) == 1, text
            leaflets += 1
        if text.startswith("Ward notes"):
            days = [int(day) for day in re.findall(r"^Day (\d+)", text, re.MULTILINE)]
            assert len(days) > 2, text
            assert days == sorted(set(days)), text
            wards += 1
    assert min(leaflets, wards) > 2


# --- code, chat ---


def test_every_name_in_generated_code_is_defined_or_imported() -> None:
    for text in texts("code"):
        bound = {*dir(builtins), "__name__"}
        used: set[str] = set()
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Import | ast.ImportFrom):
                bound |= {name.asname or name.name for name in node.names}
            elif isinstance(node, ast.FunctionDef | ast.ClassDef):
                bound.add(node.name)
            elif isinstance(node, ast.arg):
                bound.add(node.arg)
            elif isinstance(node, ast.ExceptHandler) and node.name:
                bound.add(node.name)
            elif isinstance(node, ast.Name):
                (bound if isinstance(node.ctx, ast.Store) else used).add(node.id)
        assert used <= bound, used - bound


def test_nobody_in_a_conversation_asks_himself() -> None:
    for paragraph in paragraphs("chat"):
        for line in paragraph.splitlines():
            speaker, _, said = line.partition(": ")
            assert not re.search(rf"\b{speaker}, (?:can you|you first|please)", said), line


SLIPS = {
    "prose": r"[Pp]eople say to have|\bevery years\b|\bgives back it\b|\bnot often (?:stay|nine)|insisted to have"
             r"|such as one has|There passed|mistook for a post|expect returning|written down follow"
             r"|\d{4} \d+ [a-z]+ were|we were \d+ of them|sisters was left|Not (?:always|invariably) did"
             r"|It contains \w+ \w+ in it|and then driven|It cost us [a-z ]+ and were|furs was|dropped whatever"
             r"|\bat at\b|work were"
             r"|the owner's nephew|, a widower|the coming man|the landlady's daughter|The boy, [A-Z]|a man called",
    "legal": r"Should the cost of \w+(?: \w+)? (?:rises|changes)|more than that entitle|[Tt]he keys of the building is"
             r"|each day outlays|old address hold |lien of the|right to live of|upon doubt|the others stands"
             r"|per cent of the \w+ \w+ was |(?:glass|yarn|cable) (?:are|remain)|of that party|units of the"
             r"|on residential|single judge|write to [A-Z][\w ]+ in writing",
    "medical": r"[Oo]ld tablets goes|arrange the (?:kidney|blood pressure)|saturation [678]\d per|white count was"
               r"|two0|screen are|[Cc]onjunctivae was|better, [a-z ]+ having returned"
               r"|no better, [a-z ]+ having (?:gone|less)|may be crushed|(?:Rarely|Seldom) people had|acting on"
               r"|in \d+ (?:people|cases), (?:mostly|none|regard)",
    "chat": r"[Dd]rop me a line every|often think of!|there are (?:two|four|five|six|seven) options|is that a problem\."
            r"|but I can find my boots|Do not forget nothing|Are you of course"
            r"|(?:evening|noon|one|four) in the morning"
            r"|paper well then|[Ll]ast time was too loud|but it runs|up to the chapel|do you remember [a-z' ]+\."
            r"|even sooner"
            r"|gave up after \d+ pages[^.]* cried|Yes, the light|told that story at|they met at",
    "reports": r"higher than permitted of|as permitted of|was not needed, and took|and did not bring anything"
               r"|were the reason for|The counter of hours begins|without conditions, (?:if|on)"
               r"|(?:later type|last third) is|(?:nozzles|diffusers|guides|pads) was suspected"
               r"|\b(?:For|of|to|the view of) (?:North|South|East|West|Upper|Lower|Central|Coastal|Inland)"
               r" [A-Z]\w+ [A-Z]"
               r"|another [a-z ]+water|on \w+days at \w+\. ",
    "code": r"the number of \w+ (?:changed|were|are)\b|serves the \w+ to count"
            r"|[a-z][:;] (?:because|since|as|rough|good enough)\b",
    "agent": r"in (?:\w+) units\b(?<!other units)|takes an? \w+ \w+ (?:as zero|for a new)|treats an? \w+ \w+ for a",
    "german": r"gehört (?:ihm|ihr)\b|nach (?:ihm|ihr) fragen|Tage Arbeit zahlen|an (?:zehn|zwölf) von zehn"
              r"|Das sind \d+ Schritte|(?:könne|wolle) \d+ Lieder|könne nie wieder|wolle mit Pferden|gegen nichts"
              r"|Flug der (?:Schafe|Ziegen|Füchse|Gänse)|der Korb, |Hand nur noch hört|Zeugen (?:liegen|sind ver)"
              r"|niemand kümmert sich(?! darum)|hängt eine Bank|Graben wegnahm|tanzten in de[mr] (?:Hafen|Werft)",
    "french": r"sans se presser|sec, et \w+(?: \w+)? déborda|Avait raison|pas on devine à peine sa main"
              r"|dont \d+ jamais payés|même, même|qui paie à l'heure"
              r"|avec (?:méfiance|fierté), avec",
    "spanish": r"venir en (?:lunes|martes|miércoles|jueves|viernes)|da un discurso|el oficio con"
               r"|todos están en la siega|\by Hil|Alrrubia|Me marché[^.]*encogiéndose|adivina la mano"
               r"|hasta que nadie gana"
               r"|más viejo que \d|con (?:recelo|orgullo), con",
}  # fmt: skip


@pytest.mark.parametrize("name", SLIPS)
def test_sentences_that_readers_stumbled_over_do_not_come_back(name: str) -> None:
    """Agreement, word order, and clauses that do not go together, as found by reading 200 sentences of each text."""
    assert re.findall(rf"[^.]*(?:{SLIPS[name]})[^.]*", GeneratedText(name).text(8, 80_000))[:3] == []
