"""Defines the situations in which trials call a candidate, as training loops and servers do.

A candidate that is wrong in one of them fails the trial, unless the problem's own model does not
support that one (see ``reference.unsupported``). They cost no trial of their own.
``trials.robustness`` tests calls beyond the problem's own inputs.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from harness.judge.inputs.draws import derive_seed
from harness.wire.commands import (
    ANOTHER_INSTANCE,
    DEEP_COPY,
    EVALUATION,
    INFERENCE,
    LARGER_BATCH,
    NON_LEAF,
    RETURNED,
    SAME_INSTANCE,
)

#: Half of the initial factor of ``torch.amp``'s GradScaler. Half precision, to which some precision
#: classes allow operands to be rounded, holds 65504 at most. A power of two changes no rounding.
LOSS_SCALE = 2.0**15
#: The cotangent whose elements are all the same. ``out.sum().backward()`` gives it expanded, with
#: stride 0.
CONSTANT = "ones"
#: The cotangent of a trial's first backward.
FIRST = "normal"
#: Ways of the backward under the first cotangent: the cotangent lies transposed in memory
#: (``transposed_order``); its samples, or its samples and their rows, lie apart; backward runs a second time over
#: the same graph, into ``.grad``.
TRANSPOSED, SAMPLES_APART, ROWS_APART, TWICE = OF_BACKWARD = ("transposed", "samples apart", "rows apart", "twice")
#: The dimensions along which the cotangent has gaps.
GAPS = {SAMPLES_APART: (1,), ROWS_APART: (1, -1)}
_REMEDY = "call .contiguous() before a kernel reads it by its pointer"
_APART = f"apart in memory, with NaN between them, as the backward of torch.cat gives it: {_REMEDY}"
#: The constant cotangent times ``LOSS_SCALE`` or its inverse.
SCALED = "scaled"
#: Inputs whose elements change places in the first calls in a row, which nobody compares.
REORDERED = "reordered"
#: Further forwards of a trial: after a backward, and with autograd on although nothing needs a gradient.
AFTER_BACKWARD, RECORDED = "after backward", "recorded"
AGAIN = {
    AFTER_BACKWARD: "after a backward: if only this one fails, a call or its backward changes what later calls read",
    RECORDED: "with autograd on, as by default; no input or parameter needs a gradient, or all do if the reference's "
    "output needs none. The first forward was right under torch.no_grad()",
}
#: Ways of a call that only a copy of the model can take: tensors made in inference mode are of no
#: use in later calls.
OF_COPY = (INFERENCE, DEEP_COPY)
#: What each way of a call means, for messages.
WAYS = {
    NON_LEAF: "the inputs were results of other operators, as behind a first layer",
    EVALUATION: "the model was in evaluation mode (.eval()), in which the reference returns the same",
    INFERENCE: "forward ran under torch.inference_mode() if the model can be copied, else under no_grad()",
    RETURNED: "the model had been in the other mode before (.eval() and .train()), and was back in its own",
    DEEP_COPY: "forward ran on a deep copy of the model (copy.deepcopy), if it can be copied",
    LARGER_BATCH: "the batch had twice as many samples",
    TRANSPOSED: f"the cotangent {FIRST!r} lay in memory with its dimensions in reverse order (with three or more, the "
    f"first stays outermost): {_REMEDY}",
    ROWS_APART: f"the samples of the cotangent {FIRST!r} and their rows lay {_APART}",
    SAMPLES_APART: f"the samples of the cotangent {FIRST!r} lay {_APART}",
    TWICE: f"backward under the cotangent {FIRST!r} ran a second time over the same graph (retain_graph=True), into "
    ".grad as loss.backward() does: .grad held the first result, and half of the sum is what was compared. If that is "
    "1.5 times expected, gradients share memory: return a tensor of its own for each",
}


@dataclass(frozen=True)
class Usage:
    """The way in which one trial calls the candidate.

    Attributes:
        frozen: Names of the reference's leaves that need no gradient.
        scale: Factor of the constant cotangent. The judge divides the gradients by it before it
            compares them.
        aside: Which instance runs on other values before the judge reads the result (see
            ``Forward.aside``).
        aside_calls: Number of such calls.
        calls: Number of calls before the judge reads a result.
        without_gradients: Whether no gradients are compared.
        is_recorded: Whether forward runs a second time with autograd on, where no gradients are
            compared and nothing that the judge gives needs one.
        ways: Further ways in which training loops and servers call a module. ``WAYS`` has those of
            the backward under the first cotangent, ``harness.wire.commands`` those of a forward.
        reorders: Whether elements of the inputs change places before calls in a row.
        alone: Path of the only output that has a cotangent; empty for all outputs.
        again: Which further forward the outputs are of: ``AFTER_BACKWARD``, ``RECORDED``, or empty for
            the first one.
        fill: Number of the pattern that surrounds what the judge gives, and fills new memory.
    """

    frozen: tuple[str, ...] = ()
    scale: float = 1.0
    aside: str = ""
    aside_calls: int = 1
    calls: int = 1
    without_gradients: bool = False
    is_recorded: bool = False
    ways: tuple[str, ...] = ()
    reorders: bool = True
    alone: str = ""
    again: str = ""
    fill: int = 0

    def without(self, unsupported: Collection[str]) -> Usage:
        """Return this usage without the situations that the reference does not support."""
        return replace(
            self,
            scale=1.0 if SCALED in unsupported else self.scale,
            ways=tuple(way for way in self.ways if way not in unsupported),
            reorders=REORDERED not in unsupported,
        )

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences for the message of a candidate that fails in such a trial."""
        told = []
        if self.frozen:
            told.append(
                f"in this trial {', '.join(self.frozen)} had requires_grad=False, like a first layer's input "
                "or a frozen parameter"
            )
        if self.aside == SAME_INSTANCE:
            backward = "" if self.without_gradients else ", first under no_grad(), then with its backward"
            told.append(
                f"in this trial forward ran {_more(self.aside_calls)}, on other values{backward}, before its result "
                "was read: if only this trial fails, calls share the memory of a result or of what backward "
                "needs"
            )
        if self.aside == ANOTHER_INSTANCE:
            told.append(
                "in this trial another instance of ModelNew, with other parameters, ran before this one, and a "
                "third one before its result was read: if only this trial fails, instances share what belongs to one"
            )
        if self.without_gradients and INFERENCE not in self.ways and not self.again:
            told.append("in this trial forward ran under torch.no_grad()")
        told += [f"in this trial {WAYS[way]}" for way in self.ways if way not in OF_BACKWARD]
        if self.again:
            told.append(f"this is the result of another forward on the same values, {AGAIN[self.again]}")
        elif self.calls > 1:
            told.append(f"this is the result of the last of {self.calls} calls in a row")
        return tuple(told)

    def notes_on(self, cotangents: Collection[str]) -> tuple[str, ...]:
        """Return ``notes``, and sentences on the cotangents under which gradients are wrong."""
        told = self.notes
        if cotangents and self.alone:
            told += (f"in this trial only {self.alone} had a cotangent, as if the loss used no other output",)
        if FIRST in cotangents:
            told += tuple(f"in this trial {WAYS[way]}" for way in self.ways if way in OF_BACKWARD)
        if CONSTANT not in cotangents:
            return told
        factor = "" if self.scale == 1 else f", times {self.scale:g}, like loss scaling"
        return (
            *told,
            f"the cotangent {CONSTANT!r} is one element expanded to the output's shape (stride 0), as "
            f"out.sum().backward() gives it{factor}. If the error is infinite, a kernel may have read it by its "
            "pointer, behind which there is NaN: call .contiguous() first. A finite error has another cause, "
            "such as a term that is wrong for a constant cotangent",
        )


