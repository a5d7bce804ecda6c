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
        "text is run as code that the scan does not read",
        "write the code out; a reviewer prints the text that is run",
    ),
    ScanRule(
        "computed-names",
        "a module or an attribute is named at run time",
        "import it by name; a reviewer finds out which names are possible",
    ),
    ScanRule(
        "encoded-data",
        "a module that decodes data or objects",
        "keep what runs as plain text; a reviewer decodes it",
    ),
    ScanRule(
        "unread-source",
        "a source for the compiler that the scan cannot trace to a text in the file",
        "give the source as a string in the file; a reviewer prints what is compiled",
    ),
    ScanRule(
        "packages",
        "packages are installed or changed at run time",
        "use installed packages; the worker has no network",
    ),
    # Python: what reaches outside the call
    ScanRule(
        "foreign-functions",
        "functions of any library can be called without torch",
        "bind kernels with load_inline; a reviewer checks that only the solution's own library is opened",
    ),
    ScanRule(
        "processes",
        "processes are started, signalled or ended",
        "compute in the call itself; a reviewer checks what is started and when it ends",
    ),
    ScanRule("network", "a network connection", "remove it: a kernel needs none, and the worker has no network"),
    ScanRule(
        "threads",
        "threads or processes can work outside the call",
        "finish all work before forward and backward return; a reviewer checks what the threads compute",
    ),
    ScanRule(
        "handlers",
        "code runs on a signal, at the process's exit or when an object is freed",
        "remove it; a reviewer checks what the handler does",
    ),
    ScanRule(
        "environment",
        "the environment of the process is changed",
        "pass options as arguments; a reviewer checks that only the build reads the variable",
    ),
    ScanRule(
        "outside-paths",
        "a path outside the solution's own folder",
        "keep files in the working folder; a reviewer checks what is read or written there",
    ),
    ScanRule(
        "introspection",
        "code can find objects, frames or modules that are not its own",
        "use the arguments of the call; a reviewer checks what is looked for",
    ),
    ScanRule(
        "patching",
        "an attribute of a module or class outside the solution is replaced",
        "leave other modules unchanged; a reviewer checks whether clocks, operators or comparisons change",
    ),
    # torch: who computes, and how exactly
    ScanRule(
        "torch-settings",
        "a setting of torch that also affects other code is changed",
        "leave torch's settings unchanged; a reviewer checks whether precision or determinism changes",
    ),
    ScanRule(
        "low-precision",
        "numbers of 16 bits or fewer, or products that round their operands",
        "compute in the problem's precision class; a reviewer compares it with the error of the record",
    ),
    ScanRule(
        "heavy-operator",
        "torch's own kernel does this work in forward or backward",
        "write it as a kernel if it should be fast; a reviewer asks what the solution's own kernels do",
    ),
    ScanRule(
        "nested-autograd",
        "torch's autograd differentiates inside forward or backward",
        "write the gradient as a kernel; a reviewer checks whether the reference's own graph is used",
    ),
    ScanRule(
        "requires-grad",
        "requires_grad is set by hand on a tensor of the call",
        "return what autograd.Function makes; a reviewer checks whose backward then runs",
    ),
    ScanRule(
        "fallback",
        "if the call above fails, torch's operators compute the result",
        "let the error propagate; a reviewer checks which of the two ran (see `kernels`)",
    ),
    ScanRule(
        "fixed-shape",
        "a branch depends on sizes that are written into the source",
        "compute every shape in the same way; a reviewer checks that the other cases were judged",
    ),
    ScanRule(
        "keyed-cache",
        "a value is kept or looked up by a tensor's address, identity, version or shape",
        "cache scratch memory, never results; a reviewer checks that what is kept does not depend on values",
    ),
    ScanRule(
        "host-tensor",
        "a tensor of the CPU in forward or backward, or one that a module keeps unregistered",
        "give it device=x.device, or use register_buffer: a GPU's operators refuse it beside the GPU's tensors",
    ),
    ScanRule(
        "tensor-subclass",
        "a tensor subclass with its own behaviour",
        "return plain tensors; a reviewer checks what its methods compute and when",
    ),
    ScanRule(
        "streams",
        "work can run on a stream other than the current one",
        "launch on the current stream; a reviewer checks that it waits for inputs and is waited for",
    ),
    ScanRule(
        "graphs",
        "work is recorded once and replayed",
        "launch the kernels directly; a reviewer checks that a replay reads the call's own tensors",
    ),
    # CUDA and C++
    ScanRule(
        "include-path",
        "a file outside the toolkit and the build folder is included",
        "write the code into the source; a reviewer opens that file",
    ),
    ScanRule(
        "token-pasting",
        "the preprocessor builds names that are not in the source",
        "write the names out or use a template; a reviewer runs the preprocessor",
    ),
    ScanRule(
        "inline-assembly",
        "assembly that the compiler passes on unchanged",
        "use an intrinsic if there is one; a reviewer checks clocks, cache hints and number formats in it",
    ),
    ScanRule(
        "host-files",
        "the library opens or maps files",
        "pass tensors; a reviewer checks which files",
    ),
    ScanRule(
        "shared-device-memory",
        "memory that the host, another process or another GPU can also access",
        "take memory from torch; a reviewer checks who writes and reads it",
    ),
    ScanRule(
        "host-read",
        "host code accesses a tensor's memory through its pointer",
        "use .item(), or .cpu() first: if the tensor is on the GPU, this is a segmentation fault there",
    ),
    ScanRule(
        "device-clock",
        "a kernel reads a clock",
        "remove it from the judged code; a reviewer checks whether results or work depend on it",
    ),
    ScanRule("device-sleep", "a kernel waits for time to pass", "remove it; a reviewer checks what it waits for"),
    ScanRule(
        "l2-persistence",
        "data is kept in the L2 cache from call to call",
        "leave the cache to the hardware; a reviewer checks the speed with a cold cache",
    ),
    ScanRule(
        "empty-kernel",
        "a kernel without a body",
        "launch only kernels that compute; a reviewer checks what computes instead",
    ),
    ScanRule(
        "unlaunched-kernel",
        "a kernel that nothing in the file launches or names",
        "remove it or launch it; a reviewer checks what computes instead (see `kernels`)",
    ),
    ScanRule("device-printing", "a kernel prints", "remove it: printing is slow, and the judge truncates the output"),
    # the scan itself
    ScanRule(
        "not-scanned",
        "the scan stopped before the end of the text",
        "keep a solution short and its data small; a reviewer reads the rest",
    ),
)

RULES: dict[str, ScanRule] = {rule.name: rule for rule in _TABLE}
