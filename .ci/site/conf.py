"""Settings of the documentation site, which Sphinx builds from the Markdown files as they are.

    pip install -c constraints.txt -e ".[docs]"
    sphinx-build -W --keep-going -c .ci/site . build/site

The first page is the README's. A broken link or anchor, a page without a place in the navigation and
a docstring that does not parse are errors.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from sphinx.application import Sphinx

from harness.package import VERSION

project, version, release = "kernel-harness", VERSION, VERSION
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
root_doc = "README"
include_patterns = ["*.md", "docs/*.md", "docs/design/*.md", "docs/kernels/*.md", "docs/skill/*.md", "benchmarks/*.md"]

html_theme = "furo"
html_title = project
html_copy_source = False
#: At an address that stays; a link on a page leads to a copy whose address depends on the text.
html_extra_path = ["../../docs/record.schema.json"]

myst_heading_anchors = 6  # GitHub's anchors
highlight_language = "text"

autoclass_content = "class"
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_default_options = {"members": True}
napoleon_numpy_docstring = False
napoleon_use_ivar = True

#: The pages of each part, in a reader's order.
PARTS = {
    "First steps": ["docs/README", "docs/getting-started", "docs/compare"],
    "Verdicts": ["docs/read-a-verdict", "docs/gallery", "docs/reports", "docs/score-answers"],
    "Your own operators": ["docs/write-a-problem", "docs/write-a-template", "docs/tune"],
    "Models and agents": ["docs/generate", "docs/serve", "docs/agents", "docs/skill/SKILL"],
    "In depth": [
        "docs/measuring",
        "docs/numerics",
        "docs/emulator",
        "docs/ptx",
        "docs/security",
        "docs/scale",
        "docs/ci",
    ],
    "Reference": ["docs/cli", "docs/library", "docs/api", "docs/record"],
    "Measurements": ["docs/kernels/*", "benchmarks/*"],
    "Project": ["CONTRIBUTING", "docs/design/*", "CHANGELOG"],
}
#: GitHub's name of a language that Pygments knows by another one.
LANGUAGES = {"cuda": "c++"}


def setup(app: Sphinx) -> None:
    """Connects what adapts the pages, and names the first page as web servers expect it."""
    app.connect("source-read", _adapted)
    app.connect("build-finished", _index)


def _adapted(app: Sphinx, name: str, source: list[str]) -> None:
    """Adds the navigation to the first page, and translates names of languages."""
    for github, pygments in LANGUAGES.items():
        source[0] = re.sub(rf"^```{github}$", f"```{pygments}", source[0], flags=re.MULTILINE)
    if name == root_doc:
        for title, pages in PARTS.items():
            listed = "\n".join(pages)
            source[0] += f"\n```{{toctree}}\n:hidden:\n:glob:\n:caption: {title}\n\n{listed}\n```\n"


def _index(app: Sphinx, error: Exception | None) -> None:
    if error is None:
        shutil.copy(Path(app.outdir) / f"{root_doc}.html", Path(app.outdir) / "index.html")
