"""Word lists, and the keys, values and words for counting that are drawn from them.

673 adjectives and 1770 nouns give 1,191,210 pairs. No noun begins with another noun, so no pair is a substring of
another pair.
"""

from __future__ import annotations

import random
import uuid
import zlib
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Literal

from leadline.core.errors import SourceError
from leadline.core.seeds import Split, bulk_rng, of_split, split_of
from leadline.core.types import ValueKind

# --- word lists ---

ADJECTIVES = tuple(
    """
    able abrupt absent absolute abundant adept adverse aerial afraid agile airy alert alien alpine amber ambient
    amiable ample amusing ancient angular annual anxious apt aquatic arctic ardent arid artful artistic ashen astute
    atomic austere autumn avid awake awkward azure balmy bare barren bashful basic beloved benign bitter bland
    blissful blithe blunt boastful bold bony boreal boundless brainy brash brave brazen breezy brief bright brisk
    brittle broad bronze bubbly bulky bumpy buoyant burly busy calm candid capable careful casual cautious central
    chalky charming cheerful chief chilly chubby circular civil classic clean clever cloudy clumsy coarse coastal
    cobalt cold colossal comic compact complex composed concise concrete content convex coral cordial costly cosy
    crafty cranky creaky creamy creative crimson crisp crooked crowded crude crunchy cryptic cubic culinary curious
    curly curved daily dainty damp dapper dark dashing dawning dazzling dear decent decimal deep deft delicate dense
    devoted digital diligent dim dire discreet distant dizzy docile dormant dozing drab dramatic dreamy drowsy dry
    dual durable dusky dusty dutiful dynamic eager early earnest earthy eastern easy ebony eccentric edible elastic
    elder electric elegant eloquent elusive eminent empty enormous epic equal essential eternal ethical evident
    exact exotic expert explicit exquisite external fabled fabulous faded faint fair faithful famous fanciful fancy
    fearless feral fertile festive fickle fiery final fine firm flat flawless fleet flexible flimsy floral fluent
    fluffy foamy foggy fond forceful foreign formal fortunate fragile fragrant frail frank frantic free fresh
    friendly frigid frosty frozen frugal fruity functional furry fuzzy gallant generous genial gentle genuine giant
    giddy gilded glad glassy gleaming gleeful gloomy glorious glossy golden graceful gracious gradual grand grassy
    grateful grave gritty groovy gruff grumpy handy hardy harmless harsh hasty hazy healthy hearty heavy helpful
    heroic hidden hilly historic holistic hollow homely honest hopeful hostile humble humid hungry husky icy ideal
    idle immense impartial inland inner innocent intense intrepid intricate invisible ivory jade jagged jaunty
    jealous jolly jovial joyful jubilant juicy keen kind knightly knotted lame lanky large late lavish lazy leafy
    lean learned lenient level light likable lilac limber linear liquid literal lively local lofty logical lonely
    loud lovely loyal lucid lukewarm luminous lunar lush lyrical magnetic majestic manual marine massive mature
    maximal meager medieval mellow mental merry metallic meticulous mighty mild minimal minor misty mobile moderate
    modern modest moist molten monthly mortal mossy muddy muffled musical muted mutual mystic naive narrow native
    natural nautical neat nebulous nervous neutral nimble noble nocturnal noisy nominal normal northern notable
    novel numeric obedient oblique oblong obscure odd official olive onward opal opaque optical orderly ordinary
    organic ornate outdated outer oval overcast pale paltry parallel partial passive patient peaceful pearly
    peculiar perfect periodic petite pivotal placid plain playful pleasant plucky plush pointed polar polished
    polite popular porous portable positive potent practical precious precise premium pretty previous prickly primal
    prime private prolific prompt proper proud prudent pungent puzzled quaint quick quiet quirky radiant radical
    ragged random rapid rare raspy rational recent reckless regal regular relaxed reliable remote resolute rigid
    ripe robust rosy rotund rough round royal ruddy rugged rural rustic sacred salty sandy satin savory scarce
    scenic scruffy secluded secret secure sedate senior serene serious shady shaggy shallow sharp shiny short shrewd
    silent silken silver simple sincere skilled sleek sleepy slender slim slippery slow smoky smooth snowy snug
    sober social soft solar solemn solid sonic sour southern spacious sparse special speedy spicy spiral splendid
    spotless square stable stark stately steady steep sterile stern sticky still stony stormy stout strict striped
    strong stubborn sturdy subtle sudden sugary sunny superb supple sweet swift symbolic tacit tall tame tangible
    tart tawny tedious tender tepid terse thick thin thirsty thorny thorough thrifty tidal tidy timely timid tiny
    tired tolerant topical tough tranquil trim tropical trusty truthful turbulent twisted typical unique united
    unlikely upbeat upper upright urban urgent useful usual vacant vague valiant valid vapid vast velvet verbal
    versatile vertical vibrant victorious vigilant vintage violet vital vivid vocal warm wary watchful watery wavy
    weary weekly western whole wide wild willing windy wintry wise wistful witty wooden woolly worldly worthy woven
    yearly yellow young youthful zany zealous zesty
    """.split()
)

