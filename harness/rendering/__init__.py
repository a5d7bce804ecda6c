"""Renders templates to solutions with declared parameters, strict Jinja2 and a stamp."""
