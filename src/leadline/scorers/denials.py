"""What an answer says about a value it contains: that it is the answer, that it is not, or that it is not there.

All of it reads English wording. `denies` looks at the text around one value:

    denied       "1234567, not 7654321", "7654321 is wrong", "I cannot find 7654321", "~~7654321~~"
    corrected    "You might think 7654321, but it is 1234567", "7654321. Wait, no: 1234567"
    harmless     "Don't forget: 7654321", "It is no secret that it is 7654321", "nothing but 7654321"

A negation holds up to the next comma, colon or new clause, "not found" up to the end of the sentence.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from leadline.scorers.normalise import bare, clean, compiled, folded

# --- "not found" and refusals ---
#
# Searched only at the beginning of an answer: that is where models say such things, and text echoed from the document
# further on must not be mistaken for them.

_BEGINNING_CHARACTERS = 600

_NOT = r"(?:\w+n't|cannot|(?:can|could|do|does|did|was|were|am|is|are|has|have) not|unable to|not able to|failed to)"
_FEW = r"(?:[\w'-]+ ){0,3}?"
_NOT_FOUND = "|".join(
    (
        rf"\b{_NOT} {_FEW}(?:find|found|locate|see|seen|spot|identify|determine|recall|remember|know|be found)\b",
        r"\b(?<!i )(?:does not|doesn't|do not|don't|did not|didn't) (?:[\w'-]+ ){0,2}?"
        r"(?:mention|contain|include|specify|state|provide|say|give|appear|list|reveal|tell|exist|have)\b",
        rf"\b(?:is|are|was|were)(?: not|n't) {_FEW}"
        r"(?:mentioned|given|provided|found|specified|stated|present|included|listed|available|known|in the)\b",
        r"\bthere (?:is|are|was|were|isn't|aren't) (?:no|not|any|nothing)\b[^.]{0,60}"
        r"\b(?:mention|mentioned|information|such|record|reference|given|provided|text|document|passage|context)\b",
        r"\bno (?:mention|information|record|reference|such|matching|relevant|indication)\b",
        r"\b(?:not enough|insufficient|lack of) (?:information|context|detail)",
        r"\bhave (?:no|any|enough|sufficient) (?:[\w'-]+ )?(?:information|context|knowledge|idea)\b",
    )
)
_NOT_FOUND_ALONE = frozenset(
    ("none", "n/a", "na", "unknown", "nothing", "null", "not found", "no answer", "unanswerable", "not mentioned",
     "not available", "not given", "not in the text", "not there")
)  # fmt: skip
_REFUSED = "|".join(
    (
        r"\b(?:i|we)(?: am| are|'m|'re)?(?: \w+){0,2}? "
        r"(?:cannot|can't|can not|won't|will not|unable to|not able to|must decline|decline|refuse)\b"
        r"[^.\n]{0,80}?\b(?:help|assist|comply|provide|share|answer|fulfil|fulfill|do|disclose|reveal|continue|"
        r"engage|support|discuss|complete|respond|to)\b",
        r"\bas an? (?:ai|artificial intelligence|(?:large )?language model)\b",
        r"\bagainst (?:my|our|the) (?:\w+ )?(?:policy|policies|guidelines|rules|principles)\b",
        r"\b(?:not (?:allowed|permitted|comfortable)|isn't appropriate|not appropriate)\b",
    )
)


def says_not_found(answer: str) -> bool:
    """Whether the model says that the text does not have it, or that it does not know."""
    start = _beginning(answer)
    return bare(start) in _NOT_FOUND_ALONE or compiled(_NOT_FOUND).search(start) is not None


def says_refusal(answer: str) -> bool:
    """Whether the model declines to answer."""
    return compiled(_REFUSED).search(_beginning(answer)) is not None


def _beginning(answer: str) -> str:
    return clean(answer[: _BEGINNING_CHARACTERS * 2])[:_BEGINNING_CHARACTERS]


# --- the text before a value ---

SCOPE_CHARACTERS = 240
_OPEN = r"[\s\"'`*_~(\[]*"
_NOUN = r"(?:answers?|numbers?|values?|codes?|keys?|ones?|words?|ids?|uuids?|names?|variables?|results?|lines?)"
_NEGATIVE = r"(?:not|\w+n't|cannot|never|no|none|nothing|nobody|nowhere|without)"

_SENTENCE_END = r"[.!?](?=\s|$)|[\n;\u3002]|</?\w+>|\s-\s|\b(?:but|however|although|though|yet|instead(?! of)|so)\b"
_CLAUSE = (
    r",(?=\s*(?:say|use|take|choose|write|give)\b|[^,]*\b(?:is|are|was|were|it's|that's|has|have|must|should"
    r"|would|seems?|belongs?|equals)\b)"
)
_HARMLESS = "|".join(
    (
        # Two negations, or a negation of doubt, are an assertion.
        r"\b(?:not|\w+n't|never|cannot)(?: [\w'-]+){0,2}? (?:forget|worry|panic|overlook|miss|ignore"
        r"|hesitate|deny|dispute|help|fear|mind|go wrong"
        r"|believe (?:it|my eyes|how)|wait|look (?:any )?further|(?:have|need) to (?:look|search|think|read"
        r"|go|scroll))\b",
        r"\b(?:not|isn't|wasn't|no|without)(?: an?| any| the| my| much)?(?: [\w'-]+)? (?:only|just|merely"
        r"|doubt|question"
        r"|problems?|worr(?:y|ies)|secret|surprise|wonder|mystery|coincidence|accident|mistake|mistaking|denying"
        r"|denial|hesitation|need|further ado|trouble|biggie|sweat|way around it|two ways about it|exception)\b",
        r"\b(?:no|not|without|\w+n't|never) (?:surprising(?:ly)?|hard|difficult|far|unlikely|impossible|unknown)\b",
        r"\b(?:not|\w+n't|cannot)(?: be)?(?: [\w'-]+)? (?:mistaken|wrong|incorrect|false|doubt(?: that)?"
        r"|clearer|simpler"
        r"|easier|plainer|more (?:certain|sure|obvious|clear))\b",
        rf"\b{_NEGATIVE} (?:(?!that|whether|if)[\w'-]+ ){{0,4}}?(?:other|else|further|another|additional|more|less)"
        rf"(?: {_NOUN}| mentions?| candidates?)?(?: than)?\b",
        r"\b(?:might|may|could|if i'?m?(?: am)?)(?: well)?(?: be)? (?:wrong|mistaken|incorrect)\b"
        r"|\bbeyond (?:any )?doubt\b"
        r"|\b(?:few|nobody|none|no one)(?: [\w'-]+)? (?:doubts?|denie[sd]|deny|disputes?)\b",
        r"\bno matter (?:what|how|where|which)\b|\bwhy not\b|\bnever ?mind\b|\bnot to mention\b",
        rf"\b{_NOUN} (?:that|which|who) (?:(?!think|believe|say|know|sure|claim|mean)[^,.:;!?\n])*?"
        r"(?:is|was|are|equals|reads)(?=[\s\"'`*_(\[]*$)",
    )
)
"""A negation that does not deny what follows it."""
_NEGATION = (
    r"\b(?:not|no|never|neither|nor|none|nothing|nobody|nowhere|lacks|cannot|\w+n't|without|excluding|unlike"
    r"|wrong(?:ly)?|incorrect(?:ly)?|false(?:ly)?|(?:instead|rid) of|rather than|unable to|fail(?:s|ed)? to"
    r"|refuse to|decline to|doubt(?:s|ful)?|used to be|(?:as )?opposed to"
    r"|contrary to|mistaken for|confused with|mistakenly|erroneously|hardly|scarcely|unlikely|improbable"
    r"|impossible|formerly|(?:mistake|error) to)(?![\w'-])"
    rf"|(?:\b(?:minus|negative|formerly)|!=|\u2260|<>){_OPEN}\x00"
    rf"|\b(?:ignor|exclud|reject|dismiss|discard|disregard|rul(?:e|ed|ing) out|avoid|(?:different|distinct"
    rf"|far) from)\w*"
    rf"(?: (?:the|that|any))?(?: {_NOUN})?"
    rf"{_OPEN}\x00"
)
_EXCEPTION = (
    rf"(?:(?<!,) \b(but)(?= (?:(?:the|that|this) )?(?:{_NOUN} )?{_OPEN}$)|\b(except(?: for)?|other than"
    rf"|save for|besides|apart from|aside from))(?: [\w'-]+){{0,3}}?{_OPEN}$"
)
"""Of nothing or of all: "nothing but X" gives X, "anything but X" does not."""
_ALL = r"\b(?:any|anything|all|every|everything|each|most)\b"
_LISTED_AS_DENIED = r"\b(?:neither|none of|not any of)(?: [\w-]+,?){1,8},?(?: (?:and|or|nor))? ?$"
_DENYING_LABEL = (
    r"(?:\b(?:not|neither|never|except(?: for)?|excluding|without)|n't|\bnot (?:found|mentioned|given|present"
    r"|listed|there))\W*$"
    r"|\b(?:wrong|incorrect|false|rejected|discarded|excluded|ignored?|missing|decoys?|distractors?)\b"
)
_PARENTHESIS = r"\([^()]*\)"
_RHETORICAL = rf"(?:^|[.!?\n,])\s*(?:why )?(?:is|was|are|would|could)n't (?:it|that|this|the {_NOUN})\b[^.!?\n]*$"
_SEARCHED = rf"\b(?:look|search)\w* (?:everywhere )?for (?:the )?(?:{_NOUN})?{_OPEN}$"
_IN_VAIN = r"[^.!?\n]*\b(?:not|\w+n't|cannot|nothing|without|unable|failed|in vain|no)\b"
_STRUCK = r"(?:~~|<(?:del|s|strike)>)[^~<]*$"
_STRUCK_END = r"[^~<]*(?:~~|</(?:del|s|strike)>)"

# --- the text after a value ---

_MODAL = r"(?:is|are|was|were|does|do|did|has|have|had|can|could|will|would|should|must|may|might)"
_WRONG = (
    r"(?:wrong|incorrect|false|untrue|mistaken|absent|missing|nowhere|no\b(?! (?:doubt|surprise|secret|less|more))"
    rf"|an? (?:[\w-]+ )?(?:distractor|decoy|trap|mistake|typo|trick|error|red herring)|the wrong|the incorrect"
    rf"|(?:an?|another|the other) (?:wrong|incorrect|false|different) {_NOUN})(?!\w)"
)
_NOT_RIGHT = (
    rf"not (?:right|correct|true|it\b|the (?:right |correct |true |real )?{_NOUN}(?! (?:for|of|that|which|in|from)\b))"
)
_BUT_ALSO = (
    r"(?:the only|only|change|mentioned (?:twice|again|only)|repeated|just|merely|in doubt|in question"
    r"|hard|difficult|far|alone|surprising|wrong|incorrect|a secret|missing)"
)
_DENIED_AFTER = (
    r"[\s\"'`*_~)\]]*(?:"
    r"(?:(?!(?:is|are|was|that|which|who|and|or|so|as|but|because|since|when|where|while|though"
    r"|although)\b)[\w'-]+ ){0,4}?"
    rf"(?:{_MODAL}(?: not\b|n't\b| never\b)(?! {_BUT_ALSO}\b)(?! [\"'`*]*\d)|(?:cannot|can't"
    rf"|won't)\b(?! be missed)|never\b(?! (?:changes|fails))"
    r"|(?:is|was|can be|must be|has been)(?: also)? (?:ruled out|excluded|rejected|dismissed|discarded"
    r"|out of the question"
    r"|unrelated|irrelevant|impossible|unlikely)\b"
    rf"|(?:is|was|would be|must be|seems|looks|turned out to be)(?: also| clearly| simply| just| probably"
    rf"| of course)? {_WRONG})"
    r"|[(\[]\s*(?:wrong|incorrect|false|decoy|distractor|rejected)\b"
    r"|[-:(]?\s*(?:not|nowhere) (?:to be )?(?:found|in|mentioned|present|there|given|listed|correct|right)\b"
    r"|\?\W*(?:no|not|nope|wrong|i (?:do not|don't|cannot|can't|am not|could not|couldn't|doubt))\b"
    r"|[\s,;.!:-]*(?:but |though |although |and |yet |no,? |however,? )?"
    rf"(?:(?:that|this|which|it)(?:'s| is| was| would be| must be| seems)(?: clearly| definitely| also"
    rf"| simply)? (?:{_WRONG}|{_NOT_RIGHT})"
    r"|(?:they|you|i|we)(?:'d| would|'re| are| was| were)(?: be)?(?: clearly)? (?:wrong|mistaken|incorrect)\b"
    r"|(?:wrong|incorrect)[.!,]))"
)

# --- corrections: another value takes the place of this one ---

_SOMEBODY = r"(?<!as )(?:you|one|some|many|most|people|others|they|someone|anyone|readers?|a reader)(?: [\w'-]+)?"
_THINK = r"(?:think|say|guess|assume|believe|expect|suppose|answer|claim|conclude|argue|read|pick|choose|name|give)"
_BELIEF = (
    "(?:" + "|".join(
        (
            rf"\b{_SOMEBODY}(?:'d| might| may| could| would| can| will)(?: [\w'-]+){{0,4}}? {_THINK}",
            rf"\b(?:some|many|most|people|others)(?: people| readers| models)? {_THINK}",
            rf"\b(?:tempt(?:ed|ing)|easy|natural) to {_THINK}",
            r"\b(?:i|we)(?: [\w'-]+)? (?:thought|assumed|guessed|believed|supposed|expected|misread|had)",
            r"\b(?:my|the|a|an) (?:first|initial|earlier|previous|naive|obvious|old)(?: [\w'-]+)? (?:guess"
            r"|thought|answer)"
            r"(?: is| was| may be| might be| would be)?",
            r"\b(?:it|this|that)(?: may| might| could) (?:look|seem|appear|sound)",
        )
    ) + rf")(?:,? [\w'-]+){{0,5}}?{_OPEN}$"
)  # fmt: skip
"""A value that somebody could believe in, or that was believed at first."""
_AT_FIRST = (
    rf"\b(?:at first|at first (?:glance|sight)|initially|originally|previously|earlier"
    rf"|formerly)(?:,? [\w'-]+){{0,5}}?{_OPEN}$"
)
_CONCESSION = r"\b(?:although|though|while|whereas|even if|despite|seems?|appears?|looks?)\b[^,.;!?\n]*$"
_ADVERSATIVE = (
    r"\b(?:but|however|yet|though|although|actually|in fact|in reality|really|instead|nevertheless|whereas)\b"
    r"|[.;!,:-]\s*(?:no|now)\b"
)
_CONSEQUENCE = r"\b(?:so|therefore|hence|thus)\b"
_ANSWER_IS = (
    rf"(?:now |actually |really |in fact,? |in reality,? )?(?:it|that|this|(?:the|my"
    rf"|its)(?: [\w-]+)?(?: [\w-]+)? {_NOUN}(?: here)?)"
    r"(?:'s| is| was| must be| should be| would be| has to be| turned out to be)"
    r"(?: actually| really| in fact| in truth| instead| now| rather| of course| clearly| definitely| indeed)?"
)
_TRUE_ONE = rf"the (?:correct|right|real|actual|true|proper|final)(?: {_NOUN})?(?: here)?(?: is| was|:)"
_CORRECTION = (
    r"[\s\"'`*_)\].,;:!?(\u2026\u2192-]*(?:(?:oh|hmm|ah|well|ok|okay|and|uh|oops)\b\W*)?"
    r"(?:wait|nope|no(?=\s*[,.:;!-]| wait)|sorry|oops|correction|i mean|i meant|or rather|rather|scratch that"
    r"|strike that|actually"
    r"|in fact|on second thoughts?|apologies|my mistake|let me correct(?: that| this| myself)?|corrected)\b"
)
_REPLACED = (
    r"[\s\"'`*_),]*(?:but |and )?(?:it )?(?:was |is |has been |had been )?(?:later |then )?"
    r"(?:corrected|changed|updated|replaced|superseded) (?:to|by|with)\b"
)
_GAP = (
    r"(?:[\s\"'`*_,:;.!(\[\u2026-]|\b(?:it|that|this|is|was|should|must|be|have|been|the|correct|right|real"
    r"|actual|answer"
    r"|number|value|code|key|word|to|i|mean|meant|say|think|actually|no|wait|not|me|let|sorry|s|one|read|reads"
    r"|again)\b)*"
)
_NUMBER = r"-?\d[\d,]*(?:\.\d+)?(?![\w-])"
_HYPHENATED = r"\w+(?:-\w+)+"
_INTERROGATIVE = r"[^.!?\n]*\?"


def asks_for_what_is_not(question: str) -> bool:
    """Whether the question itself is negative, as in "Who did not come?", so that a right answer may be negative."""
    return any(compiled(_NEGATION).search(sentence) for sentence in compiled(_INTERROGATIVE).findall(folded(question)))


def denies(before: str, value: str, after: str, beside: Collection[str] = ()) -> bool:
    """Whether the text around a value denies it or puts another in its place.

    All are folded; `before` ends and `after` begins at the value. `beside` are values that may stand next to it, such
    as further targets, and do not take its place."""
    if compiled(_STRUCK).search(before) and compiled(_STRUCK_END).match(after):
        return True
    if compiled(_SEARCHED).search(before) and compiled(_IN_VAIN).match(after):
        return True
    if compiled(_DENIED_AFTER).match(after) or _corrects(before, value, after, beside):
        return True
    return _denied_before(before, after)


def _denied_before(before: str, after: str) -> bool:
    if after.lstrip("\"'`*_)] ").startswith("?") and compiled(_RHETORICAL).search(before):
        return False
    if exception := compiled(_EXCEPTION).search(before):
        whole = re.split(r"[.!?](?=\s|$)|[\n;]", before[: exception.start()])[-1]
        if compiled(_NEGATION).search(whole):
            return False
        if exception[2] in ("except", "except for", "other than", "save for") or (
            exception[1] and compiled(_ALL).search(whole)
        ):
            return True
    sentence = compiled(_SENTENCE_END).split(compiled(_HARMLESS).sub(" ", compiled(_PARENTHESIS).sub(" ", before)))[-1]
    label, colon, rest = sentence.rpartition(": ") if not sentence.endswith(":") else (sentence[:-1], ":", "")
    if colon and not compiled(_NEGATION).search(rest):
        stated = compiled(_CLAUSE).split(label)[-1]
        return bool(compiled(_DENYING_LABEL).search(stated.rpartition(",")[2]) or compiled(_NOT_FOUND).search(stated))
    clause = compiled(_CLAUSE).split(sentence + "\x00")[-1]
    if compiled(_NEGATION).search(clause.rpartition(",")[2]) or compiled(_NOT_FOUND).search(clause):
        return True
    return compiled(_LISTED_AS_DENIED).search(clause.rstrip("\x00")) is not None


def _corrects(before: str, value: str, after: str, beside: Collection[str]) -> bool:
    """Whether another value is given after this one, in its place."""
    near = after[: SCOPE_CHARACTERS * 2 // 3]
    if compiled(_BELIEF).search(before) and (turn := compiled(_ADVERSATIVE).search(near)):
        return not re.match(r"\W*(?:also|too|it's true|that is (?:right|correct))\b", near[turn.end() :])
    if compiled(_AT_FIRST).search(before) and (turn := compiled(_ADVERSATIVE).search(near)):
        return any(_takes_the_place(value, w[0], beside) for w in re.finditer(r"[\w,-]*\w", near[turn.end() :]))
    if turn := compiled(_CORRECTION).match(after) or compiled(_REPLACED).match(after):
        gap = compiled(_GAP).match(after, turn.end())
        return gap is not None and _takes_the_place(value, after[gap.end() :], beside)
    concedes = compiled(_CONCESSION).search(before)
    against = [*compiled(_ADVERSATIVE).finditer(near), *(re.finditer(r"[,.;]", near) if concedes else ())]
    for turn in (*against, *compiled(_CONSEQUENCE).finditer(near)):
        rest = near[turn.end() :].lstrip(" ,:")
        if turn in against and (stated := re.match(rf"{_TRUE_ONE}{_OPEN}", rest)):
            return not rest[stated.end() :].startswith(value)
        if (stated := re.match(rf"{_ANSWER_IS}{_OPEN}", rest)) and _takes_the_place(
            value, rest[stated.end() :], beside
        ):
            return True
        if re.match(rf"{_OPEN}(\S+?)[\"'`*_)\]]* (?:is|was) (?:the )?(?:correct|right|real|actual|true)\b", rest):
            return _takes_the_place(value, rest.lstrip("\"'`*_(["), beside)
    return False


def _takes_the_place(value: str, rest: str, beside: Collection[str]) -> bool:
    """Whether the text begins with another value of the same form: a number for a number, a hyphenated word for one."""
    form = next((form for form in (_NUMBER, _HYPHENATED) if compiled(form).fullmatch(value)), None)
    other = compiled(form).match(rest) if form else None
    return other is not None and other[0].replace(",", "") != value and other[0] not in beside
