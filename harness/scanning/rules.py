"""The rules of the static scan: what each looks for, and what to do about it.

docs/read-a-verdict.md has the same table.
"""

from __future__ import annotations

from typing import NamedTuple


class ScanRule(NamedTuple):
    """A rule of the scan.

    Attributes:
        name: The finding's kind.
        what: The description that follows the matched words.
        remedy: What an honest author would do, or how a reader should check.
    """

    name: str
    what: str
    remedy: str


class Hit(NamedTuple):
    """A place that matches a rule.

    Attributes:
        line: The solution's own line; None for the text as a whole.
        rule: The rule's name.
        seen: A short description of the match.
    """

    line: int | None
    rule: str
    seen: str


_TABLE = (
    # Python: what influences the run besides the text
    ScanRule(
        "computed-code",
        "text is run as code, and the scan does not read it",
        "write the code out; a reader prints the text that is run",
    ),
    ScanRule(
        "computed-names",
        "a module or an attribute is named at run time",
        "import it by name; a reader finds out which names can come",
    ),
    ScanRule(
        "encoded-data",
        "a module that decodes data or objects",
        "keep what runs as plain text; a reader decodes what is decoded",
    ),
    ScanRule(
        "unread-source",
        "a source for the compiler that the scan cannot follow to a text in the file",
        "give the source as a string in the file; a reader prints what is compiled",
    ),
    ScanRule(
        "packages",
        "packages are installed or changed at run time",
        "use what is installed; the worker has no network",
    ),
    # Python: what reaches outside the call
    ScanRule(
        "foreign-functions",
        "functions of any library can be called past torch",
        "bind kernels with load_inline; a reader checks that only the solution's own library is opened",
    ),
    ScanRule(
        "processes",
        "processes are started, signalled or ended",
        "compute in the call itself; a reader checks what is started and when it ends",
    ),
    ScanRule(
        "network", "a connection to somewhere else", "leave it out: a kernel needs none, and the worker has no network"
    ),
    ScanRule(
        "threads",
        "threads or processes can work beside the call",
        "finish all work before forward and backward return; a reader checks what the threads compute",
    ),
    ScanRule(
        "handlers",
        "code runs at a signal, at the process's end or at an object's end",
        "leave it out; a reader checks what the handler does",
    ),
    ScanRule(
        "environment",
        "the environment of the process is changed",
        "pass options as arguments; a reader checks that only the build reads the variable",
    ),
    ScanRule(
        "outside-paths",
        "a path outside the solution's own folder",
        "keep files in the working folder; a reader checks what is read or written there",
    ),
    ScanRule(
        "introspection",
        "objects, frames or modules of others can be found",
        "use the arguments of the call; a reader checks what is looked for",
    ),
    ScanRule(
        "patching",
        "an attribute of a module or class that is not the solution's own is replaced",
        "leave others' modules as they are; a reader checks whether clocks, operators or comparisons change",
    ),
    # torch: who computes, and how exactly
    ScanRule(
        "torch-settings",
        "a setting of torch that also counts for others is changed",
        "leave torch's settings as they are; a reader checks whether precision or determinism changes",
    ),
    ScanRule(
        "low-precision",
        "numbers of 16 bits or fewer, or products that round their operands",
        "compute in the problem's own class; a reader compares it with the error of the record",
    ),
    ScanRule(
        "heavy-operator",
        "torch's own kernel does this work in forward or backward",
        "write it as a kernel where it is meant to be fast; a reader asks what the solution's own kernels do",
    ),
    ScanRule(
        "nested-autograd",
        "torch's autograd differentiates inside forward or backward",
        "write the gradient as a kernel; a reader checks whether the reference's own graph is used",
    ),
    ScanRule(
        "requires-grad",
        "a tensor of the call is made to require a gradient by hand",
        "return what autograd.Function makes; a reader checks whose backward then runs",
    ),
    ScanRule(
        "fallback",
        "where the call above it fails, torch's operators answer instead",
        "let the error out; a reader checks which of the two ran (see `kernels`)",
    ),
    ScanRule(
        "fixed-shape",
        "a branch is taken by sizes written into the text",
        "compute every shape in one way; a reader checks that the other cases were judged",
    ),
    ScanRule(
        "keyed-cache",
        "something is kept or found by a tensor's address, identity, version or shape",
        "keep scratch memory, never answers; a reader checks that what is kept does not depend on values",
    ),
    ScanRule(
        "tensor-subclass",
        "a type of tensor with behaviour of its own",
        "return plain tensors; a reader checks what its methods compute and when",
    ),
    ScanRule(
        "streams",
        "work can run on a stream other than the current one",
        "launch on the current stream; a reader checks that it waits for inputs and is waited for",
    ),
    ScanRule(
        "graphs",
        "work is recorded once and replayed",
        "launch the kernels; a reader checks that a replay reads the call's own tensors",
    ),
    # CUDA and C++
    ScanRule(
        "include-path",
        "a file outside the toolkit and the build folder is included",
        "write the code into the source; a reader opens that file",
    ),
    ScanRule(
        "token-pasting",
        "the preprocessor builds names that do not stand in the text",
        "write the names out or use a template; a reader runs the preprocessor",
    ),
    ScanRule(
        "inline-assembly",
        "instructions that the compiler takes as they are",
        "use an intrinsic where there is one; a reader checks clocks, cache hints and number formats in it",
    ),
    ScanRule(
        "host-files",
        "the library opens or maps files",
        "pass tensors; a reader checks which files",
    ),
    ScanRule(
        "shared-device-memory",
        "memory that the host, another process or another GPU sees as well",
        "take memory from torch; a reader checks who writes and reads it",
    ),
    ScanRule(
        "device-clock",
        "a kernel reads a clock",
        "leave it out of what is judged; a reader checks whether results or work depend on it",
    ),
    ScanRule("device-sleep", "a kernel waits for time to pass", "leave it out; a reader checks what it waits for"),
    ScanRule(
        "l2-persistence",
        "data is kept in the L2 cache from call to call",
        "leave the cache to the hardware; a reader checks the speed with a cold cache",
    ),
    ScanRule(
        "empty-kernel", "a kernel without a body", "launch only what computes; a reader checks what computes instead"
    ),
    ScanRule(
        "unlaunched-kernel",
        "a kernel that nothing in the file launches or names",
        "remove it or launch it; a reader checks what computes instead (see `kernels`)",
    ),
    ScanRule("device-printing", "a kernel prints", "remove it: printing is slow, and what is printed is cut"),
    # the scan itself
    ScanRule(
        "not-scanned",
        "the scan stopped before the end of the text",
        "keep a solution short and its data small; a reader reads the rest",
    ),
)

RULES: dict[str, ScanRule] = {rule.name: rule for rule in _TABLE}
