def build_operators(stem, launchers, cuda_source, binding_source, nvcc_flags=()):
    """Compile the sources and return the namespace of their operators in ``torch.ops``; with further flags for nvcc.

    The namespace carries a digest of the sources, so that different builds can live in one process.
    """
    digest = hashlib.sha256((launchers + cuda_source + binding_source).encode()).hexdigest()[:12]
    namespace = f"{stem}_{digest}"
    head = f"#define OP_NAMESPACE {namespace}\n{launchers}"
    load_inline(
        name=namespace,
        cpp_sources=[f"{head}{binding_source}"],
        cuda_sources=[f"{head}{cuda_source}"],
        no_implicit_headers=True,
        is_python_module=False,
        extra_cflags=["-O2"],
        # ptxas takes a thread per kernel; the level is that of the host's code, the device's is the highest by itself.
        extra_cuda_cflags=["-O1", *nvcc_flags, "-Xptxas", "--split-compile=0"],
    )
    return getattr(torch.ops, namespace)
