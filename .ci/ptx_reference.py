"""Writes docs/ptx.md: the instructions of PTX that the emulator runs.

python .ci/ptx_reference.py > docs/ptx.md
"""

from __future__ import annotations

import re

from harness.emulator.ptx.instructions import ROWS

HEAD = """\
# PTX on the emulator

`python .ci/ptx_reference.py > docs/ptx.md` writes this page. Inline PTX of a CUDA source runs on
the [emulator](emulator.md#inline-ptx) if each of its instructions is listed here; `x?` may be left
out, `(x|y)` is one of the two, and `N` a multiple of 8 up to 256. Semantics are those of NVIDIA's
PTX ISA. Other instructions are `UNSUPPORTED`, by name and line.

The list takes modifiers together that NVIDIA does not, such as a cache hint on shared memory. If
nvcc is installed, `check` compiles the source with it and says so.

Besides these: `bra` to a label of the statement, predicates (`@p`, `@!p`), `.reg`, scopes in
braces, and the special registers `%tid`, `%ntid`, `%ctaid`, `%nctaid`, `%cluster_ctaid`,
`%cluster_nctaid`, `%clusterid`, `%nclusterid` (`.x`, `.y`, `.z`), `%cluster_ctarank`,
`%cluster_nctarank`, `%is_explicit_cluster`, `%laneid`, `%warpid`, `%nwarpid`, `%lanemask_*`,
`%clock`, `%clock64` and `%globaltimer`.
"""


def readable(pattern: str) -> str:
    """A pattern without the marks of its groups, and with plain points."""
    pattern = re.sub(r"\(\?=[^)]*\)", "", pattern)
    pattern = re.sub(r"\(\?P<columns>[^)]*\)", "N", pattern)
    plain = re.sub(r"\\(.)", r"\1", re.sub(r"\(\?(?:P<\w+>|:)", "(", pattern))
    plain = re.sub(r"\((\.?[\w:.]+)\)(?!\?)", r"\1", plain)
    for letters in re.findall(r"\[(\w+)\]", plain):
        plain = plain.replace(f"[{letters}]", f"({'|'.join(letters)})")
    return re.sub(r"\(((?:\w|\([\w|]+\))+)\)(?!\?)", r"\1", plain)


def main() -> None:
    """Print the page."""
    print(HEAD)
    for about in dict.fromkeys(row.about for row in ROWS):
        print(f"## {about}\n\n```text")
        print("\n".join(dict.fromkeys(readable(row.pattern.pattern) for row in ROWS if row.about == about)))
        print("```\n")


if __name__ == "__main__":
    main()
