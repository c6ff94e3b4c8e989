"""All data sets that fedotp knows by name: those of the paper, those of its successors, and the two in the box."""

from fedotp.data.sets import _box
from fedotp.data.sets._catalog_field import FIELD
from fedotp.data.sets._catalog_paper import PAPER
from fedotp.data.sets._info import DatasetInfo

_IN_BOX = "it comes with fedotp, there is nothing to download"

_BOX = (
    DatasetInfo(
        name="cifar10-mini",
        title="CIFAR-10, 4,000 images of its test batch",
        folder="",
        markers=(),
        read=_box.read_cifar10_mini,
        n_classes=10,
        n_domains=1,
        n_train=2000,
        n_test=2000,
        template="a photo of a {}.",
        resources=(),
        advice=_IN_BOX,
        in_box=True,
    ),
    DatasetInfo(
        name="emoji",
        title="Emoji of four vendors",
        folder="",
        markers=(),
        read=_box.read_emoji,
        n_classes=16,
        n_domains=4,
        n_train=516,
        n_test=488,
        template="an emoji of a {}.",
        resources=(),
        advice=_IN_BOX,
        in_box=True,
    ),
)

DATASETS = {info.name: info for info in (*PAPER, *FIELD, *_BOX)}
