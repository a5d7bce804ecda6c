"""Wraps the operating system: files, folders, processes, signals, memory and text."""
