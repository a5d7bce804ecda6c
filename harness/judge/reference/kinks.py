"""Moves draws away from kinks, where rounding alone decides a branch.

One flipped branch changes whole rows of a gradient. Before a trial the float64 reference shows
which comparisons rounding could turn, and samples that have one are redrawn. Where redrawing does
not help, the judge measures what flips change and holds that against nobody. See docs/numerics.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from harness.errors import ProblemError
from harness.judge.inputs.draws import Draw, derive_seed
from harness.judge.reference.equivalence import FLOORS, Slices
from harness.judge.reference.graph import Graph
from harness.judge.reference.kink_modes import Bounds, Counter, EagerOperands, Mover, Watching
from harness.judge.reference.reduced_precision import cut_inputs
from harness.judge.reference.reference import Reference
from harness.records.record import PrecisionClass

#: The most rounds of redrawing samples, and the most evaluations of the whole batch for it.
ROUNDS = 32
BATCHES = 8
#: Redrawing stops above this many near comparisons, per sample on average or in the whole draw: no
#: further draw would be free of them.
HOPELESS_IN_A_SAMPLE = 8
HOPELESS_IN_A_DRAW = 32
#: The most draws of a batch with dependent samples, including the first one.
WHOLE_DRAWS = 4
#: A flip excuses an error of at most this many times what the ``moved_runs`` change of the very element. Flips
#: may cancel in all runs and not in a candidate: that they do so down to one part in 256 is less likely than 1e-9.
MOST_EXCUSED = 256.0
#: Number of evaluations with moved elements where few remain and where many do. Many elements need
#: fewer runs.
RUNS_FOR_FEW, RUNS_FOR_MANY = 8, 4
FEW = 256


@dataclass(frozen=True)
class Settled:
    """A draw, moved as far from kinks as possible.

    Attributes:
        draw: The draw, with some of its samples replaced.
        redrawn: Number of replacements of samples; a sample may count several times.
        remaining: Number of elements still within rounding of a branch.
        bounds: How far rounding reaches.
    """

    draw: Draw
    redrawn: int
    remaining: int
    bounds: Bounds

    @property
    def counts(self) -> dict[str, int]:
        """The counts by name, for records."""
        return {"redrawn": self.redrawn, "remaining": self.remaining}


@dataclass(frozen=True)
class SettlingSteps:
    """The steps that settled a draw, so that they can be repeated without an evaluation.

    Attributes:
        mark: Mark of the draw before any change.
        taken: Turns of further draws, with the samples taken from each; None for all inputs.
        redrawn, remaining, bounds: As in ``Settled``.
    """

    mark: bytes
    taken: tuple[tuple[int, torch.Tensor | None], ...]
    redrawn: int
    remaining: int
    bounds: Bounds


class Kinks:
    """Settles the draws of one case: moves them away from kinks.

    Args:
        reference: Evaluates the reference.
        precision: The precision class whose budgets apply.
        fresh_inputs: Draws the inputs under a seed.
        known: Steps that settled earlier draws, by seed. New steps are added.
    """

    def __init__(
        self,
        reference: Reference,
        precision: PrecisionClass,
        fresh_inputs: Callable[[int], list[Any]],
        known: dict[int, SettlingSteps] | None = None,
    ):
        self._known = {} if known is None else known
        self._reference = reference
        self._floor = FLOORS[precision].maximum
        self._fresh_inputs = fresh_inputs

    def settle(self, draw: Draw, seed: int) -> Settled:
        """Replace the samples of a draw in which rounding may decide a branch.

        Args:
            draw: The trial's draw; it does not change.
            seed: Seed of the random numbers that the forward draws; further draws derive from it.

        Raises:
            ProblemError: The reference or ``get_inputs`` does not run.
        """
        mark = draw.mark()
        known = self._known.pop(seed, None)
        if known is None or known.mark != mark:
            settled, taken = self._settled(draw, seed)
            self._known[seed] = SettlingSteps(mark, tuple(taken), settled.redrawn, settled.remaining, settled.bounds)
            return settled
        self._known[seed] = known  # Reinsert as the most recent.
        for turn, rows in known.taken:
            fresh = self._fresh(draw, seed, turn)
            inputs = fresh.inputs
            if rows is not None:
                inputs = _with_rows(draw.inputs, fresh.inputs, rows, draw.batch or 1)
            draw = replace(draw, inputs=inputs)
        return Settled(draw, known.redrawn, known.remaining, known.bounds)

    def _settled(self, draw: Draw, seed: int) -> tuple[Settled, list[tuple[int, torch.Tensor | None]]]:
        """Settle a draw; also return which samples of which further draws replaced its own."""
        bounds = Bounds(self._floor)
        counts, others = self._count(draw, seed, bounds, learn=True)
        total = int(counts.sum()) + others
        if not total:
            return Settled(draw, 0, 0, bounds), []
        if draw.batch is None or not self._reference.samples_are_independent(draw, seed):
            return self._redraw_whole(Settled(draw, 0, total, bounds), seed)
        settled, redrawn, taken = self._redraw_samples(draw, seed, bounds, counts)
        # The first few samples may have misled the test of independence, so count again.
        if redrawn:
            counts, others = self._count(settled, seed, bounds)
        return Settled(settled, redrawn, int(counts.sum()) + others, bounds), taken

    def _fresh(self, draw: Draw, seed: int, turn: int) -> Draw:
        """Return the draw with other inputs of the same form.

        Raises:
            ProblemError: The new inputs have another form.
        """
        inputs = self._fresh_inputs(derive_seed(str(seed), "redraw", turn))
        if draw.bits is not None:
            inputs = cut_inputs(inputs, draw.bits)
        if [_form(value) for value in inputs] != [_form(value) for value in draw.inputs]:
            raise ProblemError("the number, shapes or dtypes of the inputs change from draw to draw")
        return replace(draw, inputs=inputs)

    def _count(
        self, draw: Draw, seed: int, bounds: Bounds, rows: torch.Tensor | None = None, learn: bool = False
    ) -> tuple[torch.Tensor, int]:
        """Count near elements by sample, and those of no sample.

        It uses the same pieces as the exact evaluation. With ``learn`` the first piece sets the
        bounds.
        """
        batch = draw.batch or 1
        piece = self._reference.exact(draw, seed).pieces[0]
        wanted = torch.arange(batch) if rows is None else rows
        counts: list[torch.Tensor] = []
        others = 0
        for part in torch.split(wanted, batch if piece is None else piece.stop):
            chosen = None if rows is None and piece is None else part
            eager = None
            if learn and not counts:
                eager = EagerOperands()
                self._reference.run(draw, seed, None, chosen, watch=Watching(eager), differentiate=False)
            counter = Counter(bounds, part.numel(), eager)
            self._reference.run(draw, seed, torch.float64, chosen, watch=Watching(counter), differentiate=False)
            counts.append(counter.by_sample())
            others += counter.of_no_sample()
        return torch.cat(counts), others

    def _redraw_samples(
        self, draw: Draw, seed: int, bounds: Bounds, counts: torch.Tensor
    ) -> tuple[Draw, int, list[tuple[int, torch.Tensor | None]]]:
        """Replace samples one by one, each only by a better one."""
        batch = counts.numel()
        counts = counts.clone()
        redrawn = spent = 0
        taken: list[tuple[int, torch.Tensor | None]] = []
        for turn in range(ROUNDS):
            rows = counts.nonzero().squeeze(1)
            hopeless = int(counts.sum()) > HOPELESS_IN_A_SAMPLE * batch
            if not rows.numel() or hopeless or spent + rows.numel() > BATCHES * batch:
                break
            spent += rows.numel()
            fresh = self._fresh(draw, seed, turn)
            found, _ = self._count(fresh, seed, bounds, rows)
            better = found < counts[rows]
            chosen = rows[better]
            if not chosen.numel():
                continue
            counts[chosen] = found[better]
            draw = replace(draw, inputs=_with_rows(draw.inputs, fresh.inputs, chosen, batch))
            redrawn += chosen.numel()
            taken.append((turn, chosen))
        return draw, redrawn, taken

    def _redraw_whole(self, settled: Settled, seed: int) -> tuple[Settled, list[tuple[int, torch.Tensor | None]]]:
        """Draw all inputs again a few times, and keep those with the fewest near elements."""
        samples = settled.draw.batch or 1
        best = settled
        taken: list[tuple[int, torch.Tensor | None]] = []
        for turn in range(1, WHOLE_DRAWS):
            if not 0 < best.remaining <= HOPELESS_IN_A_DRAW:
                break
            fresh = self._fresh(best.draw, seed, turn)
            counts, others = self._count(fresh, seed, settled.bounds)
            remaining = int(counts.sum()) + others
            if remaining < best.remaining:
                best = replace(best, draw=fresh, redrawn=best.redrawn + samples, remaining=remaining)
                taken = [(turn, None)]
        return best, taken


def moved_runs(reference: Reference, settled: Settled, seed: int, piece: slice | None) -> Iterator[Graph]:
    """Evaluate a piece in float64 several times, each time with half of the near elements flipped.

    Raises:
        ProblemError: The reference does not run.
    """
    signs = derive_seed(str(seed), "signs", 0 if piece is None else piece.start)
    runs = RUNS_FOR_FEW if settled.remaining <= FEW else RUNS_FOR_MANY
    for run in range(runs):
        mover = Mover(settled.bounds, signs, run, runs)
        yield reference.run(settled.draw, seed, torch.float64, piece, watch=Watching(mover))


def explained_by(runs: Sequence[Slices]) -> Slices:
    """Return what flips explain, slice by slice, from the deviations of ``moved_runs``.

    A run shows half of what single elements change and half of what all change together. The factor
    of two undoes that. So the result covers what any one element changes, nearly always what a few
    change, and what all change.
    """
    squares = torch.stack([run.squares for run in runs]).mean(0) * 4
    maximum = torch.stack([run.maximum for run in runs]).amax(0) * 2
    return Slices(squares, maximum, runs[0].elements, runs[0].by_slice)


def _form(value: Any) -> tuple[Any, ...]:
    return (value.shape, value.dtype) if isinstance(value, torch.Tensor) else (type(value),)


def _with_rows(inputs: list[Any], fresh: list[Any], rows: torch.Tensor, batch: int) -> list[Any]:
    """Replace some rows of the inputs that carry the batch."""
    return [
        value.index_copy(0, rows.to(value.device), other[rows.to(other.device)])
        if isinstance(value, torch.Tensor) and value.dim() and value.shape[0] == batch
        else value
        for value, other in zip(inputs, fresh, strict=True)
    ]
