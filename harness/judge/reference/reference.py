"""Evaluates the reference: exactly in float64, and several times with eager PyTorch.

The exact evaluation runs in pieces of the batch where memory is short. The budget is a multiple of
eager's error. Eager runs three times, so that one lucky run does not set the budget: once as it is,
and twice on inputs and parameters moved by one rounding. Those two runs also permute the batch, or
on the CPU use another number of threads.

Permuting or cutting the batch is right only if the model treats its samples independently. A
float64 run tests that.
"""

from __future__ import annotations

import contextlib
import copy
import functools
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from harness.errors import ProblemError
from harness.judge.inputs.buffers import buffers_of, changed_buffers, same_form
from harness.judge.inputs.copying import copied
from harness.judge.inputs.draws import CPU, Draw, OwnOutput, derive_seed, near_one, seeded, square_sum
from harness.judge.inputs.memory_fit import spare_memory
from harness.judge.inputs.nudging import nudged
from harness.judge.inputs.randomness import (
    BEYOND_ROUNDING,
    REMEDY,
    Drawn,
    Recording,
    Replaying,
    distance,
    drawn_since,
    states,
)
from harness.judge.inputs.ranges import within
from harness.judge.reference.device_assertions import TriedOnCpu
from harness.judge.reference.graph import Graph
from harness.judge.reference.lifting import Lifting, is_rounded
from harness.judge.reference.torch_settings import ExactConvolutions, default_dtype, other_thread_count
from harness.project.problems import Problem, failure
from harness.wire.replies import OutputPart
from harness.wire.structure import Unstructured, paths_of, strange_parts, taken_apart

#: Float64 evaluations in different orders agree far better than this, unless the model mixes
#: samples.
INDEPENDENCE_TOLERANCE = 1e-9
#: Bytes of a float64 evaluation per input element: value, gradient and saved tensors of inputs and
#: outputs.
EXACT_BYTES_PER_ELEMENT = 64
#: A float64 evaluation may use this fraction of the free memory: one part in 8.
EXACT_SHARE = 8
#: Data kept for a comparison must leave free this multiple of the memory of a float64 evaluation.
ROOM = 2
#: Free memory that was this multiple of what is wanted is not measured again.
AMPLE = 16
#: Message for a reference whose outputs' form depends on their values.
FORMS_CHANGE = (
    "the number or shapes of the reference's outputs change from draw to draw: return tensors of fixed shapes, padded "
    "if need be, and their lengths or a mask"
)


class Exact:
    """The float64 reference on one draw, whole or in pieces of the batch.

    Args:
        reference: Evaluates the reference.
        draw: The draw.
        seed: Seed of the random numbers that the forward draws.
        rows: Samples in a piece; None for the whole batch at once.
    """

    def __init__(self, reference: Reference, draw: Draw, seed: int, rows: int | None):
        self._reference = reference
        self._draw = draw
        self._seed = seed
        batch = draw.batch or 0
        self.pieces: list[slice | None] = [None]
        if rows is not None and rows < batch:
            self.pieces = [slice(start, min(start + rows, batch)) for start in range(0, batch, rows)]

    def graph(self, piece: slice | None) -> Graph:
        """Evaluate a piece, anew each time.

        Raises:
            ProblemError: The reference does not run in float64.
        """
        return self._reference.run(self._draw, self._seed, torch.float64, piece)

    def own_output(self, dtypes: Sequence[torch.dtype], alone: int | None) -> OwnOutput:
        """Return the form of the cotangent that is the exact output; eager forwards tell the output's size."""
        squares: defaultdict[int, float] = defaultdict(float)
        elements: defaultdict[int, int] = defaultdict(int)
        for piece in self.pieces:
            outputs = self._reference.run(self._draw, self._seed, None, piece, differentiate=False).outputs
            for place, output in enumerate(outputs):
                squares[place] += square_sum(output)
                elements[place] += output.numel()
        return OwnOutput(dtypes, [near_one(squares[place], elements[place]) for place in elements], alone)


