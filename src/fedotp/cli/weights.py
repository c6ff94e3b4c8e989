"""`fedotp weights`: fetch, inspect and convert CLIP checkpoints."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedotp.cli._options import Precision

if TYPE_CHECKING:  # importing torch takes a second, too long for `--help`
    from fedotp.clip import CLIP

app = typer.Typer(help="Fetch, inspect and convert CLIP checkpoints.", no_args_is_help=True)

_SOURCE_HELP = "A checkpoint (OpenAI, Hugging Face, open_clip or fedotp), or a name such as ViT-B/16."


@app.command()
def convert(
    source: Annotated[str, typer.Argument(help=_SOURCE_HELP)],
    out: Annotated[Path, typer.Argument(help="The safetensors file to write.")],
    dtype: Annotated[Precision, typer.Option(help="Precision of the stored weights.")] = Precision.float32,
    force: Annotated[bool, typer.Option("--force", help="Overwrite OUT if it exists.")] = False,
) -> None:
    """Convert any checkpoint to one self-contained safetensors file.

    Example: fedotp weights convert ViT-B-16.pt vit-b16.safetensors --dtype float16
    """
    import torch

    from fedotp.clip import load, save

    model = load(source)
    save(model, out, dtype=getattr(torch, dtype), overwrite=force)
    written = load(out)
    _print_summary(out, written)
    if written.digest != model.digest:
        print(f"rounded to {dtype} from weights with digest {model.digest}")


@app.command()
def info(source: Annotated[str, typer.Argument(help=_SOURCE_HELP, metavar="FILE")]) -> None:
    """Print the shape, the number of parameters and the digest of a checkpoint.

    Example: fedotp weights info vit-b16.safetensors
    """
    from fedotp.clip import load

    _print_summary(source, load(source))


@app.command()
def fetch(name: Annotated[str, typer.Argument(help="ViT-B/32, ViT-B/16, ViT-L/14, RN50 or RN101.")]) -> None:
    """Download an OpenAI backbone into the local Hugging Face cache and print its path.

    Example: fedotp weights fetch ViT-B/16
    """
    from fedotp.clip import fetch as fetch_weights

    print(fetch_weights(name))


def _print_summary(source: str | Path, model: "CLIP") -> None:
    from fedotp.clip import ClassTable, VitConfig

    config, vision, text = model.config, model.config.vision, model.config.text
    if isinstance(vision, VitConfig):
        tower = f"ViT, {vision.layers} layers of width {vision.width}, patches of {vision.patch_size} px"
    else:
        tower = f"ResNet, stages of {'-'.join(map(str, vision.layers))} blocks, width {vision.width}"
    print(f"file        {source}")
    print(f"image       {tower}, {vision.heads} heads, {vision.image_size} px, {config.n_patches} patches")
    if isinstance(text, ClassTable):
        print(f"text        no tower: features of {len(text.names):,} class names, {text.template!r}, {text.source}")
    else:
        print(
            f"text        {text.layers} layers of width {text.width}, {text.heads} heads, "
            f"{text.context_length} positions, {text.vocab_size} tokens"
        )
    print(f"features    {config.embed_dim} wide, activation {config.activation}")
    print(f"parameters  {sum(p.numel() for p in model.parameters()):,}")
    print(f"digest      {model.digest}")
