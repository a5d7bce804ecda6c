"""The interface between judge and worker: a closed message schema and a shared arena of tensors."""
