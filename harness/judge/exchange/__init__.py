"""The shared memory between judge and worker: where tensors lie, and whether the worker left them alone."""
