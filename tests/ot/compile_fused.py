"""Compile the fused kernel for a GPU, without one, and count sums that lanes of a warp would round differently.

Run as a program, not under Triton's interpreter: `compile_fused.py NARROWEST` prints a line "N V reg count" per shape,
for tiles at least NARROWEST wide.
"""

import re
import sys

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from fedotp.ot import _fused

POINTERS = ("sim_ptr", "a_ptr", "b_ptr", "score_ptr", "f_ptr")
INTEGERS = ("n_inner", "n_prompts", "n_patches", "max_iter")
FLOATS = ("inv_reg", "quantile", "reach", "tol")
SHAPES = ((1, 16, 0.1), (2, 5, 0.1), (2, 16, 0.1), (2, 16, 0.01), (4, 49, 0.1), (8, 196, 0.1))
CHOICES = ("N", "V", "CG", "LINEAR", "EQUAL")


def ptx(n_prompts: int, n_patches: int, reg: float) -> str:
    options = _fused._options(torch.empty(1, n_prompts, 1, n_patches), reg, equal=False)
    launch = {name: options.pop(name) for name in ("num_warps", "maxnreg")}
    types = {**dict.fromkeys(POINTERS, "*fp32"), "steps_ptr": "*i32"}
    types |= {**dict.fromkeys(INTEGERS, "i32"), **dict.fromkeys(FLOATS, "fp32"), **dict.fromkeys(CHOICES, "constexpr")}
    signature = {name: types[name] for name in _fused._forward.arg_names}
    source = ASTSource(_fused._forward, signature, constexprs={"CG": n_prompts, **options})
    return triton.compile(source, target=GPUTarget("cuda", 90, 32), options=launch).asm["ptx"]


def fused_with_a_neighbour(code: str) -> int:
    """Products that are, or may yet be, fused into a sum with another lane's value: each lane rounds another one."""
    shuffled: set[str] = set()
    products: set[str] = set()
    count = 0
    for line in code.splitlines():
        if match := re.search(r"shfl\.sync\.bfly\.b32\s+(%\w+)", line):
            shuffled.add(match[1])
        elif match := re.search(r"mul\.f32\s+(%\w+)", line):
            products.add(match[1])
        elif match := re.search(r"mov\.b32\s+(%\w+), (%\w+)", line):
            for group in (shuffled, products):
                group |= {match[1]} if match[2] in group else set()
        elif match := re.search(r"fma\.rn\.f32\s+%\w+, %\w+, %\w+, (%\w+)", line):
            count += match[1] in shuffled
        elif match := re.search(r"add\.f32\s+%\w+, (%\w+), (%\w+)", line):
            count += bool({match[1], match[2]} & shuffled) and bool({match[1], match[2]} & products)
    return count


if __name__ == "__main__":
    _fused._NARROWEST = int(sys.argv[1])
    for n_prompts, n_patches, reg in SHAPES:
        print(n_prompts, n_patches, reg, fused_with_a_neighbour(ptx(n_prompts, n_patches, reg)))