NOUNS = tuple(
    """
    abacus abbey academy accent account acorn acrobat actor adapter address adult advent advice affair agenda agony
    airport alarm album alcove alibi alley alliance almond alphabet altar aluminum ambush amulet analyst anatomy
    anchor angel anger angle ankle antenna anthem antique antler anvil apple apron aquarium arbor arcade arch arena
    argument armor army aroma arrow artist aspect aspirin athlete atlas atom attic attorney auction audience author
    autumn avenue award axis axle bachelor backpack bacon badge bagel baggage bagpipe bakery balance balcony ballad
    ballet balloon ballot bamboo banana bandage bandit banjo banner banquet baptism barber barge baritone barley
    barn barrel barrier baseball basil basin basket bassoon battery battle bay bazaar beach beacon beam beaver
    bedroom beetle beggar behavior belief bell bench berry beverage bicycle billion biology birch biscuit bishop
    bison blade blanket blizzard block blossom blouse bluff board bobbin bolt bomber bonfire bonnet bonus book
    border bottle bottom boulder bouquet bowl boxer bracelet brain brake bramble branch brass bravery breath breeze
    brewery bribe brick bridge bronze brook broom broth brush bubble bucket buckle budget buffalo buffet bugle
    builder bulb bullet bumper bundle buoy bureau burger butcher butter button buyer cabbage cabin cable cactus
    caddie calcium calendar calf camel camera campus canal canary candidate candle cannon canoe canopy canteen
    canvas canyon cape capital captain caption caramel caravan carbon cardigan cargo carnival carol carpet carriage
    carrot carton cartoon cascade casino cassette castle casualty catalog cathedral cattle cauldron caution cavern
    cavity cedar ceiling celery cellar cement census century ceramic cereal chain chalice chalk chamber champion
    channel chaos chapel chapter charcoal chariot charity chart chassis chemist cherry chess chest chicken child
    chimney chisel choir chorus cider cinder cinema cinnamon cipher circle circuit circus citadel citizen clarinet
    classroom clause clay clerk client cliff climate clinic cloak clock cloister cloth clover clown cluster coach
    cobbler cobweb cocoa coconut coffee coin collar college colony column comedy comet comfort comma commerce
    committee company compass compost computer concert condor conduct cone congress container contest contract
    convent cookie copper cork corner cosmos costume cottage cotton couch council counter country courage cousin
    cove cowboy coyote cracker cradle crane crate crayon creature credit creek crest cricket crisis critic crocus
    crossing crown cruiser crumb crusade crystal cube cuisine culprit culture cup currency cursor curtain cushion
    custom cycle cylinder cymbal dagger dahlia daisy dam dancer danger database daughter dawn dealer debate debris
    decade deficit delta democracy dentist deposit deputy descent desert design desk dessert detail device dial
    diamond diary diesel dilemma dinner diploma director disaster disc disease dish disorder display district
    divorce dock doctor document dolphin domain dome donkey door dough dove dragon drain drama drawer dread dresser
    drift driver drizzle droplet drought drum duchess duel duke dune dusk duster dwelling dynasty eagle earring
    earthquake easel echo eclipse economy edge edition editor educator effort elbow elephant elevator elk elm
    embassy ember emblem emerald emotion empire employer emu encounter energy engine enigma envelope envoy episode
    equator era error escape essay estate estuary ethics evening evidence exam exhaust exhibit exile expense expert
    export extent eyebrow eyelid fable fabric facade factory faculty failure faith falcon family famine farm fashion
    father faucet favor feast feather fellow fence fern ferry festival fever fiber fiction fiddle field fig filter
    finance finger fire fisherman fixture fjord flag flame flannel flask flavor flea fleet flight flint flock flood
    floor flour flower fluid flute foal foam focus folder folk folly food football forecast forehead forest forge
    fork formula fort fossil foundry fountain fox fraction fragment frame freckle freight friend fringe frog
    frontier frost fruit fuel fugitive funeral fungus funnel furnace fuse future gable gadget galaxy galleon gallery
    gallon gamble game garage garbage garden garlic garment garnet gas gate gazelle gender general genius geology
    geometry gesture geyser ghost gift ginger giraffe glacier glade glaze globe glory glove glue goalie goat goblet
    goddess goose gorge gorilla gospel gossip grain grammar granary grandson granite grape graph grass gravel
    gravity grease grid grief grill grocer grotto ground group grove guardian guest guide guild guitar gull gutter
    gymnast habit hail hair halibut hallway halo hamlet hammer hammock hamster handle hanger happiness harbor
    hardware harness harp harvest hat hawk hazard hazel head health heart heaven hedge heifer height heir helmet
    herald herb heritage hermit hero hexagon hiccup hickory highway hill hinge hive hobby hockey holiday hollow home
    honey hood hook horizon hornet horse hospital hostage hotel hound hour house human hunger hunter hurdle
    hurricane hut hydrant hyena hymn iceberg icicle icon idea idiom igloo illness image impact import impulse
    incense inch income index industry infant injury ink inlet insect inside instinct insult interest invoice iris
    iron island issue item ivy jacket jaguar jail jam janitor jar jasmine jaw jazz jeans jelly jersey jester jetty
    jewel jigsaw jockey journal journey joy judge jug juice jungle junior juniper jury justice kangaroo karate kayak
    keeper kennel kernel kettle key kidney kiln kingdom kiosk kitchen kite kitten knapsack knee knife knight knoll
    knot knuckle koala label labor ladder ladle ladybug lagoon lake lamb lamp landlord language lantern lapel larch
    lard laser lasso latch lattice laundry laurel lava lawn lawyer layer leader leaf league leather lecture ledge
    leech legend leisure lemon length lens leopard lesson letter lettuce lever liberty library license lichen lid
    lighthouse lily limb limestone line lion liquor listener liter litter liver lizard llama loaf lobby lobster
    location lock locust lodge loft logic loom lottery lotus lounge luggage lumber lunch lung lute luxury lynx lyric
    machine madam magazine magic magnet magnolia maid mail majority mallet mammal manager mandate mango manor mantle
    manual maple marathon marble margin marker market marriage marsh mascot mask mason massage mast match material
    matrix mattress maxim mayor maze meadow meal measure meat mechanic medal medicine melon member memo menace
    mentor menu merchant mercury mermaid message metal meteor method metro microbe midnight migrant mileage military
    milk mill miner minister minnow minority minstrel mint minute miracle mirror mischief mission mitten mixture
    moat model module molecule moment monarch money monitor monkey monopoly monsoon monster month monument mood moon
    morning morsel mortar mosaic mosquito moth motion motive motor mountain mouse mouth movie muffin mule muscle
    museum mushroom musician musket mustard mystery myth napkin narrator nation nature navy nebula necklace nectar
    needle neighbor nephew nerve nest network neuron newcomer nickel niece night noise nomad noodle noon north nose
    notebook notion nougat nurse nutmeg nylon oak oasis oatmeal obelisk object obstacle occasion ocean octagon
    octopus odor offense office offspring oil ointment onion opera opinion optician orbit orchard orchid organ
    origin orphan osprey ostrich otter ounce outcome outfit outlaw outlet outline outpost output oven owner oxygen
    oyster pace package packet paddle padlock page paint palace palette palm pamphlet pancake panda panel panic
    panther pantry papaya paper parade paradox parcel parent parish parlor parrot parsley partner passage passport
    pasta pastor pastry patch patent path patio patriot patrol pattern payment peach peacock peanut pear peasant
    pebble pedal pelican pencil pendulum penguin pension people pepper perch perfume period permit person petal
    petition pharmacy pheasant phone photo phrase physics piano pickle picnic picture pier pigeon pilgrim pillar
    pillow pilot pine pioneer pipe pirate pistol pitcher pizza planet plank plant plaster plate platform player
    plaza pledge plenty plot plow plumber plunder pocket poem poet poison pole police policy polygon pond pony
    poodle pool popcorn porch pork porridge portal portion portrait possum postcard potato pottery poultry powder
    power praise prayer preacher prefix premise presence present primate prince print prison prize problem process
    product profit program project promise proof prophet prose protein province prune publisher puddle pulley pulse
    pumpkin punch puppet purchase purse puzzle pyramid quail quality quarrel quarry quarter quartz queen query quilt
    quota rabbit raccoon radar radio radish raft railway rain raisin ranch ransom raven razor reader rebel receipt
    recipe record recruit reef referee refuge region relative relic relief remark remedy repair reptile republic
    request rescue resident resort respect result retreat revenge revenue review reward rhyme rhythm ribbon rice
    riddle rider rifle ring riot ritual rival river road robber robin robot rocket rodent role roof room rooster
    root rope rose rotor route routine rubber rubbish ruby rudder ruin ruler rumor runner runway sabre saddle safari
    saffron saga sail saint salad salary salmon saloon salute sample sandal sandwich sapphire sardine satchel
    satellite satire saucer sausage scaffold scale scandal scanner scarf scene scholar school science scooter scope
    score scout screen screw script scroll sculptor seafood seal season seat secretary sector seed segment seminar
    senate sentinel sequel sergeant series sermon servant session settler shadow shampoo shape shark shed sheep
    shelf shell shelter sheriff shield ship shirt shoe shop shore shoulder shovel shower shrimp shrub shuttle
    sibling sierra signal silence silk singer siren sister skate skeleton sketch ski skull sky slate sled sleeve
    slice slipper slogan slope smile smoke snack snail snake snow soap society sock soda sofa soil soldier solution
    sonnet soul sound soup source south space spade spaniel sparrow speaker spear spectrum speech sphere spider
    spinach spine spirit splinter sponge spoon sport spring spruce spur squad squid squirrel stadium staff stage
    stain stair stamp stanza star statue status steak steam steel stem step stereo stew stick stitch stock stomach
    stone stool storm story stove stranger straw stream street string stripe student studio style subject suburb
    subway success sugar suit sulfur summer summit sun supper supply surface surgeon surplus surprise survey swamp
    swan sweater swing sword symbol symptom syrup system table tactic tailor talent talon tangerine tank target
    tariff tavern tax teacher team teapot technique teenager telegram telephone temper temple tenant tennis tent
    terrace terrain territory theater theme theory therapy thermos thief thigh thimble thistle thread threat throat
    throne thumb thunder ticket tide tiger tile timber tissue title toad toast tobacco toddler tomato tomb tongue
    tool tooth topic torch tornado torpedo tortoise tower town toy track tractor trader traffic tragedy trail
    trainer tram transit trap travel tray treasure treaty tree tremor trend trial triangle tribe tribute trick
    trigger trio tripod triumph trolley trombone trophy trouble trout truck trumpet trunk trust tube tulip tuna
    tundra tunnel turban turbine turkey turnip turret turtle tutor tuxedo twig twin tycoon typhoon umbrella uncle
    unicorn uniform union universe vaccine vacuum valley value valve van vapor variety vase vault vector vegetable
    vehicle veil vein vendor venom venture verandah verdict verse vessel vest veteran victim victory video village
    villain vine viola violin virtue virus visa vision visitor voice volcano volleyball volume voucher voyage
    vulture wafer waffle wagon waist waiter walnut walrus warden wardrobe warehouse warning warrior wasp water
    wealth weapon weasel weather wedding weed week welcome welfare whale wheat wheel whip whisker whistle wick widow
    width wilderness willow window wine wing winner winter wire wisdom witness wizard wolf wonder wood wool workshop
    world worm wreath wrench wrestler wrist writer yacht yard yarn year yeast yogurt yolk zebra zenith zeppelin
    zigzag zipper zodiac zone
    """.split()
)

