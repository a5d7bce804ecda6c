"""Provides torch's dispatch modes without the slow import of torch's compiler."""

from torch.utils._python_dispatch import TorchDispatchMode


class DispatchMode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A context in which ``__torch_dispatch__`` receives every operator call."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Returns False, because nothing here is compiled.

        The default implementation imports ``torch._dynamo``, which takes a second or two.
        """
        return False
