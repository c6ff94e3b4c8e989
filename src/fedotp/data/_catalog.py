"""Data sets known by name: facts, layouts, official sources and readers.

First the nine of the paper, then those of later papers. Sizes of data sets with domains are those of the drawn split.
"""

from pathlib import Path

from fedotp.data import _domains, _official
from fedotp.data._cifar import read_cifar10, read_cifar100
from fedotp.data._download import DatasetInfo, Resource

_VGG = "https://www.robots.ox.ac.uk/~vgg/data"
_DOMAINNET = "https://csr.bu.edu/ftp/visda/2019/multi-source"
_COOP = "https://github.com/KaiyangZhou/CoOp/blob/main/DATASETS.md"
_DOMAINBED = "https://github.com/facebookresearch/DomainBed has a download script"
_FEDBN = "https://github.com/med-air/FedBN"


def _zhou(name: str) -> str:
    return f"for the paper's split put split_zhou_{name}.json next to the images: {_COOP}"


CATALOG = (
    DatasetInfo(
        name="caltech101",
        title="Caltech101",
        folder="caltech-101",
        markers=("101_ObjectCategories/", "split_zhou_Caltech101.json"),
        read=_official.read_caltech101,
        n_classes=100,
        n_train=4128,
        n_test=2465,
        resources=(
            Resource(
                "https://data.caltech.edu/records/mzrjq-6wc02/files/caltech-101.zip",
                "331234750fc7f77520e50d9565e8b6907b03565e30320da1401130db08c61f91",
                provides="caltech-101/101_ObjectCategories",
                nested="caltech-101/101_ObjectCategories.tar.gz",
            ),
        ),
        advice=_zhou("Caltech101"),
    ),
    DatasetInfo(
        name="flowers102",
        title="Oxford Flowers 102",
        folder="oxford_flowers",
        markers=("imagelabels.mat", "split_zhou_OxfordFlowers.json"),
        read=_official.read_flowers102,
        n_classes=102,
        n_train=4093,
        n_test=2463,
        template="a photo of a {}, a type of flower.",
        resources=(
            Resource(
                f"{_VGG}/flowers/102/102flowers.tgz",
                "2d01ecc807db462958cfe3d92f57a8c252b4abd240eb955770201e45f783b246",
                provides="oxford_flowers/jpg",
            ),
            Resource(
                f"{_VGG}/flowers/102/imagelabels.mat",
                "4903e94206bac23bf772aadf06451916df56b58fc483a62db32a97b82656651d",
                provides="oxford_flowers/imagelabels.mat",
            ),
            Resource(
                f"{_VGG}/flowers/102/setid.mat",
                "46b8678f91fd95d3c8f4feab80d271a6c834a1dd896fe29fd3e6ad9ce5c8dccd",
                provides="oxford_flowers/setid.mat",
            ),
        ),
        advice=_zhou("OxfordFlowers"),
    ),
    DatasetInfo(
        name="oxford_pets",
        title="Oxford-IIIT Pets",
        folder="oxford_pets",
        markers=("annotations/trainval.txt", "split_zhou_OxfordPets.json"),
        read=_official.read_oxford_pets,
        n_classes=37,
        n_train=2944,
        n_test=3669,
        template="a photo of a {}, a type of pet.",
        resources=(
            Resource(
                f"{_VGG}/pets/data/images.tar.gz",
                "67195c5e1c01f1ab5f9b6a5d22b8c27a580d896ece458917e61d459337fa318d",
                provides="oxford_pets/images",
            ),
            Resource(
                f"{_VGG}/pets/data/annotations.tar.gz",
                "52425fb6de5c424942b7626b428656fcbd798db970a937df61750c0f1d358e91",
                provides="oxford_pets/annotations",
            ),
        ),
        advice=_zhou("OxfordPets"),
    ),
    DatasetInfo(
        name="food101",
        title="Food-101",
        folder="food-101",
        markers=("meta/classes.txt", "split_zhou_Food101.json"),
        read=_official.read_food101,
        n_classes=101,
        n_train=50500,
        n_test=30300,
        template="a photo of {}, a type of food.",
        resources=(
            Resource(
                "https://data.vision.ee.ethz.ch/cvl/food-101.tar.gz",
                "d97d15e438b7f4498f96086a4f7e2fa42a32f2712e87d3295441b2b6314053a4",
                provides="food-101",
            ),
        ),
        advice=_zhou("Food101"),
    ),
    DatasetInfo(
        name="dtd",
        title="Describable Textures",
        folder="dtd",
        markers=("labels/train1.txt", "split_zhou_DescribableTextures.json"),
        read=_official.read_dtd,
        n_classes=47,
        n_train=2820,
        n_test=1692,
        template="{} texture.",
        resources=(
            Resource(
                f"{_VGG}/dtd/download/dtd-r1.0.1.tar.gz",
                "e42855a52a4950a3b59612834602aa253914755c95b0cff9ead6d07395f8e205",
                provides="dtd",
            ),
        ),
        advice=_zhou("DescribableTextures"),
    ),
    DatasetInfo(
        name="cifar10",
        title="CIFAR-10",
        folder="cifar-10-batches-py",
        markers=("batches.meta",),
        read=read_cifar10,
        n_classes=10,
        n_train=50000,
        n_test=10000,
        resources=(
            Resource(
                "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
                "6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce",
                provides="cifar-10-batches-py",
            ),
        ),
    ),
    DatasetInfo(
        name="cifar100",
        title="CIFAR-100",
        folder="cifar-100-python",
        markers=("meta",),
        read=read_cifar100,
        n_classes=100,
        n_train=50000,
        n_test=10000,
        resources=(
            Resource(
                "https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",
                "85cd44d02ba6437773c5bbd22e183051d648de2e7d6b014e1ef29b855ba677a7",
                provides="cifar-100-python",
            ),
        ),
    ),
    DatasetInfo(
        name="domainnet",
        title="DomainNet (10 classes)",
        folder="DomainNet",
        markers=("quickdraw/",),
        read=_domains.read_domainnet,
        n_classes=10,
        n_domains=6,
        n_train=18278,
        n_test=4573,
        resources=tuple(
            Resource(f"{_DOMAINNET}/{path}", sha, provides=f"DomainNet/{Path(path).stem}")
            for path, sha in (
                ("groundtruth/clipart.zip", "f8f248a3e8bbc9868c523ae24e6601b4c2ad102afc60c0efeb4f3255df22354d"),
                ("infograph.zip", "891e14f476317e97b6f06d6498c11d0a5b8d0c8b57210765ed9beb072da611fa"),
                ("groundtruth/painting.zip", "fa47e6d405503ea0286cabd767f176bd30e988b63ddd7b9db16cf030c9770015"),
                ("quickdraw.zip", "9f37df2a8c3733703dbb35ad9964202a65f675ca30137756457537536b485d84"),
                ("real.zip", "d7fe010b430c5b510f85d657d38c4a1924822695fabea4fef57bd00dba251d63"),
                ("sketch.zip", "23a7dbae7016b343e934399beaa8a68728fb5e570ebe2c71df9b75cf91c499fc"),
            )
        ),
        advice=f"for the paper's split put FedBN's pickles next to the domain folders: {_FEDBN}",
    ),
    DatasetInfo(
        name="office_caltech10",
        title="Office-Caltech10",
        folder="office_caltech_10",
        markers=("caltech/",),
        read=_domains.read_office_caltech10,
        n_classes=10,
        n_domains=4,
        n_train=2025,
        n_test=508,
        advice=f"there is no direct link: download FedBN's archive from {_FEDBN}",
    ),
    DatasetInfo(
        name="eurosat",
        title="EuroSAT",
        folder="eurosat",
        markers=("2750/", "split_zhou_EuroSAT.json"),
        read=_official.read_eurosat,
        n_classes=10,
        n_train=13500,
        n_test=8100,
        template="a centered satellite photo of {}.",
        advice=f"put 2750/ and, for CoOp's split, split_zhou_EuroSAT.json there: see {_COOP}",
    ),
    DatasetInfo(
        name="fgvc_aircraft",
        title="FGVC-Aircraft",
        folder="fgvc_aircraft",
        markers=("variants.txt",),
        read=_official.read_fgvc_aircraft,
        n_classes=100,
        n_train=3334,
        n_test=3333,
        template="a photo of a {}, a type of aircraft.",
        advice=f"put the contents of fgvc-aircraft-2013b/data there: see {_COOP}",
    ),
    DatasetInfo(
        name="stanford_cars",
        title="Stanford Cars",
        folder="stanford_cars",
        markers=("split_zhou_StanfordCars.json",),
        read=_official.read_stanford_cars,
        n_classes=196,
        n_train=6509,
        n_test=8041,
        advice=f"put cars_train/, cars_test/ and split_zhou_StanfordCars.json there: see {_COOP}",
    ),
    DatasetInfo(
        name="sun397",
        title="SUN397",
        folder="sun397",
        markers=("split_zhou_SUN397.json",),
        read=_official.read_sun397,
        n_classes=397,
        n_train=15880,
        n_test=19850,
        advice=f"put SUN397/ and split_zhou_SUN397.json there: see {_COOP}",
    ),
    DatasetInfo(
        name="ucf101",
        title="UCF101, the middle frame of every video",
        folder="ucf101",
        markers=("split_zhou_UCF101.json",),
        read=_official.read_ucf101,
        n_classes=101,
        n_train=7639,
        n_test=3783,
        template="a photo of a person doing {}.",
        advice=f"put UCF-101-midframes/ and split_zhou_UCF101.json there: see {_COOP}",
    ),
    DatasetInfo(
        name="imagenet",
        title="ImageNet",
        folder="imagenet",
        markers=("images/train/n01440764/",),
        read=_official.read_imagenet,
        n_classes=1000,
        n_train=1281167,
        n_test=50000,
        advice=f"put images/train/, images/val/ (a folder per class each) and classnames.txt there: see {_COOP}",
    ),
    DatasetInfo(
        name="pacs",
        title="PACS",
        folder="PACS",
        markers=("art_painting/", "kfold/art_painting/", "images/art_painting/"),
        read=_domains.read_pacs,
        n_classes=7,
        n_domains=4,
        n_train=7992,
        n_test=1999,
        advice=f"put art_painting/, cartoon/, photo/ and sketch/ there; {_DOMAINBED}",
    ),
    DatasetInfo(
        name="office_home",
        title="Office-Home",
        folder="OfficeHomeDataset_10072016",
        markers=("Real World/", "Real_World/", "RealWorld/", "real_world/"),
        read=_domains.read_office_home,
        n_classes=65,
        n_domains=4,
        n_train=12469,
        n_test=3119,
        advice=f"put Art/, Clipart/, Product/ and Real World/ there; {_DOMAINBED}",
        others=("OfficeHome",),
    ),
    DatasetInfo(
        name="office31",
        title="Office-31",
        folder="office31",
        markers=("dslr/images/", "dslr/bike_helmet/"),
        read=_domains.read_office31,
        n_classes=31,
        n_domains=3,
        n_train=3287,
        n_test=823,
        advice="put amazon/, dslr/ and webcam/ there, each with or without a folder images/",
        others=("Office31", "office_31"),
    ),
    DatasetInfo(
        name="vlcs",
        title="VLCS",
        folder="VLCS",
        markers=("LabelMe/", "LABELME/", "labelme/"),
        read=_domains.read_vlcs,
        n_classes=5,
        n_domains=4,
        n_train=8581,
        n_test=2148,
        advice=f"put Caltech101/, LabelMe/, SUN09/ and VOC2007/ there; {_DOMAINBED}",
    ),
)
