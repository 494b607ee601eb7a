#!/usr/bin/env python3
"""Compiles Triton's matrix multiplication tutorial for a GPU that is elsewhere: a folder of cubins and manifest.json.

  tools/triton_peer/compile.py OUTDIR [--arch 90] [--type f16 e5m2] [--activation none leaky_relu]

The kernels are those that the tutorial gets when it is called with whole tensors whose sizes are multiples of 16: pointers,
sizes and leading strides divisible by 16, inner strides the constant 1. f16: A and B row-major. e5m2: B column-major, which
is what the tutorial's `b.T` makes of it. C is row-major f16 in both. `jitgemm --triton-manifest` runs them.
"""

import argparse
import json
import re
import subprocess
import sys
from pathlib import Path

try:
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.backends.nvidia.compiler import CUDABackend
    from triton.compiler import ASTSource

    from kernel import CONFIGS, GROUP_SIZE_M, matmul_kernel
except ImportError:  # --help needs none of it
    triton = None

TYPES = {"f16": "*fp16", "e5m2": "*fp8e5"}
UNIT_STRIDES = {"f16": ("stride_ak", "stride_bn", "stride_cn"), "e5m2": ("stride_ak", "stride_bk", "stride_cn")}
SMEM_LIMIT = {90: 232448, 80: 166912}  # bytes one block may have


def source(type_name, block_m, block_n, block_k, activation):
    """What the JIT would make of the tutorial's call."""
    names = matmul_kernel.arg_names
    constants = {name: 1 for name in UNIT_STRIDES[type_name]}
    constants |= {"BLOCK_SIZE_M": block_m, "BLOCK_SIZE_N": block_n, "BLOCK_SIZE_K": block_k, "GROUP_SIZE_M": GROUP_SIZE_M,
                  "ACTIVATION": "" if activation == "none" else activation}
    types = {"a_ptr": TYPES[type_name], "b_ptr": TYPES[type_name], "c_ptr": "*fp16"}
    signature = {name: "constexpr" if name in constants else types.get(name, "i32") for name in names}
    by_16 = CUDABackend.parse_attr("D")
    attributes = {(i, ): by_16 for i, name in enumerate(names) if name not in constants}
    return ASTSource(matmul_kernel, signature, constants, attributes), signature


def parameter_sizes(cubin):
    """Of the kernel, in order, as the cubin itself tells."""
    tool = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
    text = subprocess.run([tool, "-elf", cubin], capture_output=True, text=True, check=True).stdout
    found = {int(ordinal, 16): int(size, 16)
             for ordinal, size in re.findall(r"Ordinal\s*:\s*0x(\w+)\s+Offset\s*:\s*0x\w+\s+Size\s*:\s*0x(\w+)", text)}
    return [found[i] for i in range(len(found))]


def compile_one(arguments, type_name, config, activation):
    block_m, block_n, block_k, stages, warps = config
    text = f"{type_name} {block_m}x{block_n}x{block_k} stages={stages} warps={warps} activation={activation}"
    ast, signature = source(type_name, block_m, block_n, block_k, activation)
    kernel = triton.compile(ast, target=GPUTarget("cuda", arguments.arch, 32),
                            options={"num_warps": warps, "num_stages": stages})
    meta = kernel.metadata
    if meta.shared > SMEM_LIMIT[arguments.arch]:
        print(f"{text}: left out, {meta.shared} bytes of shared memory; so does the autotuner")
        return None
    for name in ("global_scratch_size", "profile_scratch_size"):
        if getattr(meta, name, 0):
            sys.exit(f"compile.py: error: {text} wants {name} {getattr(meta, name)}: the launcher has none to give")
    if meta.num_ctas != 1 or getattr(meta, "launch_pdl", False) or getattr(meta, "launch_cooperative_grid", False):
        sys.exit(f"compile.py: error: {text} is launched in a way that the launcher does not know")

    file = f"{type_name}_{block_m}x{block_n}x{block_k}_{stages}_{warps}_{activation}.cubin"
    (arguments.outdir / file).write_bytes(kernel.asm["cubin"])
    run_time = [{"name": name, "type": type_} for name, type_ in signature.items() if type_ != "constexpr"]
    sizes = [8 if argument["type"].startswith("*") else 4 for argument in run_time]
    actual = parameter_sizes(arguments.outdir / file)
    scratch = ["global_scratch", "profile_scratch"][:len(actual) - len(sizes)]
    if actual != sizes + [8] * len(scratch):
        sys.exit(f"compile.py: error: {text}: the cubin's parameters have {actual} bytes, expected {sizes} and "
                 "at most two scratch pointers: this Triton passes its arguments in another way")
    run_time += [{"name": name, "type": "*scratch"} for name in scratch]
    print(f"{text}: {meta.shared} bytes of shared memory, {len(run_time)} arguments")
    return {
        "file": file, "kernel": meta.name, "type": type_name, "activation": activation,
        "block_m": block_m, "block_n": block_n, "block_k": block_k, "group_m": GROUP_SIZE_M,
        "num_stages": stages, "num_warps": meta.num_warps, "shared_bytes": meta.shared,
        "arguments": run_time,
        "divisible_by_16": [argument["name"] for argument in run_time if argument["type"] != "*scratch"],
        "equal_to_1": list(UNIT_STRIDES[type_name]),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("outdir", type=Path)
    parser.add_argument("--arch", type=int, default=90, choices=sorted(SMEM_LIMIT))
    parser.add_argument("--type", nargs="+", default=list(TYPES), choices=list(TYPES))
    parser.add_argument("--activation", nargs="+", default=["none", "leaky_relu"], choices=["none", "leaky_relu"])
    arguments = parser.parse_args()
    if not triton:
        sys.exit("compile.py: error: Triton is missing, or is another than the one of README.md: pip install triton")
    arguments.outdir.mkdir(parents=True, exist_ok=True)
    kernels = [compile_one(arguments, type_name, config, activation)
               for type_name in arguments.type for activation in arguments.activation for config in CONFIGS]
    manifest = {
        "format": 1, "triton": triton.__version__, "arch": f"sm_{arguments.arch}{'a' if arguments.arch >= 90 else ''}",
        "grid": "ceil(M / block_m) * ceil(N / block_n), threads 32 * num_warps",
        "kernels": [kernel for kernel in kernels if kernel],
    }
    (arguments.outdir / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n")
    print(arguments.outdir / "manifest.json")


if __name__ == "__main__":
    main()