VERBS = tuple(
    """
    abandon abolish absorb abstain accept accuse achieve acquire adapt adhere adjust admire admit adopt adore
    advance advise afford agree allow amaze amend amplify analyze announce annoy appear applaud apply appoint
    approve argue arise arrange arrest arrive assemble assert assign assist assume assure astonish attach attain
    attempt attend attract avoid awaken bake banish bargain bathe become begin believe belong betray blame bleach
    bless blink boil borrow bounce braid breathe breed bring broaden browse build bulldoze burn bury calculate
    cancel capture carve celebrate chase chatter choose chop churn clarify classify climb cling collapse collect
    combine commit compare compel compete compile complain comply compute conceal concede conclude condemn confess
    confirm confuse connect conquer consider consist construct consult consume contain continue convert convince
    cooperate copy correct crawl create crush cultivate cure dance dangle dare dazzle deceive decide declare decline
    decorate decrease dedicate deduce defeat defend define delay delete deliver demand deny depart depend deprive
    derive describe deserve desire destroy detach detect develop devise devour differ digest dilute diminish
    disagree discover discuss dislike dismiss disperse dissolve distribute dive divide donate doubt drag draw drown
    dwell earn eliminate embark embrace emerge emit emphasize employ enable enchant endure enforce engage enhance
    enjoy enlarge enrich ensure entertain entwine erase erode establish estimate evaluate evaporate evolve examine
    exceed exchange exclude excuse execute exist expand expect explain explode explore expose express extend extract
    fasten fathom fetch fidget finish float flourish fluctuate flutter follow forbid forget forgive fulfill furnish
    gallop gather gaze generate giggle glance glide glimpse glitter glow grab graduate grasp graze greet grieve
    grind growl guarantee guess hang happen harmonize hasten hesitate hibernate hire hoard hoist hop hover howl hug
    hum hurry identify ignite ignore illustrate imagine imitate immerse imply impose impress improve include
    increase indicate inflate inform inhabit inhale inherit inject innovate inquire insert insist inspect inspire
    install instruct intend interact interpret interrupt intervene introduce invade invent invest invite involve
    irritate isolate jiggle jog join juggle jump justify kneel knit knock know lament laugh launch lean learn leave
    lend liberate lift linger listen locate loosen lower lurk magnify maintain manage manufacture march marvel
    meander meddle meditate meet melt memorize mend mention merge migrate mimic mingle modify motivate mount move
    multiply mumble murmur mutter narrate navigate negotiate nibble nominate notice notify nourish nudge obey oblige
    observe obtain occupy occur offend operate oppose organize oscillate overcome overlook overtake participate
    pause penetrate perceive perform perish persist persuade pinch plead please plunge polish ponder possess
    postpone pounce practice precede predict prefer prepare prescribe preserve pretend prevail prevent proceed
    proclaim produce progress prohibit prolong pronounce propel propose prosper protect provide provoke publish pull
    punish pursue push qualify quench quiver radiate raise ramble reach react realize reassure rebuild recall
    receive recite recognize recommend recover recycle reduce refer reflect refrain refuse regret rehearse reject
    rejoice relate release rely remain remember remind remove render renew repeat repel replace reply represent
    require resemble reserve resign resist resolve respond restore restrict resume retain retire retrieve return
    reveal reverse revive revolve rinse roam roar roast rotate rustle sacrifice satisfy saunter scatter scold
    scramble scrape scratch scream scrub seek seize select send separate serve settle sever shake share shatter
    shave shimmer shine shiver shout shrink shrug shuffle signify simmer simplify sing sit skip sleep slide smear
    smell snatch sneeze sniff snore soak soar solve soothe sparkle speak specify spend spill spin splash split
    sprinkle sprout squeeze stagger stare startle starve stimulate stir stretch stroll struggle study stumble submit
    subscribe subtract succeed suffer suggest summon supervise suppose surrender surround survive suspend sustain
    swallow sway swear sweep swell swim tackle teach tease tempt terminate thank thrive throw tickle tighten
    tolerate topple toss touch trample transfer transform translate transmit transport travel tremble trim tumble
    twinkle twist undergo understand undertake unfold unite unlock unpack unravel update uphold utter vanish vary
    venture verify vibrate visit volunteer vow wade wander want warn wash waste watch wave weave weep whirl whisper
    widen wiggle win wipe wish withdraw wither withhold withstand wobble wrap wriggle write yawn yearn yell yield
    zoom
    """.split()
)


