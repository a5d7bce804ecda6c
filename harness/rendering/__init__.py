"""Templates to solutions: declared parameters, strict Jinja2, a stamp that proves where a file came from."""
