"""Essays and local histories about invented places: one place, a few people and a quarrel to each."""

from __future__ import annotations

import random

from leadline.text.generated import Domain
from leadline.text.generated.names import MONTHS, firm, person, surname, town

_THEMES = (
    # place; a part of it; what is made or kept there; who works there; what goes wrong; who depends on it
    "ferry;slipway;timetable;deckhand;the low water in the channel;commuters",
    "orchard;cider house;old apple variety;picker;a late frost;growers",
    "library;reading room;card catalogue;archivist;the damp in the cellar;readers",
    "theatre;fly loft;repertoire;stagehand;a failing winch;subscribers",
    "glassworks;furnace hall;green bottle;blower;the price of soda;merchants",
    "observatory;dome;star chart;night assistant;the glow of the town;students",
    "railway station;signal box;freight schedule;shunter;subsidence under the platform;travellers",
    "printing house;composing room;type case;typesetter;a strike of the paper mills;editors",
    "mountain hut;drying room;guest book;warden;the melting of the glacier;climbers",
    "market hall;fish counter;weighing scale;porter;the new road;stallholders",
    "lighthouse;lamp room;logbook;keeper;the silting of the bay;pilots",
    "brickyard;drying shed;kiln;moulder;the wet clay;builders",
    "botanical garden;palm house;seed collection;gardener;a beetle in the timber;visitors",
    "weather station;instrument shed;barometer record;observer;the unreliable power line;farmers",
    "choir school;practice hall;manuscript;cantor;the leaking roof;families",
    "vineyard;pressing floor;slow red wine;cooper;hail in the upper rows;innkeepers",
    "radio station;control room;tape library;announcer;the interference from the valley;listeners",
    "canal lock;gate chamber;toll register;lock keeper;the weeds in the basin;bargemen",
    "bakery;proving room;dark rye loaf;journeyman;the smoke in the yard;neighbours",
    "museum;storage wing;collection of clocks;conservator;woodworm;donors",
    "paper mill;vat house;laid paper;sheet former;the iron in the water;printers",
    "football ground;grandstand;fixture list;groundsman;the flooding of the pitch;supporters",
    "shipyard;slip;fishing smack;caulker;the cost of oak;owners",
    "salt works;evaporation pan;coarse salt;raker;a summer of rain;curers",
    "hospital wing;laundry;patient register;night nurse;the old boiler;doctors",
    "village school;attic classroom;atlas;caretaker;the falling number of pupils;parents",
    "clockmaker's shop;back room;pendulum clock;apprentice;the dust from the quarry;collectors",
    "tannery;bark store;saddle leather;finisher;the smell over the square;saddlers",
    "bridge;toll house;inspection report;bridge master;the scour at the third pier;carters",
    "dairy;cheese cellar;hard cheese;cheesemaker;a mould that nobody knew;shopkeepers",
)


def _values(draw: random.Random) -> dict[str, str]:
    place, part, product, worker, trouble, users = draw.choice(_THEMES).split(";")
    year = draw.randint(1871, 1989)
    values = {
        "place": place, "part": part, "product": product, "worker": worker, "trouble": trouble, "users": users,
        "town": town(draw), "town2": town(draw), "river": f"the {surname(draw)[:5].rstrip('aeiou')}{draw.choice(['e', 'a', 'au', 'el'])}",
        "firm": firm(draw), "year": str(year), "year2": str(year + draw.randint(3, 9)), "year3": str(year + draw.randint(11, 24)),
        "number": str(draw.randint(14, 96)), "number2": str(draw.randint(110, 890)), "street": f"{surname(draw)} {draw.choice(['Street', 'Lane', 'Row', 'Hill', 'Quay', 'Square'])}",
    }  # fmt: skip
    for key in ("anna", "boris", "carla", "dirk"):
        values.update(person(draw, key))
    return values


def _paragraph(draw: random.Random) -> dict[str, str]:
    return {"month": draw.choice(MONTHS), "month2": draw.choice(MONTHS), "count": str(draw.randint(3, 79)),
            "sum": f"{draw.randint(3, 98) * 50:,}", "share": str(draw.randint(12, 88)), "weeks": str(draw.randint(2, 19)),
            "someone": draw.choice(["a cousin of the mayor", "a retired teacher", "the postmistress", "a surveyor", "the younger of two brothers",
                                    "an accountant", "a visiting engineer", "the organist", "a widow from the upper town", "a journalist"])}  # fmt: skip


def _plan(draw: random.Random) -> list[str]:
    middle = ["event", "person", "quarrel", "account", "memory", "voice", "letter", "method", "thought", "visit", "change"]
    drawn: list[str] = []
    for _ in range(draw.randint(2, 3)):
        draw.shuffle(middle)
        drawn += middle[: draw.randint(8, 12)]
    return ["opening", "person", *drawn, "ending"]