# --- keys and values ---

SINGULAR: dict[ValueKind, str] = {"words": "word", "numbers": "number", "uuids": "code"}
PLURAL: dict[ValueKind, str] = {"words": "words", "numbers": "numbers", "uuids": "codes"}


LONGEST_VALUE: dict[ValueKind, int] = {
    "words": max(map(len, ADJECTIVES)) + 1 + max(map(len, NOUNS)),
    "numbers": 7,
    "uuids": 36,
}
"""Characters."""


def draw_value(kind: ValueKind, rng: random.Random) -> str:
    """One key or value, from either split. As in RULER (arXiv 2404.06654), numbers have 7 digits and UUIDs are
    version 4."""
    if kind == "words":
        return f"{rng.choice(ADJECTIVES)}-{rng.choice(NOUNS)}"
    if kind == "numbers":
        return str(rng.randrange(1_000_000, 10_000_000))
    return str(uuid.UUID(int=rng.getrandbits(128), version=4))


def value_side(value: str) -> Split:
    """The split of a key or value. Its last part decides, so that lines can be put together from parts."""
    return split_of(value.rpartition("-")[2])


def draw_new_value(kind: ValueKind, rng: random.Random, taken: set[str], split: Split = "test") -> str:
    """A value of this split that is not in `taken`; it is added to `taken`."""
    for _ in range(4000):
        value = draw_value(kind, rng)
        if value not in taken and value_side(value) == split:
            taken.add(value)
            return value
    raise ValueError(f"cannot draw another of {kind}: {len(taken)} are taken")


