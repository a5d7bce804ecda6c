"""Torch's dispatch modes, without the seconds that they take to import torch's compiler."""

from torch.utils._python_dispatch import TorchDispatchMode


class DispatchMode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A block whose operators pass through ``__torch_dispatch__``."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Nothing here is compiled; the default imports ``torch._dynamo``, which takes a second or two."""
        return False
