"""The box in which a cell shows a notice about GPUs: a headline and lines, as text and as HTML. Pure."""

from __future__ import annotations


def boxed(
    headline: str, plain: list[str], html: list[str] | None = None, colour: str = "#76b900"
) -> dict[str, str]:
    """A MIME bundle: the headline over these lines, and in HTML over others if some are given, in a box."""
    from html import escape  # loads a table of 2,000 entities: not before it is needed

    rows = "".join(f"<div{_indent(line)}>{escape(line.strip())}</div>" for line in html or plain)
    box = (
        f'<div role="status" style="display:inline-block;border-left:4px solid {colour};padding:6px 14px;'
        'font-family:var(--jp-ui-font-family,sans-serif);font-size:13px;line-height:1.6">'
        f"<div><b>{escape(headline)}</b></div>"
        f'<div style="opacity:.8">{rows}</div></div>'
    )
    return {"text/plain": "\n".join([headline, *plain]), "text/html": box}


def _indent(line: str) -> str:
    return ' style="padding-left:1.2em"' if line.startswith("  ") else ""
