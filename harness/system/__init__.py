"""Files, folders, processes, signals, memory and text: what the harness needs of the operating system."""