class Reference:
    """Evaluates one problem's reference on one draw after another.

    Args:
        problem: The problem, for messages.
        differentiate: Whether the caller needs gradients at all.
        memory_bytes: Memory that a float64 evaluation may take. A batch that needs more is
            evaluated in pieces.
        device: Where the draws are.

    Attributes:
        changes: Names of the buffers that a forward changes; known once a forward has run.
        written: Positions of the inputs to which a forward has written.
        differentiates: Whether the caller needs gradients at all.
        same_generator: Whether candidates must draw the forward's random numbers by the same calls.
        is_random: Whether forward draws random numbers, as ``check_randomness`` found.
    """

    def __init__(self, problem: Problem, differentiate: bool, memory_bytes: int, device: torch.device = CPU):
        self._problem = problem
        self._device = device
        self.differentiates = differentiate
        self._memory_bytes = memory_bytes
        self._spare_bytes = 0
        self._independent: bool | None = None
        self._structure: tuple[OutputPart, ...] = ()
        self._dtypes: list[torch.dtype] = []
        self.changes: frozenset[str] = frozenset()
        self.written: frozenset[int] = frozenset()
        self.same_generator = False
        self.is_random = False
        self._recorded: tuple[Draw, int, list[Drawn]] | None = None
        self._convolutions = ExactConvolutions(device)
        self._lifts: bool | None = None

    def grant(self, memory_bytes: int) -> None:
        """Set the memory that a float64 evaluation may take from now on."""
        self._memory_bytes = memory_bytes
        self._spare_bytes = 0  # another candidate's

    def forget(self) -> None:
        """Release the random numbers recorded for the last draw."""
        self._recorded = None

    def has_room_beside(self, size: int) -> bool:
        """Return whether ``size`` bytes fit beside an evaluation, with a margin for a candidate."""
        margin = ROOM * self._memory_bytes
        if size * AMPLE > self._spare_bytes - margin:  # measuring takes as long as a small call
            self._spare_bytes = spare_memory(self._device)
        if self._spare_bytes < size + margin:
            return False
        self._spare_bytes -= size  # until it is measured again
        return True

    def exact(self, draw: Draw, seed: int) -> Exact:
        """Return the float64 reference for a draw, in pieces where memory is short."""
        batch = draw.batch
        elements = sum(value.numel() for value in draw.inputs if isinstance(value, torch.Tensor))
        needed = elements * EXACT_BYTES_PER_ELEMENT
        if batch is None or needed <= self._memory_bytes or not self.samples_are_independent(draw, seed):
            return Exact(self, draw, seed, None)
        return Exact(self, draw, seed, max(1, self._memory_bytes * batch // needed))

    def eager(self, draw: Draw, seed: int, watch: contextlib.AbstractContextManager[Any] | None = None) -> Graph:
        """Run the reference as the problem wrote it; ``watch`` sees every operator of its forward.

        Raises:
            ProblemError: The reference does not run.
        """
        # Later draws of the problem's own are trusted: a copy to the CPU in each run would take too long.
        with contextlib.nullcontext() if self._dtypes else TriedOnCpu(is_own=True):
            graph = self.run(draw, seed, None, None, watch=watch)
        self._notice_forms(graph, draw.batch)
        return graph

    def check_randomness(self, draw: Draw, seed: int, graph: Graph) -> None:
        """Check that nothing depends on random numbers, unless candidates can draw the same ones.

        Args:
            draw: A draw.
            seed: Seed of the random numbers that the forward draws.
            graph: An eager evaluation under both.

        Raises:
            ProblemError: A result depends on random numbers that a candidate cannot draw. The
                message says what to do.
        """
        if not graph.drawn_from:
            return
        same, other = (
            self.run(draw, one, None, None, differentiate=False)
            for one in (seed, derive_seed(str(seed), "another state of the generators"))
        )
        mine, again, another = ([*one.outputs, *one.buffers.values()] for one in (graph, same, other))
        if not distance(mine, another) > BEYOND_ROUNDING * distance(mine, again):
            return
        if "random" in graph.drawn_from:
            raise ProblemError(
                f"{self._problem.path}: the reference's outputs depend on Python's random module or NumPy's, "
                "whose numbers a candidate cannot get: draw in get_inputs() and pass the values to forward"
            )
        if not self.same_generator:
            raise ProblemError(
                f"{self._problem.path}: the reference's outputs depend on random numbers that forward draws (a dropout "
                f"in training mode?): {REMEDY}"
            )
        self.is_random = True

    def _random_numbers(self, draw: Draw, seed: int) -> list[Drawn]:
        """Return what an eager forward draws under a seed.

        Raises:
            ProblemError: The reference does not run, or draws numbers inside an operator that hides
                them.
        """
        if self._recorded is None or self._recorded[0] is not draw or self._recorded[1] != seed:
            recording = Recording()
            self.run(draw, seed, None, None, watch=recording)
            self._recorded = draw, seed, recording.kept
        return self._recorded[2]

    def check_forms(self, draw: Draw, seed: int, shapes: Sequence[tuple[int, ...]]) -> None:
        """Check that the outputs still have these shapes.

        Raises:
            ProblemError: The shapes change from draw to draw.
        """
        if [tuple(output.shape) for output in self.eager(draw, seed).outputs] != list(shapes):
            raise ProblemError(f"{self._problem.path}: {FORMS_CHANGE}")

    def eager_runs(self, draw: Draw, seed: int, piece: slice | None) -> Iterator[tuple[Graph, torch.Tensor | None]]:
        """Run eager three times on a piece: once as it is, and twice with other rounding.

        The last two begin with ``nudged`` inputs and parameters. Where samples are independent,
        each also permutes the batch; the last one, or both where samples depend on each other, use
        another number of threads.

        Args:
            draw: The draw.
            seed: Seed of the random numbers that the forward draws, of the permutation and of the
                nudges.
            piece: Rows of the batch; None for all.

        Yields:
            The evaluation, and the permutation of the piece that its inputs and outputs are in
            (None for none).
        """
        straight = self.run(draw, seed, None, piece)
        yield straight, None
        count = draw.batch if piece is None else piece.stop - piece.start
        self._notice_forms(straight, count)
        del straight  # Release the graph before the next run.
        orders: list[torch.Tensor | None] = [None, None]
        if count is not None and self.samples_are_independent(draw, seed):
            generator = torch.Generator().manual_seed(seed)
            orders = [torch.randperm(count, generator=generator), torch.arange(count - 1, -1, -1)]
        first = 0 if piece is None else piece.start
        for number, (order, threads) in enumerate(zip(orders, (orders[0] is None, True), strict=True)):
            nudge = derive_seed(str(seed), "nudge", number)
            with other_thread_count() if threads else contextlib.nullcontext():
                try:
                    graph = self.run(draw, seed, None, piece if order is None else first + order, nudge=nudge)
                except ProblemError:
                    if order is None:
                        raise
                    # Samples have an order, such as that of their lengths.
                    self._independent, order = False, None
                    graph = self.run(draw, seed, None, piece, nudge=nudge)
            yield graph, order

    def samples_are_independent(self, draw: Draw, seed: int) -> bool:
        """Return whether samples can be permuted and cut: parts give what the whole gives.

        A test on up to four samples decides. It cannot see a form that depends on values (``x[x >
        0]``); runs on the whole batch correct that.
        """
        if self._independent is None:
            self._independent = not (self.changes or self.is_random) and self._try_parts(draw, seed)
        return self._independent

    def _notice_forms(self, graph: Graph, count: int | None) -> None:
        """Notice outputs without the batch dimension: then samples can be neither permuted nor cut."""
        if any(output.dim() == 0 or output.shape[0] != count for output in graph.outputs):
            self._independent = False

    def _try_parts(self, draw: Draw, seed: int) -> bool:
        count = min(draw.batch or 0, 4)
        if count < 2:
            return False
        try:
            together = self.run(draw, seed, torch.float64, slice(0, count), watch=TriedOnCpu()).outputs
            first = self.run(draw, seed, torch.float64, slice(0, 1), watch=TriedOnCpu()).outputs
            others = self.run(draw, seed, torch.float64, slice(1, count), watch=TriedOnCpu()).outputs
        except ProblemError:
            return False
        return all(
            whole.dim() > 0
            and whole.shape[0] == count
            and head.shape[1:] == whole.shape[1:] == tail.shape[1:]
            and head.shape[0] + tail.shape[0] == count
            and _close(torch.cat([head, tail]), whole)
            for whole, head, tail in zip(together, first, others, strict=True)
        )

    def run(
        self,
        draw: Draw,
        seed: int,
        dtype: torch.dtype | None,
        rows: slice | torch.Tensor | None,
        *,
        watch: contextlib.AbstractContextManager[Any] | None = None,
        differentiate: bool = True,
        nudge: int | None = None,
        model: torch.nn.Module | None = None,
    ) -> Graph:
        """Evaluate the reference once.

        Args:
            draw: The draw.
            seed: Seed of the random numbers that the forward draws.
            dtype: Evaluate in this dtype; None for the problem's own.
            rows: Take these samples of every input that carries the batch, in this order; None for
                all.
            watch: Sees every operator of the forward.
            differentiate: Whether to keep a graph. A reference made without ``differentiate`` never
                keeps one.
            nudge: Seed for nudging inputs and parameters by one rounding; None for none.
            model: The instance to call; None for a copy of the draw's.

        Raises:
            ProblemError: The reference does not run.
        """
        evaluate = functools.partial(self._evaluated, draw, seed, dtype, rows, watch=watch, nudge=nudge)
        evaluate = functools.partial(evaluate, differentiate=differentiate, model=model)
        if dtype is not torch.float64:
            return evaluate()
        if self._lifts is None:
            self._lifts = self._needs_lifting(draw, seed, rows)
        lifting = Lifting() if self._lifts else None
        graph = self._convolutions.call(lambda: evaluate(lifting=lifting), can_repeat=watch is None and model is None)
        graph.convolutions = self._convolutions
        return graph

    def _needs_lifting(self, draw: Draw, seed: int, rows: slice | torch.Tensor | None) -> bool:
        """Return whether the code asks for a precision below float64, and only rounds by that."""
        lifting = Lifting()
        graph = self._tried(draw, seed, rows, lifting)
        if graph is None or not lifting.has_changed:
            return False
        plain = self._tried(draw, seed, rows, None) if lifting.has_decided else None
        if plain is not None and [one.shape for one in plain.outputs] == [one.shape for one in graph.outputs]:
            return False
        eager = self._evaluated(draw, seed, None, rows, watch=TriedOnCpu(), differentiate=False)
        if lifting.reads_bits and not is_rounded(graph.outputs, eager.outputs):
            raise ProblemError(
                f"{self._problem.path}: a result depends on the last bits of a computed number (view(torch.int32)?), "
                "which rounding decides. Read the bits of inputs alone, or leading bits"
            )
        return is_rounded(graph.outputs, eager.outputs)

    def _tried(self, draw: Draw, seed: int, rows: slice | torch.Tensor | None, lifting: Lifting | None) -> Graph | None:
        evaluate = functools.partial(self._evaluated, draw, seed, torch.float64, rows, lifting=lifting)
        try:
            graph = self._convolutions.call(lambda: evaluate(watch=TriedOnCpu()))
            if lifting is not None and lifting.has_changed and any(one.requires_grad for one in graph.outputs):
                graph.gradients([torch.ones_like(output) for output in graph.outputs])
        except ProblemError:  # It looks at dtypes or bits, say.
            return None
        return graph

    def _evaluated(
        self,
        draw: Draw,
        seed: int,
        dtype: torch.dtype | None,
        rows: slice | torch.Tensor | None,
        *,
        watch: contextlib.AbstractContextManager[Any] | None = None,
        differentiate: bool = True,
        nudge: int | None = None,
        model: torch.nn.Module | None = None,
        lifting: Lifting | None = None,
    ) -> Graph:
        differentiate = differentiate and self.differentiates
        model = copied(draw.model, dtype) if model is None else model
        if nudge is not None:
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.copy_(nudged(parameter, nudge))
        batch = draw.batch
        names = draw.input_names()
        leaves: dict[str, torch.Tensor] = {}
        arguments: list[Any] = []
        for position, value in enumerate(draw.inputs):
            if not isinstance(value, torch.Tensor):
                arguments.append(copy.deepcopy(value))
                continue
            argument = value.detach()
            if rows is not None and argument.dim() > 0 and argument.shape[0] == batch:
                argument = argument[rows.to(argument.device) if isinstance(rows, torch.Tensor) else rows]
            if position in names:
                argument = argument if nudge is None else nudged(argument, nudge)
                argument = argument.to(dtype) if dtype is not None else argument
                leaf = argument.detach().requires_grad_(differentiate)
                leaves[names[position]] = argument = leaf
            # A reference that works in place must not change the draw, so it gets a copy.
            arguments.append(argument.clone())
        leaves.update((name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad)
        lifted, watching = lifting or contextlib.nullcontext(), watch or contextlib.nullcontext()
        given: contextlib.AbstractContextManager[Any] = contextlib.nullcontext()
        if dtype is not None and self.is_random:
            given = Replaying(self._random_numbers(draw, seed), dtype)
        with seeded(seed), torch.set_grad_enabled(differentiate), default_dtype(dtype), lifted, given, watching:
            before = states()
            try:
                result = model(*arguments)
            except torch.OutOfMemoryError:
                raise
            except ProblemError as error:  # Raised by a watcher.
                raise ProblemError(f"{self._problem.path}: {error}") from error
            except Exception as error:
                what = "the reference in float64" if dtype is torch.float64 else "the reference's forward"
                raise failure(self._problem, what, error) from error
            drawn_from = drawn_since(before)
        structure, outputs = self._taken_apart(result)
        if not differentiate:  # Forward may have turned autograd on.
            outputs = [output.detach() for output in outputs]
        if dtype is torch.float64 and len(outputs) == len(self._dtypes):
            outputs = [within(*pair) for pair in zip(outputs, self._dtypes, strict=True)]
        given_tensors = ((at, value) for at, value in enumerate(arguments) if isinstance(value, torch.Tensor))
        written = tuple(at for at, value in given_tensors if value._version)
        graph = Graph(self._problem, outputs, leaves, structure, buffers_of(draw, model), drawn_from, model, written)
        graph.is_lifted = lifting is not None
        if dtype is None and rows is None:
            self._check_form(draw, graph)
        return graph

    def _taken_apart(self, result: Any) -> tuple[tuple[OutputPart, ...], list[torch.Tensor]]:
        """Split a result into its structure and its output tensors.

        Raises:
            ProblemError: The judge cannot compare these outputs.
        """
        try:
            structure, outputs = taken_apart(result)
        except Unstructured as error:
            raise ProblemError(f"{self._problem.path}: {error}") from None
        strange = strange_parts(structure)
        codes = [f"an output is {one.dtype}" for one in outputs if one.is_floating_point() and one.itemsize == 1]
        if strange or codes or not outputs:
            what = f"{strange[0].path} is {strange[0].kind}" if strange else [*codes, "it returned no tensor"][0]
            raise ProblemError(
                f"{self._problem.path}: the judge cannot compare the reference's outputs: {what}; return a tensor, or "
                "tuples, lists and dicts (with strings as keys) of tensors and plain values; 8-bit floats as float32"
            )
        return structure, outputs

    def _check_form(self, draw: Draw, graph: Graph) -> None:
        """Check that output structure and changed buffers are the same as in the first draw.

        The candidate must return the same structure.

        Raises:
            ProblemError: They differ, or a buffer changes its shape or dtype.
        """
        changes, structure = changed_buffers(draw, graph.buffers), graph.structure
        self.written |= set(graph.written_inputs)
        if not self._structure:
            self._structure, self.changes = structure, changes
            self._dtypes = [output.dtype for output in graph.outputs]
        for name in sorted(changes):
            before = draw.model.get_buffer(name)
            if name not in graph.buffers or not same_form(before, graph.buffers[name]):
                raise ProblemError(
                    f"{self._problem.path}: the reference's forward changes the shape or dtype of its buffer "
                    f"{name}, or removes it, which the judge cannot compare"
                )
            if name not in self.changes:
                raise ProblemError(f"{self._problem.path}: the buffer {name} changes in one draw and not in another")
        if structure != self._structure and len(paths_of(structure)) == len(paths_of(self._structure)):
            first, now = next(pair for pair in zip(self._structure, structure, strict=False) if pair[0] != pair[1])
            raise ProblemError(
                f"{self._problem.path}: a value that the reference returns and that is not a tensor changes "
                f"from draw to draw ({first.path}: {first.value}, then {now.value}): return values that "
                "depend on the inputs as tensors"
            )


def _close(first: torch.Tensor, second: torch.Tensor) -> bool:
    if not first.is_floating_point() or second.numel() == 0:
        return bool(torch.equal(first, second))
    first, second = first.detach(), second.detach()
    scale = float(second.abs().max())
    return float((first - second).abs().max()) <= INDEPENDENCE_TOLERANCE * max(scale, 1e-300)
