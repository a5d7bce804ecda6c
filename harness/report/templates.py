"""Opens the Jinja templates of reports in markup, such as HTML and SVG."""

from __future__ import annotations

from pathlib import Path

import jinja2


def markup_environment(folder: Path) -> jinja2.Environment:
    """Returns an environment that escapes every value, and refuses a name that nobody set."""
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(folder),
        undefined=jinja2.StrictUndefined,
        autoescape=True,
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
