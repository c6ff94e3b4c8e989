"""Stage 4: average two text towers and join them with the student.

    python -m recipes.mini.average --work WORK --first first --second second --share 0.83 --out mini.safetensors

The second tower was trained on from the first, so the straight line between them is made of working towers (as in
WiSE-FT, https://arxiv.org/abs/2109.01903). `--share` is the weight of the second.
"""

import argparse
from pathlib import Path

import torch

from fedotp.clip import load, save


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--first", required=True, help="names of the files that `text` wrote")
    parser.add_argument("--second", required=True)
    parser.add_argument("--share", type=float, default=0.83)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    first, second = (load(args.work / f"{name}.safetensors") for name in (args.first, args.second))
    model = type(first)(first.config, tokenizer=first.tokenizer).freeze()
    ends = first.state_dict(), second.state_dict()
    model.load_state_dict({name: torch.lerp(ends[0][name], ends[1][name], args.share) for name in ends[0]})
    save(model, args.out, dtype=torch.float16, overwrite=True)
    print(args.out, f"{args.out.stat().st_size / 1e6:.1f} MB", load(args.out).digest)


if __name__ == "__main__":
    main()
