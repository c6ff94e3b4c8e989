"""Compile the attention kernels for a GPU, without one: run as a program, not under Triton's interpreter."""

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from fedotp.prompts import _fused

POINTERS = ("qkv", "out", "gradient")
CHOICES = ("heads", "D", "BP", "BM", "PRECISION")
SHAPES = ((16, 16, 32), (64, 32, 32), (64, 32, 64))  # head, prefix, tile


def main() -> None:
    for width, prefix, tile in SHAPES:
        for kernel in (_fused._forward, _fused._backward):
            types = dict.fromkeys(POINTERS, "*bf16") | {"tiles": "*i32", "owner": "*i32", "scale": "fp32"}
            types |= dict.fromkeys(("L", "P", "n_tiles"), "i32") | dict.fromkeys(CHOICES, "constexpr")
            signature = {name: types[name] for name in kernel.arg_names}
            chosen = {"heads": 8, "D": width, "BP": prefix, "BM": tile, "PRECISION": "ieee"}
            source = ASTSource(kernel, signature, constexprs=chosen)
            compiled = triton.compile(source, target=GPUTarget("cuda", 90, 32))
            print(width, prefix, tile, compiled.metadata.shared, flush=True)


if __name__ == "__main__":
    main()
