"""Class names as CLIP should read them: plain lower-case words."""

import re
import unicodedata

_SEPARATORS = re.compile(r"[\s_]+")


def readable(name: str) -> str:
    """Turn a folder or label name into words: `Egyptian_Mau` becomes `egyptian mau`.

    Hyphens and digits stay (`globe-flower`, `boeing 747`); lower case loses nothing, CLIP's tokenizer
    lower-cases anyway.
    """
    return _SEPARATORS.sub(" ", unicodedata.normalize("NFC", name)).strip().lower()


# Folder names of Caltech101 that are not what one would say (CoOp reads them the same way).
CALTECH101 = {"airplanes": "airplane", "Faces": "face", "Leopards": "leopard", "Motorbikes": "motorbike"}

OFFICE_CALTECH10 = (
    "backpack",
    "bike",
    "calculator",
    "headphones",
    "keyboard",
    "laptop computer",
    "monitor",
    "mouse",
    "mug",
    "projector",
)

DOMAINNET10 = (
    "bird",
    "feather",
    "headphones",
    "ice cream",
    "teapot",
    "tiger",
    "whale",
    "windmill",
    "wine glass",
    "zebra",
)

# The official archive has numbers only; these are the names of numbers 1 to 102 on its web page.
_FLOWERS = """
    pink primrose; hard-leaved pocket orchid; canterbury bells; sweet pea; english marigold; tiger lily;
    moon orchid; bird of paradise; monkshood; globe thistle; snapdragon; colt's foot; king protea;
    spear thistle; yellow iris; globe-flower; purple coneflower; peruvian lily; balloon flower;
    giant white arum lily; fire lily; pincushion flower; fritillary; red ginger; grape hyacinth; corn poppy;
    prince of wales feathers; stemless gentian; artichoke; sweet william; carnation; garden phlox;
    love in the mist; mexican aster; alpine sea holly; ruby-lipped cattleya; cape flower; great masterwort;
    siam tulip; lenten rose; barbeton daisy; daffodil; sword lily; poinsettia; bolero deep blue; wallflower;
    marigold; buttercup; oxeye daisy; common dandelion; petunia; wild pansy; primula; sunflower; pelargonium;
    bishop of llandaff; gaura; geranium; orange dahlia; pink-yellow dahlia; cautleya spicata;
    japanese anemone; black-eyed susan; silverbush; californian poppy; osteospermum; spring crocus;
    bearded iris; windflower; tree poppy; gazania; azalea; water lily; rose; thorn apple; morning glory;
    passion flower; lotus; toad lily; anthurium; frangipani; clematis; hibiscus; columbine; desert-rose;
    tree mallow; magnolia; cyclamen; watercress; canna lily; hippeastrum; bee balm; ball moss; foxglove;
    bougainvillea; camellia; mallow; mexican petunia; bromelia; blanket flower; trumpet creeper;
    blackberry lily
"""
FLOWERS102 = tuple(readable(name) for name in _FLOWERS.split(";"))
