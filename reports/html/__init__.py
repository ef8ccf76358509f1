"""One self-contained HTML file that opens offline, in either theme, on any width."""

from reports.html.page import render_html

__all__ = ["render_html"]
