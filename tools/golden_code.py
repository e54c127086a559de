#!/usr/bin/env python3
"""Compares the machine code of the shipped kernels with a list of hashes.

    golden_code.py check LIST TESSERA PACK...   exits 1 and names each kernel whose code differs
    golden_code.py check-sample LIST TESSERA PACK...   the same, and packs may lack kernels
    golden_code.py write LIST PACK...           writes the list anew
    golden_code.py sample LIST TARGET           names a sample of the target's kernels: each word of
                                                a name stands beside each operation and type once

NVRTC's code of a few kernels depends on where the system placed its memory, so that equal sources
give one code or another. Therefore check lets the program TESSERA compile a kernel that differs
again, and only a kernel whose listed code never shows is a finding.

The code of a shared library is its section .text; the code of a cubin is every section .text.ENTRY,
in the order of the entries' names without the kernel's name. Code is comparable only when one
compiler made both. Kernels of another compiler than the list's are counted as skipped.
"""
import hashlib
import json
import os
import pathlib
import re
import struct
import subprocess
import sys
import tempfile

# A code that one of three compilations gives is missed by 16 of them once in 650 times.
ATTEMPTS = 16
# A change of a header that many kernels share is no matter of the memory's place.
MOST_AGAIN = 4


def sections(image):
    """{name: [bytes]} of an ELF file of 64 bits, little-endian."""
    table, = struct.unpack_from("<Q", image, 0x28)
    size, count, names_index = struct.unpack_from("<HHH", image, 0x3A)
    headers = [struct.unpack_from("<IIQQQQ", image, table + i * size) for i in range(count)]
    names_offset = headers[names_index][4]
    found = {}
    for name, kind, _, _, offset, length in headers:
        start = names_offset + name
        text = image[start:image.index(b"\0", start)].decode()
        if kind != 8:  # NOBITS has no bytes in the file
            found[text] = image[offset:offset + length]
    return found


def compiler_of(parts):
    """The compiler's version text in the binary; empty when there is none."""
    comment = parts.get(".comment", b"") + parts.get(".note.nv.tkinfo", b"")
    words = re.findall(rb"GCC: [^\0]+|clang version [^\0]+|Cuda compilation tools[^\0]+", comment)
    return words[0].decode().strip() if words else ""


def code_of(name, parts):
    digest = hashlib.sha256()
    for section in sorted(s for s in parts if s == ".text" or s.startswith(".text.")):
        digest.update(section.replace(name, "").encode() + b"\0" + parts[section])
    return digest.hexdigest()[:32]


def kernels(packs):
    """{name: (compiler, hash)} of every kernel in the packs."""
    found = {}
    for pack in packs:
        data = pathlib.Path(pack).read_bytes()
        words = struct.unpack("<8Q", data[:64])
        for entry in json.loads(data[words[3]:words[3] + words[4]])["kernels"]:
            parts = sections(data[entry["offset"]:entry["offset"] + entry["bytes"]])
            found[entry["name"]] = (compiler_of(parts), code_of(entry["name"], parts))
    return found


def write(path, found):
    compilers = sorted({compiler for compiler, _ in found.values()})
    lines = [f"compiler {i} {compiler}" for i, compiler in enumerate(compilers)]
    lines += [f"{codes} {compilers.index(compiler)} {name}"
              for name, (compiler, codes) in sorted(found.items())]
    pathlib.Path(path).write_text("\n".join(lines) + "\n", encoding="ascii")
    print(f"golden: wrote {len(found)} kernels of {len(compilers)} compilers")


def read(path):
    compilers, golden = {}, {}
    for line in pathlib.Path(path).read_text(encoding="ascii").splitlines():
        first, second, rest = line.split(" ", 2)
        if first == "compiler":
            compilers[second] = rest
        else:
            golden[rest] = (compilers[second], first)
    return golden


def shows_again(tessera, name, golden):
    """Whether one of some further compilations gives the listed code."""
    target = name.rsplit("_", 1)[1]
    for _ in range(ATTEMPTS):
        with tempfile.TemporaryDirectory() as folder:
            pack = f"{folder}/again.pack"
            subprocess.run([tessera, "pack", "--target", target, "--name", name, "-o", pack],
                           env=os.environ | {"TESSERA_CACHE_DIR": folder}, check=True,
                           stdout=subprocess.DEVNULL)
            if kernels([pack])[name] == golden:
                return True
    return False


def traits(name):
    """The words of a name beside its operation and type. Numbers of shapes and stages are none."""
    words = [word for word in name.split("_") if not re.match(r"\d+x\d+|s\d+$", word)]
    return {(words[0], words[1], word) for word in words[1:]}


def sample(path, target):
    seen = set()
    for name in sorted(name for name in read(path) if name.endswith(f"_{target}")):
        if traits(name) - seen:
            seen |= traits(name)
            print(name)


def check(path, tessera, found, may_lack):
    golden, findings, differing, skipped = read(path), [], [], 0
    for name in sorted(found if may_lack else golden.keys() | found.keys()):
        if name not in found:
            findings.append(f"{name}: is in the list, but no pack holds it")
        elif name not in golden:
            findings.append(f"{name}: is in a pack, but not in the list")
        elif golden[name][0] != found[name][0]:
            skipped += 1
        elif found[name][1] != golden[name][1]:
            differing.append(name)
    unstable = [name for name in differing if len(differing) <= MOST_AGAIN and
                shows_again(tessera, name, golden[name])]
    findings += [f"{name}: its code has the hash {found[name][1]}, the list says {golden[name][1]}"
                 for name in differing if name not in unstable]
    print(*findings, sep="\n", end="\n" if findings else "")
    print(f"golden: {len(found)} kernels, {len(findings)} differ, {len(unstable)} gave the listed "
          f"code when compiled again, {skipped} skipped because another compiler made them")
    return 1 if findings else 0


def main(arguments):
    if arguments[:1] in (["check"], ["check-sample"]) and len(arguments) >= 4:
        return check(arguments[1], arguments[2], kernels(arguments[3:]),
                     arguments[0] == "check-sample")
    if arguments[:1] == ["sample"] and len(arguments) == 3:
        sample(arguments[1], arguments[2])
        return 0
    if arguments[:1] == ["write"] and len(arguments) >= 3:
        write(arguments[1], kernels(arguments[2:]))
        return 0
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
