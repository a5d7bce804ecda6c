"""What crosses between judge and worker: a closed schema of messages, and an arena of raw tensors."""
