"""The names of attention's preselected kernels, for make_sets.py."""

# Attention with and without a mask, and with what training needs. CPUs: tiles for few and for many
# queries, and the register block. Hopper: the general kernel, and in types of 2 bytes those of
# tensor cores, for prompts of equal and other lengths and for decoding, with pages too.
FMHA_CPU = {"avx512": "6x64x1", "avx2": "6x16x1", "generic": "4x8x1"}
FMHA_CPU_TILES = ("24x64x576", "192x64x576")
FMHA_HOPPER_TILES = ("16x32x64", "16x32x128")
FMHA_OPTIONS = ("", "_masked", "_lse", "_masked_lse")
FMHA_FLASH = ("tmaws_128x128x64_2x1x1_s6", "tmaws_128x128x128_2x1x1_s4")
FMHA_EQUAL = FMHA_FLASH + ("tmaws_192x128x64_3x1x1_s6", "tmaws_128x128x192_2x1x1_s3",
                           "tmaws_128x64x256_2x1x1_s4", "splitkv_16x16x128_1x4x1_s3",
                           "splitkv_64x32x576_4x1x1_s4", "direct_16x32x128_4x1x1_s0")
FMHA_DECODE = ("splitkv_16x16x128_1x4x1_s3", "splitkv_64x32x576_4x1x1_s4")
FMHA_PADDED = FMHA_FLASH + FMHA_DECODE
FMHA_HOPPER = {
    "": FMHA_EQUAL, "_masked": FMHA_EQUAL, "_packed": FMHA_FLASH, "_packed_masked": FMHA_FLASH,
    "_padded": FMHA_PADDED, "_padded_masked": FMHA_PADDED,
    "_padded_pagestable": FMHA_DECODE, "_padded_masked_pagestable": FMHA_DECODE,
    "_packed_masked_pagestable": ("splitkv_64x32x128_4x1x1_s5", FMHA_FLASH[1]),
    "_packed_masked_pageslist": (FMHA_FLASH[1],)}


# Of 8 bits on Hopper: fp16 or bf16 out, without factors and with one for each tensor. On CPUs: the
# usual ones.
FMHA_EIGHT_BITS = FMHA_FLASH + ("tmaws_128x64x256_2x1x1_s4",)


def fmha_eight_bits(target):
    if target in FMHA_CPU:
        for options in ("", "_masked"):
            yield (f"fmha_forward_fp8_flash_{FMHA_CPU_TILES[-1]}_0x1x1_{FMHA_CPU[target]}{options}"
                   f"_{target}")
        return
    for kernel in FMHA_EIGHT_BITS:
        pipeline, stages = kernel.rsplit("_s", 1)
        for options in ("", "_outbf16", "_masked", "_outbf16_masked"):
            for factors in ("", "_scalespertensor"):
                yield (f"fmha_forward_fp8_{pipeline}_1x1x1{options}{factors}_s{stages}_{target}")


def fmha_names(target, dtype):
    for options in FMHA_OPTIONS:
        if target in FMHA_CPU:
            for tile in FMHA_CPU_TILES:
                yield (f"fmha_forward_{dtype}_flash_{tile}_0x1x1_{FMHA_CPU[target]}{options}"
                       f"_{target}")
        elif dtype == "fp32":
            for tile in FMHA_HOPPER_TILES:
                yield f"fmha_forward_{dtype}_direct_{tile}_4x1x1_1x1x1{options}_{target}"
    if target not in FMHA_CPU and dtype != "fp32":
        for options, kernels in FMHA_HOPPER.items():
            for kernel in kernels:
                pipeline, stages = kernel.rsplit("_s", 1)
                slices = "_slices132" if pipeline.startswith("splitkv") else ""
                stages = f"_s{stages}" if stages != "0" else ""
                yield f"fmha_forward_{dtype}_{pipeline}_1x1x1{options}{slices}{stages}_{target}"


# Appending to a cache: without an embedding, and with that of Llama, of keys alone and of queries.
FMHA_ROTARY = ("", "_rotaryhalf", "_rotaryhalf_rotateq")


def fmha_append_names(target, dtype):
    wave = "0x1x1" if target in FMHA_CPU else "4x1x1"
    for options in FMHA_ROTARY:
        yield f"fmha_append_{dtype}_direct_1x1x1_{wave}_1x1x1{options}_{target}"


# Appending and attending: the next tokens of texts, one of each or several, in caches and in
# pages, with the embedding of Llama.
FMHA_EXTEND = ("_padded", "_padded_pagestable", "_padded_masked", "_padded_masked_pagestable")


def fmha_extend_names(target, dtype):
    turned = "rotaryhalf_rotateq"
    if target in FMHA_CPU:
        yield (f"fmha_extend_{dtype}_flash_{FMHA_CPU_TILES[-1]}_0x1x1_{FMHA_CPU[target]}"
               f"_padded_masked_{turned}_{target}")
    elif dtype == "fp32":
        yield (f"fmha_extend_{dtype}_direct_{FMHA_HOPPER_TILES[-1]}_4x1x1_1x1x1_padded_masked"
               f"_{turned}_{target}")
    else:
        for options in FMHA_EXTEND:
            yield (f"fmha_extend_{dtype}_splitkv_16x16x128_1x4x1_1x1x1{options}_{turned}"
                   f"_slices132_s3_{target}")


# On tensor cores sums of dq are added by atomic additions or in the order of the keys.
FMHA_BACKWARD_TILES = ("128x128x64", "128x64x128")


def fmha_backward_names(target, dtype):
    """Gradients of training, with a causal mask and without."""
    for options in ("", "_masked"):
        if target in FMHA_CPU:
            yield (f"fmha_backward_{dtype}_flash_192x64x576_0x1x1_{FMHA_CPU[target]}{options}"
                   f"_{target}")
        else:
            for tile in FMHA_HOPPER_TILES:
                yield f"fmha_backward_{dtype}_direct_{tile}_4x1x1_1x1x1{options}_{target}"
            for tile in FMHA_BACKWARD_TILES if dtype != "fp32" else ():
                for adds in ("atomic", "ordered"):
                    yield (f"fmha_backward_{dtype}_tmaws_{tile}_2x1x1_1x1x1{options}"
                           f"_split{adds}1_s3_{target}")


def fmha_sets(target):
    kinds = (("forward", fmha_names), ("append", fmha_append_names), ("extend", fmha_extend_names),
             ("backward", fmha_backward_names))
    sets = {f"{kind}_{dtype}_essential": sorted(names(target, dtype))
            for kind, names in kinds for dtype in ("fp32", "fp16", "bf16")}
    sets["forward_fp8_essential"] = sorted(fmha_eight_bits(target))
    return sets