def usage_of(trial: int, inputs: Sequence[str], parameters: Sequence[str], secret: str) -> Usage:
    """Return how an ordinary trial calls the candidate.

    Args:
        trial: The trial's number.
        inputs: Names of the inputs that the reference differentiates.
        parameters: Names of the parameters that it differentiates.
        secret: Secret for the choice of frozen leaves.
    """
    match trial:
        case 1:
            return Usage(_frozen(inputs, parameters, secret), LOSS_SCALE, ways=(SAMPLES_APART, RETURNED))
        case 2:
            return Usage((), 1 / LOSS_SCALE, SAME_INSTANCE, ways=(TRANSPOSED,))
        case 3:
            # Trial 1 asks only for gradients of parameters where there are any, this one for the inputs' own.
            frozen = _frozen(parameters, inputs, secret)
            return Usage(frozen, LOSS_SCALE, ANOTHER_INSTANCE, ways=(NON_LEAF, ROWS_APART))
        case _:
            return Usage()


def transposed_order(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the order in which the dimensions of a transposed cotangent lie in memory.

    That is the reverse order. If two others are longer than 1, the first dimension stays outermost, as
    in ``channels_last`` and behind ``transpose(1, 2)``, so that the stride between samples tells nothing.
    """
    kept = 1 if sum(size > 1 for size in shape[1:]) > 1 else 0
    return (*range(kept), *reversed(range(kept, len(shape))))


def _more(count: int) -> str:
    return "once more" if count == 1 else f"{count} times more"


def _frozen(names: Sequence[str], others: Sequence[str], secret: str) -> tuple[str, ...]:
    """Choose names at random: all or half of them, rounded down; half if there are no other leaves."""
    choose = random.Random(derive_seed(secret, "frozen", *names))
    if others and (len(names) == 1 or choose.random() < 0.5):
        return tuple(names)
    chosen = set(choose.sample(list(names), len(names) // 2))
    return tuple(name for name in names if name in chosen)