_GRAMMAR = {
    "opening": (
        "{When_long}, the {place} at {town} was {reputation}. {People_knew} {its_part}, and {few_asked} {what_it_cost}. {Thesis}",
        "Anyone who walks down {street} in {town} {will_notice} the {place} before anything else. {It_looks} {Its_story} {Thesis}",
        "{Short_claim} In {year}, when {anna} {first_came} to {town}, the {place} {had_state}. {Thesis}",
        "There are {number2} pages of notes about the {place} in {town}, and {most_of_them} {product_notes}. {Its_story} {Thesis}",
        "Two things were said of the {place} at {town}: that {saying_one}, and that {saying_two}. {Neither_true} {Thesis}",
    ),
    "when_long": ("For most of a century", "Until about {year}", "Long before {river} was straightened", "In the years after {year}", "When the road to {town2} was still unpaved", "Through three changes of owner"),
    "reputation": ("better known than the town itself", "regarded as [a nuisance|an eyesore|a burden] and [a blessing|a landmark|a necessity]", "the [one|first|only] address that every [child|cab driver|stranger] could find", "a place [people|most travellers|its neighbours] passed without [looking up|slowing down|a thought]", "spoken of with a [respect|fondness|solemnity] that [outsiders|visitors|the young] found [comic|odd|touching]", "run by [anyone|the person] with [enough patience|nothing better to do|a key]"),
    "people_knew": ("People knew", "The older residents could describe", "Visitors photographed", "Every {worker} had an opinion about", "The {users} complained of"),
    "its_part": ("its {part} and little else", "the {part} with its crooked door", "the [noise|smoke|light] that came [out of|from] the {part}", "the {part}, which faced the wrong way"),
    "few_asked": ("hardly anyone asked", "only {anna} ever worked out", "it took an auditor to discover", "nobody on the council could say"),
    "what_it_cost": ("what it cost to keep going", "where the money came from", "why it [stood|was built] on [that|the wrong|the far] side of {river}", "how {a product} could pay for all of it", "who had drawn the first plans"),
    "thesis": ("[What follows|This chapter|The present account] is an attempt to [put that in order|explain it|set it down].", "This is, [in the main|above all|in short], the story of [how|the years in which] {trouble} was [dealt with|denied|discussed].", "The [answer|reason] turned out to have [less|little] to do with {product_s} and [more|much] to do with [two stubborn people|pride|an old map|a lease].", "The papers that survive tell it differently.", "It helps to begin with the people.", "[None|Little|Not all] of this was [planned|intended|foreseen], as the [minutes|letters|accounts] of {year2} [make plain|show]."),
    "product_s": ("the {product}", "money", "the weather", "the {users}", "good intentions"),
    "will_notice": ("will notice", "is bound to see", "comes upon", "has to go around", "smells, hears and finally sees"),
    "it_looks": ("It is [lower|smaller|darker] than [it seems in pictures|one expects], and the {part} has been painted {colour}.", "From the front it looks {adjective}; from the yard, {adjective}.", "The {part} leans a little towards {river}.", "The [sign|tile] over the [door|gate] still [gives|shows] the number {number}, although [the street|everything] was [renumbered|renamed] in {year3}."),
    "colour": ("a dull red", "grey twice over", "the green of old railway carriages", "white, in patches", "a yellow that {boris} chose and defended"),
    "adjective": ("prosperous", "half finished", "older than it is", "almost elegant", "abandoned", "like a school", "solid enough", "improvised", "cheerful in a tired way", "severe"),
    "its_story": ("It was [built|begun|put up] in {year} by {firm}, who [expected|hoped|meant] to sell it [within the year|at a profit|to the town].", "The first {worker} was hired in {month} of {year}, for a season, and stayed until {year3}.", "Nobody is certain when the {part} was added, but a receipt for {sum} crowns, dated {year2}, gives a hint.", "It had opened with [a speech|a prayer|fireworks], [a band|cold punch|too many flags] and {count} guests, of whom {boris_last} was the [youngest|loudest|last to leave]."),
    "short_claim": ("Institutions are made of habits.", "A [building|firm|custom] can outlive its [purpose|owners|reason] and [not know it|be the better for it|still be swept daily].", "Small places keep long accounts.", "Most failures are slow.", "It is [easy|tempting|cheap] to be [wise|clever|stern] about [a thing|a house|a venture] that has [closed|failed|burned down].", "Every [trade|town|family] has a [sentence|joke|warning] that it [repeats|saves] for [newcomers|strangers|bad days]."),
    "first_came": ("first came", "[moved|arrived] with [two trunks|a crate of books|one suitcase] and [a bicycle|a bad cough|three letters]", "was posted", "returned", "accepted [a position|a desk|the post] that [three|several|two] others had [refused|left|laughed at]"),
    "had_state": ("had been shut for a winter", "was losing {sum} crowns a year", "employed {number} people", "belonged to {firm} in name only", "was between [two directors|two owners] and [had neither|knew neither]"),
    "most_of_them": ("most of them", "more than half", "all but the last dozen", "nearly a third"),
    "product_notes": ("concern {product_s}", "were written by {carla}, in pencil", "repeat each other", "deal with {trouble}"),
    "saying_one": ("it had never once opened on time", "it would be the last thing standing", "the {worker} there could [tell|spot] a [liar|thief|banker] by [his shoes|the way he paid|one glance]", "it fed half of {street}"),
    "saying_two": ("it had been a mistake from the start", "{boris_last} had won it at cards", "it could not survive another {season}", "no {product} made there was ever returned"),
    "season": ("winter", "spring", "summer", "autumn", "dry year", "wet year"),
    "neither_true": ("Neither was quite true.", "Both have some truth in them.", "The second is easier to check.", "{Carla} collected a dozen versions of each.", "The [records|registers] contradict the [first|second] and are [silent|vague|evasive] about the [other|rest]."),
    "person": (
        "{Name_intro} {Habit} {Opinion} {Consequence_person}",
        "{Of_all} {anna} {was_the_one} {remembered_for}. {Habit} {Consequence_person}",
        "{Carla} {job_intro}. {Carla_she_cap} {past_deed}, {and_later}. {Opinion}",
        "{Dirk} and {boris} {met_how}, and {for_years} {did_together}. {Contrast} {Opinion}",
    ),
    "name_intro": ("{Anna} was {a worker} before {anna_she} was anything else.", "{Boris}, {boris_trait}, took over the {part} in {year2}.", "The director at that time was {carla}, {carla_trait}.", "{Dirk} had come from {town2}, where {dirk_she} had {past_deed}."),
    "boris_trait": ("[a careful|an honest|a hard] man by [reputation|trade] if not by [record|nature]", "who had studied law and regretted it", "the third of that name in the town", "then barely {number} years old"),
    "carla_trait": ("whose handwriting fills {count} ledgers", "who disliked meetings and called them often", "a chemist by training", "known to the {users} as the {colour_word} lady"),
    "colour_word": ("grey", "quiet", "quick", "second", "other"),
    "past_deed": ("kept the books of {firm}", "repaired instruments for the navy", "taught geometry to unwilling boys", "written a short guide to {river}", "lost a small fortune in {product_s}", "sat on the council for {count} months", "learned to read plans upside down", "sold insurance along {street}"),
    "habit": ("{Anna_she_cap} {arrived_how} and {noted_what}.", "Every {weekday} {anna_she} {walked_where}, {counting_what}.", "It was {anna_hers} habit to {habit_verb} before {habit_event}.", "{Anna_she_cap} owned one coat, {count} pencils and {a product} that {anna_she} would not sell."),
    "arrived_how": ("arrived before the {worker}s", "came in through the {part}", "walked from {street} in any weather", "left at noon", "never sat down before ten"),
    "noted_what": ("noted the temperature twice", "wrote down every excuse", "greeted the {users} by name", "checked the {part} for {trouble_kind}", "asked the same question of everybody"),
    "trouble_kind": ("cracks", "mice", "draughts", "missing tools", "signs of haste"),
    "weekday": ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"),
    "walked_where": ("walked from the {part} to {river} and back", "climbed to the roof", "went through the stores", "called on the {users} in {town2}", "took the early train to {town2}"),
    "counting_what": ("counting under {anna_hers} breath", "carrying a lamp even in June", "followed by the youngest {worker}", "with the plans folded into {a product_box}", "and was back before anyone missed {anna_her}"),
    "product_box": ("biscuit tin", "violin case", "leather tube", "newspaper", "rolled blanket"),
    "habit_verb": ("count the keys", "air the {part}", "read the post aloud", "set the clock by the church", "walk once around the building", "taste the water"),
    "habit_event": ("the first {worker} came in", "any decision", "signing anything", "the bell of St. {carla_last} rang", "the {users} were let in"),
    "opinion": ("{Anna_she_cap} held that {maxim}.", "In {anna_hers} view {maxim}.", "Asked about it later, {anna_she} said that {maxim}.", "The idea behind it was that {maxim}.", "Not everyone agreed; {dirk}, for one, thought that {maxim}."),
    "maxim": ("[a thing|a wall|a friendship] [repaired|mended] twice should be [built again|left alone]", "people forgive delay sooner than silence", "{a product} [shows|keeps|betrays] the [mood|haste|temper] of [its maker|whoever made it|the morning]", "no rule survives its third exception", "the {part} ought to be judged in {month}", "the cheapest offer is always the longest", "[nobody|no official|no owner] reads past the [second|third|first] page of [a report|anything|a contract]", "a {worker} who whistles is not worried yet", "half of {trouble} was bookkeeping", "it is [better|cheaper|kinder] to [close|brick up|sell] a door than to [guard|oil|explain] it", "[numbers|figures|tables] calm [people|those] who [do not add them up|cannot count|like ink]", "one should never promise {a season} in advance"),
    "consequence_person": ("This made {anna_her} {count} friends and one determined enemy.", "It is the [reason|only reason] [why|that] the [records|receipts|diaries] of {year2} are [complete|legible|with us].", "The {users} found it tiresome until {trouble} proved it useful.", "When {anna_she} fell ill in {month}, the {place} all but stopped.", "{Boris_last} [copied|borrowed|sold] the [method|idea] and took the [credit|blame], which {anna_she} [did not seem to mind|noted without comment|never forgot].", "Years afterwards, people in {town2} still did it that way."),
    "of_all": ("Of all the people in this account", "Among the {number} names on the payroll", "In the photographs of {year2}", "[If the town remembers anyone|Ask in the street], [it is probably somebody else|another name will come first], but"),
    "was_the_one": ("was the one", "is the figure", "[stood|stands] at the [edge|back] of the [group|picture], and is the [person|one]"),
    "remembered_for": ("on whom the rest depended", "who asked what {trouble} would cost", "whom strangers took for the owner", "who kept a copy of everything"),
    "carla_she_cap": ("She", "The director", "This quiet person"),
    "anna_she_cap": ("{Anna_she}", "{Anna_last}", "{Anna_first}"),
    "job_intro": ("kept the accounts", "was paid by the week", "looked after the {part}", "spoke for the {users}", "joined in {month} of {year2}"),
    "and_later": ("and later {past_deed}", "though that came out only in {year3}", "which few people knew", "and was proud of neither", "and afterwards moved to {street}"),
    "met_how": ("met over a broken {product_box}", "had been at school together", "disliked each other on sight", "shared a desk from {year} on", "were introduced by {someone}"),
    "for_years": ("for {count} years", "from then on", "until the affair of {year3}", "with one long interruption"),
    "did_together": ("ran the {part} between them", "agreed on nothing but {product_s}", "wrote to each other every {weekday}", "divided the {users} into two camps", "tried to mend {trouble}"),
    "contrast": ("One planned, the other {contrast_verb}.", "Where {dirk} saw {trouble_kind}, {boris} saw an opportunity.", "{Dirk_last} trusted figures; {boris_last} trusted {product_s}.", "It was [said|joked|understood] that together they [made|amounted to|ruined] one [sensible|complete|patient] [person|citizen|clerk]."),
    "contrast_verb": ("remembered", "complained well", "paid", "waited", "talked to the {users}", "drew"),
    "event": (
        "{On_date}, {trouble_came}. {Reaction} {Outcome}",
        "{The_turn} came {on_date_small}, when {someone} {did_surprising}. {Reaction} {Outcome} {Detail}",
        "{Detail} {On_date}, however, {trouble_came}. {Outcome}",
        "What happened {on_date_small} {is_told}. {First_version} {Second_version} {Outcome}",
    ),
    "on_date": ("In {month} of {year2}", "On a {weekday} in {month}", "Late in {year2}", "The {season} of {year2} had hardly begun when", "Before {month} was out", "About {weeks} weeks later"),
    "on_date_small": ("in {month} of {year2}", "on the second {weekday} of {month}", "during the {season} of {year3}", "shortly after the accounts were closed", "{weeks} weeks into the {season}"),
    "trouble_came": ("{trouble} could no longer be ignored", "{a worker} found {count} crates that were on no list", "{firm} sent an invoice for {sum} crowns", "the floor of the {part} gave way", "{boris} announced that the {place} would close for {weeks} weeks", "a letter from {town2} arrived, already opened", "the {users} refused to pay", "two inspectors asked to see the {part}"),
    "reaction": ("{Carla} called everyone into the {part} and {spoke_how}.", "The {worker}s {worker_reaction}.", "{Boris_last} blamed {dirk_last}; {dirk_last} blamed {trouble}.", "At first nothing was done.", "There was talk of selling to {firm}.", "A collection among the {users} brought in {sum} crowns."),
    "spoke_how": ("spoke for four minutes", "read out the figures without comment", "asked for silence and then for ideas", "offered to resign, which nobody had expected", "drew the {part} on a door with chalk"),
    "worker_reaction": ("went on as if nothing had happened", "put down their tools at {count} minutes past ten", "voted, {number} against {count}", "asked for it in writing", "took the matter to {street}"),
    "outcome": ("In the end {ended_how}.", "It took {weeks} weeks before {ended_how}.", "The result was that {ended_how}, and that {ended_also}.", "By {month2} {ended_how}.", "Nobody was surprised when {ended_how}."),
    "ended_how": ("the {part} was rebuilt in brick", "a second {worker} was hired for the nights", "{firm} took back its offer", "the price of {a product} rose by {share} percent", "the council of {town} paid half", "{anna} was asked to write new rules", "they agreed to wait for the {season}", "the whole stock went to {town2} by cart", "everything stayed as it was"),
    "ended_also": ("{dirk} never spoke of it again", "the {users} got a door of their own", "{count} families moved away", "a ledger went missing", "the next {season} was the best on record", "someone had to tell {carla}"),
    "the_turn": ("The turn", "The first real test", "Relief, of a sort,", "What the papers call the incident", "The proof"),
    "did_surprising": ("offered to buy the {part}", "produced a plan from {year}", "asked, [quite innocently|in passing|twice], who [owned|had surveyed|paid for] the [ground|cellar|wall] [under|behind] the {part}", "withdrew {sum} crowns in cash", "came back from {town2} with {count} signatures", "showed that {trouble} had another cause"),
    "detail": ("The {part} measured {number} paces by {count}.", "A photograph from that week shows {count} people, two dogs and {a product_box}.", "The bill, which survives, lists {count} items and one apology.", "It had rained, by {dirk_last}'s count, on {number} days.", "The [key|lamp|hat] hung where it had [always hung|hung for years], [behind|beside|over] the [clock|stove|door].", "Of {number2} letters sent out, {count} were answered."),
    "is_told": ("is told in two ways", "was never fully explained", "fills {count} pages of the report", "looks simple only in outline"),
    "first_version": ("According to {carla}, {trouble_came}.", "The {users} maintain that {trouble_came}.", "The official version is that {trouble_came}."),
    "second_version": ("{Boris} remembered that {trouble_came}, and in another month.", "Others say that {someone} had already {past_deed}.", "A note in the margin claims the opposite.", "The newspaper of {town2} did not mention it at all."),
    "quarrel": (
        "The quarrel between {dirk} and {carla} began over {small_thing}. {Escalation} {Sides} {Outcome}",
        "{Short_claim} When {boris} proposed {proposal}, {dirk} {objected}. {Argument} {Sides}",
        "There were, [broadly|in effect|as always], two [parties|camps]. [One|The larger] wanted {proposal}; the other, led by {someone}, [wanted|held out for] {proposal}. {Argument} {Escalation}",
    ),
    "small_thing": ("a lamp", "the wording of a sign", "{sum} crowns that had been spent twice", "the colour of the {part}", "{a product} given to {a worker} as a present", "who should hold the second key"),
    "escalation": ("Within {weeks} weeks [lawyers|the wives|their clerks] were [writing to|avoiding|suing] [each other|one another].", "By {month} the {worker}s had [stopped using|painted over|locked] the [front|side|inner] door.", "It [went as far as|ended in|led to] [a vote|a scuffle|a hearing] [in the town hall|on {street}|at {town2}].", "Each side printed a leaflet, and {street} was littered with them.", "For [a while|a month|one whole {season}] it was [fought|carried on] [entirely|mostly] by [means of notices|letter|proxy]."),
    "sides": ("The {users} were on nobody's side.", "{Anna} [tried|wished|promised] to [stay|keep] out of it and [could not|did, almost|failed].", "Most people in {town} changed their minds at least once.", "It is [hard|not easy] now to [see|say|explain] what the [difference|point|hurry] was.", "The [younger|newer] {worker}s, who [had to live with|would pay for] either [plan|outcome], were [not asked|asked last]."),
    "proposal": ("a new {part} on the far bank", "to open on {weekday}s", "to sell the {product} by weight", "a merger with the {place} of {town2}", "to charge the {users} a fee of {count} crowns", "to do nothing before {year3}", "steam heating", "to hire {someone} as manager", "a wall against {river}"),
    "objected": ("laughed, which was a mistake", "asked for the figures", "left the room", "called it theft in polite words", "[agreed|nodded] at once and [then|afterwards] did [the reverse|nothing]", "pointed to the rules of {year}"),
    "argument": ("The argument for it was that {maxim}.", "Against this it was said that {maxim}.", "Both could quote {anna}, who had once remarked that {maxim}.", "[What it would cost|The price], {sum} crowns at the [least|lowest], was [mentioned last|whispered|left blank]."),
    "account": (
        "The books for {year2} show {what_books}. {Interpretation} {Comparison}",
        "It is [worth|time for] [looking at|a look at] the [figures|sums]. {Figure} {Figure} {Interpretation}",
        "{Figure} {Comparison} {Interpretation}",
    ),
    "what_books": ("an income of {sum} crowns and [no|one poor] explanation for [a third|half|most] of it", "{number2} entries in {carla_last}'s hand", "that {product_s} paid for everything else", "{count} loans, all from {firm}", "wages for {number} people, {count} more than were employed"),
    "figure": ("Some {number2} of the {users} paid in advance.", "Repairs to the {part} took {share} percent of what came in.", "The {product} brought {sum} crowns in {month} and half of that in {month2}.", "Coal cost more than wages in {weeks} weeks out of the year.", "Debts to {firm} stood at {sum} crowns.", "Each {worker} earned {count} crowns a week, paid on {weekday}s."),
    "interpretation": ("{Dirk_last} read this as proof that {maxim}.", "To {anna} it meant only that {ended_how}.", "The council preferred not to draw conclusions.", "A stricter auditor would have asked about {product_s}.", "It explains, at any rate, why {ended_also}."),
    "comparison": ("In {town2}, with {number} people, they did twice as much.", "[Ten|Five|Twenty] years [earlier|before] the same [work|quantity] had [cost|brought] {sum} crowns.", "That was {share} percent [more|less] than in [the year before|{year}|an ordinary year].", "The {place} of {town2} had closed on better figures."),
    "memory": (
        "{Remembering} {Scene} {Scene_detail} {Reflection}",
        "{Scene} {Remembering_late} {Reflection}",
    ),
    "remembering": ("Those who were [children|apprentices|guests] then [remember|talk of] other things.", "{Dirk} liked to recall an evening in {month}.", "One afternoon of that {season} has been described by several people.", "My own informant, {someone}, spoke mostly about {product_s}."),
    "scene": ("The doors of the {part} stood open, and {music}.", "Lamps had been hung along {river}, and {a worker} {scene_verb}.", "Snow lay against the {part}, and inside {scene_inside}.", "At noon the heat was such that {scene_inside}.", "Fog had come up from {river}; {music}."),
    "music": ("somebody was singing in the yard", "a dog barked at every cart", "the only sound was the pump", "two {worker}s argued about a horse", "one heard the trains as far as {town2}"),
    "scene_verb": ("was asleep on a bench", "recited the names of the {users}", "sold lemonade", "mended nets", "waited for news from {town2}", "carried {anna_last}'s chair outside"),
    "scene_inside": ("{count} people waited without speaking", "they played cards on the lid of {a product_box}", "{boris} read the newspaper aloud", "the {worker}s dried their coats", "everyone had moved to the {part}"),
    "scene_detail": ("There was a smell of tar and oranges.", "{Carla} wore [the same hat|a borrowed coat|black], as in the [photograph|portrait].", "[Someone|A child] had [written|scratched] the year [on the wall|into the plaster], [wrongly|backwards].", "A clock struck {count_small}, and then struck again.", "Nobody had thought to bring the key."),
    "count_small": ("four", "seven", "nine", "eleven", "twice"),
    "remembering_late": ("That, at least, is how {carla} told it in {year3}.", "The picture is from {year2}, but it might be any {season}.", "{Boris_last} denied having been there.", "It is the [last|only|first] time that [all four of them|these names] [appear|are found] together."),
    "reflection": ("It was not [happiness|peace|wealth], [exactly|to be fair], but it [was near|passed for|did instead of] it.", "One understands the {users} better after that.", "Nothing of this is in the minutes.", "The {part} is gone, and so is the bench.", "Perhaps that is [all|as much as] a [place|trade|town] can do.", "What it had to do with {trouble} became clear only later."),
    "voice": (
        '"{Quote}" {Said_who}. {After_quote} {Reflection}',
        '{Asked_about}, {dirk} {shrugged}: "{Quote}" {After_quote}',
        '"{Quote}" {said_who}. "{Quote}" {After_quote}',
    ),
    "quote": ("You could not [explain|sell|describe] the {part} to [anyone|a person] who had [not|never] [stood|slept|worked] in it.", "We had {count} good [years|months], and I would [not swear to|take back] the [last|first] one.", "First they took the {product}, then they took the sign.", "I told {boris_first} that {maxim}, and [he|our friend] [wrote it down|sold it|quoted it] as [his own|scripture].", "Every {worker} knew about {trouble}; [it was the owners|only the owners] [who were surprised|acted surprised].", "If you ask me, {firm} never wanted it to succeed.", "My mother walked from {town2} for that, in {month}, and it was shut.", "It was {carla_first} who paid, in the end."),
    "said_who": ("said {someone}", "said {anna}, who had heard it all before", "{boris} told a visitor in {year3}", "is how {a worker} put it", "wrote {dirk} on the back of a bill"),
    "after_quote": ("Others nodded, or looked at {river}.", "It is not a bad summary.", "The [remark|phrase|joke] was repeated until it [became|passed for] a [proverb|law|greeting] in {street}.", "Then the talk turned to {product_s}.", "There was no answer to that."),
    "asked_about": ("Asked about the {season} of {year2}", "When the subject of {trouble} came up", "To the question who had signed", "Much later, on a bench by {river}"),
    "shrugged": ("shrugged", "took a long time to answer", "smiled", "corrected the date first", "said only"),
    "letter": (
        "A letter from {carla} to {boris}, dated {month} {year2}, {letter_about}. {Letter_line} {Letter_line} {Reflection}",
        "{Boris} wrote to {firm} in {month}: {letter_line_small} {Letter_line} The [reply|answer], if there [was|is] one, [has not been found|is lost|came too late].",
    ),
    "letter_about": ("runs to {count} pages", "was never posted", "mentions {trouble} in its first line", "is mostly about {product_s}", "contradicts what she said in public"),
    "letter_line": ("She hopes that {ended_how}.", "The {part}, it says, cannot wait for the {season}.", "There follow {count} lines about {someone}, crossed out.", "He is asked to bring {sum} crowns and {a product_box}.", "Of {dirk} it says only that {dirk_she} has been {adjective} of late.", "It closes with the remark that {maxim}."),
    "letter_line_small": ("the {part} would be ready by {month2}, or not at all.", "he regretted {trouble} as much as anyone.", "of the {sum} crowns only a third had arrived.", "the {worker}s had been promised [what|more than] [he|anyone] could [not give|pay|imagine]."),
    "method": (
        "The [work|craft|routine] itself was [simple|easy|quick] to [describe|name|draw] and [hard|slow|dull] to [do|learn|bear]. {Step_one} {Step_two} {Step_three} {Step_comment}",
        "{Step_comment} {Step_one} Then {step_small}, and after {weeks} days {step_small}. {Step_three}",
    ),
    "step_one": ("Before dawn {a worker} opened the {part} and {step_small}.", "First {step_small}, always in the same order.", "One began by looking at {river}, since everything depended on that."),
    "step_two": ("While that was done, {step_small}.", "A second pair of hands {step_hands}.", "Only then was the {product} brought out."),
    "step_three": ("Whatever failed was written on a slate.", "By [evening|noon|closing time] {count} of them were [ready|done], and [perhaps|with luck] one was [perfect|flawless|worth keeping].", "The [last|second|hardest] step could not be [taught|hurried]; one [watched|followed] {anna} for {a season} or two.", "The {users} saw [none|little|half] of this, which was [thought|called] [proper|lucky|a pity]."),
    "step_small": ("the tools were counted", "the {product} was left to rest", "everything was rinsed in water from {river}", "the [weights|clocks|scales] were [checked|set] against those of {town2}", "the windows were shut", "someone tapped along the wall and listened"),
    "step_hands": ("held the lamp", "kept the count", "turned the wheel at a walking pace", "wrote the number {number} on the lid", "stood by in case of {trouble_kind}"),
    "step_comment": ("{Maxim_cap}, as {dirk} used to say.", "It took {weeks} weeks to [learn|forget] and [a lifetime|one evening|years] to [explain|regret|describe].", "[Manuals|Drawings] exist, but {boris_last} used them to [prop up a shelf|light the stove|wrap fish].", "[Machines|Others] did it [later|elsewhere], [faster|cheaper], and with {share} percent more [waste|noise|profit]."),
    "maxim_cap": ("A slow hand makes no scrap", "Nothing is lost that is written down", "The river decides", "Ask twice and lift once", "Cold fingers tell no lies"),
    "thought": (
        "{General} {General_two} {Back_to}",
        "It may be asked whether {question}. {General} {Back_to}",
    ),
    "general": ("[Places|Houses] like this are [judged|remembered] by what they [make|sell], although what they [do|really do] is [keep people in one room|mark the hours|give {town} something to say].", "There is a [kind of competence|patience|sort of work] that leaves [no trace|no monument] except that [nothing went wrong|people slept|the {part} stood].", "Towns the size of {town} forget slowly and all at once.", "What [looks|sounds] like [stubbornness|courage|wisdom] from [outside|afar] is [often|mostly] [only the lack of|no more than] a [second plan|better offer|way home].", "Prosperity hides more than poverty does.", "A rule is a [memory|quarrel|wish] with its [reason|date|author] [torn off|forgotten]."),
    "general_two": ("The {users} of {town} knew it without the words.", "One sees it in the [minutes|letters]: the [longer|louder] the [discussion|preface], the [smaller|vaguer] the [sum|result].", "{Carla} would have put it more sharply.", "That is no comfort to {a worker} without wages.", "It is true of {town2} as well."),
    "back_to": ("But to return to {year2}: {ended_how}.", "The {part}, meanwhile, still had to be paid for.", "In any case {trouble} did not wait for philosophy.", "Which brings us to {dirk}, and to the {season} that followed."),
    "question": ("{anna} could have known", "{a product} is worth {a season} of work", "the {place} should have been moved to {town2}", "{trouble} was anyone's fault", "the {users} got what they asked for"),
    "visit": (
        "Today one reaches it {reached_how}. {Today_see} {Today_see} {Reflection}",
        "{On_date} {someone} came to {visit_purpose}. {Visitor_saw} {After_quote}",
    ),
    "reached_how": ("on foot from {street}", "by the bus that leaves {town2} at {count_small}", "over the new bridge", "along the bank of {river}", "only by asking"),
    "today_see": ("The {part} houses a shop for bicycles.", "A plaque gives the dates, one of them correctly.", "Where the {worker}s [ate|smoked|quarrelled] there is now [a row of birches|a kiosk|gravel].", "The wall on the [east|river|north] side still [carries|shows] the [mark|flood line|paint] of {year3}.", "Inside, behind glass, lies {a product} with a torn label."),
    "visit_purpose": ("draw the {part}", "see whether {trouble} was as bad as people said", "buy {a product}", "interview {anna}, who refused", "count the {users}"),
    "visitor_saw": ("What struck the visitor was how {adjective} it all looked.", "The report that followed had {count} pages and praised the {worker}s.", "{Boris_last} showed everything except the cellar.", "It took [an hour|a morning|most of a day], and [at the end of it|afterwards] {ended_also}."),
    "change": (
        "After {year2} {change_came}. {Change_effect} {Change_effect} {Outcome}",
        "{Change_slow} {Change_effect} {Reflection}",
    ),
    "change_came": ("[everything|most of] what [came|went] by water [came|went] by [rail|road]", "{firm} changed hands twice", "the young went to {town2} and stayed there", "a cheaper {product} appeared, made by machine", "the {users} had other choices"),
    "change_effect": ("The {part} was used for storing chairs.", "Of {number} {worker}s, {count} remained.", "{Carla} learned to type.", "People who had [sworn|promised] never to [sell|leave|sign] began to [name a price|pack|waver].", "There was more [light|space|time], and less to [do in|fill] it.", "{Dirk_last} called it progress, without irony."),
    "change_slow": ("The [change|decline|shift] was so [slow|quiet] that nobody [dated|noticed|blamed anyone for] it.", "One can [watch|follow] it in the [photographs|lists|menus]: [fewer hats|shorter names|paler ink] each year.", "It [began|started] with the [telephone|motor bus|price of coal], which [was put in|reached|emptied] the {part} and [rang for other people|surprised no one|stayed]."),
    "ending": (
        "{End_state} {End_person} {End_line}",
        "{End_person} {End_state} {End_line}",
    ),
    "end_state": ("The {place} at {town} closed in {year3}, on a {weekday}.", "It is still there, in a manner of speaking.", "In {year3} the council bought it for {sum} crowns and one condition.", "Since {year3} it has belonged to the {users} themselves."),
    "end_person": ("{Anna} lived for another {count} years on {street}.", "{Boris} and {carla} are buried within {number} paces of each other.", "Of {dirk} nothing more is known.", "{Carla} [gave|left|sold] her [notes|letters|keys] to the [archive|school|museum] of {town2}, in {count} [boxes|parcels]."),
    "end_line": ("The river has moved a little since.", "The key, I am told, still fits.", "Nobody has repainted the {part}.", "And {trouble}, [it must be said|I am sorry to say|after all that], was [never solved|solved by accident|forgotten].", "What [remains|is left] is [a good deal of paper|one wall|a bench], and a [smell|trace] of {smell}."),
    "smell": ("apples", "lamp oil", "wet rope", "chalk", "bread", "varnish"),
}

DOMAIN = Domain(_GRAMMAR, _values, _plan, _paragraph)