def listed(names: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


# --- words to count: English words first, then coined ones where a list needs more ---
#
# No word of the pool is a substring of another, so that naming one never gives credit for another under a substring
# scorer. (In RULER's own pool one word in four is.)

Vocabulary = Literal["english", "coined"]
CONSONANTS, VOWELS = "bdfghjklmnprstvwyz", "aeiou"
SYLLABLES = tuple(c + v for c in CONSONANTS for v in VOWELS)
LEAST_LETTERS = 4
KEPT_FOR_DEMONSTRATIONS = 8
"""One English word in KEPT_FOR_DEMONSTRATIONS is used in demonstrations and never in a list."""
_UNWANTED = ("nig", "fag", "jap", "rape", "tit", "poo", "pus", "suk", "fuk", "nazi", "homo")
_SAID_BY_US = frozenset(
    "assist common count decline example follow know list number please question request word".split()
)
"""Words of instructions, refusals and polite phrases: an answer may contain them without naming them."""


@cache
def english_words() -> tuple[str, ...]:
    """English words, none of which is a substring of another, sorted."""
    words = {w for w in (*ADJECTIVES, *NOUNS, *VERBS) if len(w) >= LEAST_LETTERS} - _SAID_BY_US
    inside = {part for word in words for part in _parts(word) if part != word}
    return tuple(sorted(words - inside))


def _parts(word: str) -> Iterator[str]:
    for start in range(len(word)):
        for end in range(start + LEAST_LETTERS, len(word) + 1):
            yield word[start:end]


def _is_for_demonstrations(word: str) -> bool:
    return zlib.crc32(word[::-1].encode()) % KEPT_FOR_DEMONSTRATIONS == 0


@cache
def demonstration_words(split: Split) -> tuple[str, ...]:
    return of_split(filter(_is_for_demonstrations, english_words()), split)


@cache
def list_words(count: int, vocabulary: Vocabulary, split: Split) -> tuple[str, ...]:
    """At least `count` words for lists: English ones unless `vocabulary` is coined, then coined ones."""
    english = () if vocabulary == "coined" else of_split(english_words(), split)
    words = [w for w in english if not _is_for_demonstrations(w)]
    coined = _coined(split)
    words.extend(word for _, word in zip(range(count - len(words)), coined, strict=False))
    if len(words) < count:
        raise SourceError(
            f"{count:,} different words are needed and there are {len(words):,}",
            where="word list",
            fix="use a shorter length, or repeat uncommon words more often (freq_ucw)",
        )
    return tuple(words)


def english_count(vocabulary: Vocabulary, split: Split) -> int:
    """Number of English words at the beginning of `list_words`."""
    return len(list_words(0, vocabulary, split))


def _coined(split: Split) -> Iterator[str]:
    """Words of three syllables. All have one length, so none is a substring of another."""
    size = len(SYLLABLES)
    english = frozenset(english_words())
    parts_of_english = frozenset(part for word in english for part in _parts(word) if len(part) == 6)
    for number in bulk_rng("coined words").permutation(size**3).tolist():
        word = SYLLABLES[number % size] + SYLLABLES[number // size % size] + SYLLABLES[number // size**2]
        if split_of(word) != split or word in parts_of_english:
            continue
        if _holds_any(word, english) or any(unwanted in word for unwanted in _UNWANTED):
            continue
        yield word


def _holds_any(word: str, others: Iterable[str]) -> bool:
    return any(part in others for part in _parts(word))
