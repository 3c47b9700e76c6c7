"""Words of ours to make keys and values from: 204 adjectives and 269 nouns give 54,876 pairs."""

from __future__ import annotations

ADJECTIVES = tuple(
    """
    able agile airy amber ample ancient apt arctic arid ashen astute autumn avid awake azure balmy bare bashful basic
    bitter bland blithe blunt bold bony boreal brash brave breezy brief bright brisk brittle broad bronze bubbly bulky
    burly calm candid careful chalky chief chilly civil clean clever cloudy coarse coastal cobalt cold comic coral cosy
    crafty creamy crimson crisp crude curious curly daily dainty damp dapper dark dawning dear deep deft dense dim dire
    distant docile dozing drab dreamy dry dusky dusty eager early earnest earthy easy ebony elder elegant empty equal
    exact fabled faded faint fair famous fancy feral fertile fiery final fine firm flat fleet floral fluent fluffy foggy
    fond formal frail frank free fresh frosty frugal gallant gentle giant giddy gilded glad glassy gloomy glossy golden
    grand grassy grave gritty gruff hardy hasty hazy hearty heavy hidden hollow honest humble humid husky icy idle inner
    ivory jade jaunty jolly joyful keen kind lame lanky large late lavish leafy lean level light lilac limber lively
    lofty lonely loyal lucid lunar lush mellow merry mild misty modest mossy muted narrow neat nimble noble noisy olive
    opal outer pale patient pearly placid plain plucky polar polite prime proud quaint quick quiet rapid rare ruddy
    """.split()
)

NOUNS = tuple(
    """
    abbey acorn alcove almond anchor antler anvil apron arbor arch arrow atlas attic axle badge bagpipe balcony ballad
    bamboo banjo banner barge barley barn barrel basin basket bay beacon beam bell bellows bench birch biscuit blanket
    blossom bobbin bonfire bonnet bottle boulder bramble branch brick bridge bronze brook broom bucket buckle bugle
    bundle buoy cabin cable candle canoe canopy canvas canyon cape caravan cargo carpet castle cavern cedar cellar chain
    chalice chalk chapel chariot chart chest chimney chisel cider cinder cipher circle citadel clay cliff cloak clock
    cloister clover coach cobweb coin comet compass copper cork cottage cove cradle crane crater crayon creek crest
    crown crystal cup curtain cymbal dagger dahlia dam dawn delta desk dial diary dome donkey door dove dragon drawer
    drum dune dusk easel eclipse elbow elk elm ember engine estuary fable falcon farm feather fence fern ferry fiddle
    field fig fjord flag flask fleet flint flute foal forest forge fork fort fossil fountain fox frame frost furnace
    gable galaxy gallery garden garlic garnet gate geyser ginger glacier glade glove goat goblet gorge granary grape
    gravel grotto grove guitar gull hammer hammock harbor harp harvest hatch hawk hazel hearth hedge helmet heron hill
    hinge hive hollow honey horizon hound hut inkwell inlet iris island ivy jacket jar jasmine jetty jewel jigsaw
    kayak kennel kettle key kiln kite knapsack knoll knot ladder ladle lagoon lake lamp lantern larch latch lattice
    laurel lawn ledge lemon lever lichen lighthouse lily linen lion lobster lock locket loft loom lotus lute lynx magnet
    mallet mango manor mantle maple marble market marsh mast meadow medal melon mill mirror mitten moat monsoon moon
    """.split()
)
