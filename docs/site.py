"""Pages of the site that are not written by hand, and links that leave docs/ (a hook of mkdocs.yml).

Names come from `gmip.__all__`, commands from the program, and files of the repository that the docs link to become
pages, so that nothing on the site can be older than the code.

    python docs/site.py     writes the tables of concepts.md and glossary.md, and images/curve.svg
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import griffe
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parent.parent
_LINK = re.compile(r"\]\(([^)#\s]+)(#[^)\s]*)?\)")
_ALL_OF = re.compile(r"^# all of (\S+)$", re.MULTILINE)  # in a block of code: the text of that file
_ASSETS = {".svg", ".png", ".csv", ".json"}


def on_files(files: Files, config: Any) -> Files:
    """Add the reference pages, the files that pages link to, and the changelog."""
    pages = {
        "reference/api.md": api_page(),
        "reference/commands.md": commands_page(),
        "changelog.md": (ROOT / "CHANGELOG.md").read_text(),
    }
    for path in _linked_files(Path(config["docs_dir"])):
        if path.suffix in _ASSETS:
            files.append(File.generated(config, path.relative_to(ROOT).as_posix(), abs_src_path=str(path)))
        else:
            pages[_page_of(path)] = path.read_text() if path.suffix == ".md" else _code_page(path)
    files.append(File.generated(config, "reference/result.schema.json", content=result_schema()))
    for uri, text in pages.items():
        files.append(File.generated(config, uri, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Point links that leave docs/ to the pages that on_files made of their targets; show files in blocks of code."""
    here = Path(page.file.src_uri)
    markdown = _ALL_OF.sub(lambda found: (ROOT / found[1]).read_text().rstrip("\n"), markdown)

    def moved(match: re.Match[str]) -> str:
        target, anchor = match.group(1), match.group(2) or ""
        found = _outside(here, target)
        if found is None:
            return match.group(0)
        up = "../" * (len(here.parts) - 1)
        return f"]({up}{_page_of(found)}{anchor})"

    return _LINK.sub(moved, markdown)


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """Name the theme's search for screen readers; set the formulas of the theory (the search keeps the plain words)."""
    search = 'data-md-component="search" role="dialog"'
    output = output.replace(search, f'{search} aria-label="Search"')
    if page.file.src_uri.startswith("theory/"):
        output = re.sub(r"<article.*?</article>", lambda found: _formulas(found[0]), output, flags=re.DOTALL)
    return output


_SIGNS = {"&lt;=": "&le;", "&gt;=": "&ge;", "-&gt;": "&rarr;", "sum_": "&sum;_", "sqrt(": "&radic;("}
_GREEK = "alpha beta delta epsilon theta kappa lambda mu nu rho sigma Sigma tau phi Phi chi Omega eps"
_WORD = re.compile(rf"(?<![A-Za-z&])({_GREEK.replace(' ', '|')})(?![A-Za-z])")
_RAISED = re.compile(r"(?<=[\w)\]|'};])[_^](?=[\w({-])")  # l_t, s^2, e^(4c^2), g_{mu_DP}, V^1/2


def _formulas(html: str) -> str:
    """Greek letters, indices and powers in text and in blocks of formulas, but not in `code`."""
    blocks = re.split(r"(<pre>.*?</pre>|<code>.*?</code>)", html, flags=re.DOTALL)
    for place, block in enumerate(blocks):
        if not block.startswith("<code>"):
            parts = re.split(r"(<[^>]*>)", block)
            blocks[place] = "".join(part if part.startswith("<") else _formula(part) for part in parts)
    return "".join(blocks)


def _formula(text: str) -> str:
    for plain, sign in _SIGNS.items():
        text = text.replace(plain, sign)
    done, place = "", 0
    while found := _RAISED.search(text, place):
        start = end = found.end()
        closing = {"(": ")", "{": "}"}.get(text[start])
        if closing:
            depth = 1
            while depth and end + 1 < len(text):
                end += 1
                depth += (text[end] == text[start]) - (text[end] == closing)
            inner, end = text[start + 1 : end], end + 1
        else:
            short = re.compile(r"-?1/2\b|-?[A-Za-z0-9]*").match(text, start)
            inner, end = (short[0], short.end()) if short else ("", start)
        tag = "sub" if found[0] == "_" else "sup"
        done += f"{_letters(text[place : found.start()])}<{tag}>{_formula(inner)}</{tag}>"
        place = end
    return done + _letters(text[place:])


def _letters(text: str) -> str:
    return _WORD.sub(lambda word: f"&{'epsilon' if word[1] == 'eps' else word[1]};", text)


class TypelessParameters(griffe.Extension):
    """Reads "name : what it is" in docstrings as a description; numpydoc takes it for a type, which signatures have."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring:
            obj.docstring.value = re.sub(
                r"^(\w[\w, *]*) : (?=\S)", r"\1\n    ", obj.docstring.value, flags=re.MULTILINE
            )


def _source(here: Path) -> Path:
    """The file that a page of the site was made from."""
    return next((p for p in (ROOT / "docs" / here, ROOT / here) if p.exists()), ROOT / "docs" / here)


def _outside(here: Path, target: str) -> Path | None:
    """The file of the repository, outside docs/, that a link means; None for all other links."""
    if "://" in target or target.startswith(("mailto:", "/")):
        return None
    path = (_source(here).parent / target).resolve()
    if path.is_relative_to(ROOT / "docs"):  # from benchmarks/README.md: ../docs/audit.md is audit.md on the site
        return path if (ROOT / "docs") not in _source(here).parents else None
    return path if path.is_file() and path.is_relative_to(ROOT) else None


def _page_of(path: Path) -> str:
    if path.is_relative_to(ROOT / "docs"):
        return path.relative_to(ROOT / "docs").as_posix()
    uri = path.relative_to(ROOT).as_posix()
    return uri if path.suffix in _ASSETS | {".md"} else f"{uri}.md"


def _linked_files(docs: Path) -> list[Path]:
    """All files outside docs/ that a page links to, also by way of another such file."""
    found: set[Path] = set()
    waiting = [*docs.rglob("*.md"), ROOT / "results" / "claims.md", ROOT / "benchmarks" / "README.md"]
    found.update(p for p in waiting if not p.is_relative_to(docs))
    while waiting:
        page = waiting.pop()
        for match in _LINK.finditer(page.read_text()):
            path = (page.parent / match.group(1)).resolve()
            if path.is_file() and path.is_relative_to(ROOT) and not path.is_relative_to(docs) and path not in found:
                found.add(path)
                if path.suffix == ".md":
                    waiting.append(path)
    return sorted(found)


def _code_page(path: Path) -> str:
    kind = {".py": "python", ".yaml": "yaml"}.get(path.suffix, "")
    return f"# {path.relative_to(ROOT).as_posix()}\n\n```{kind}\n{path.read_text()}```\n"


def mu_table() -> str:
    """What a mu means in rates and in epsilon."""
    from gmip import Gaussian

    lines = ["| mu | found at 0.1% | at 1% | at 10% | advantage | epsilon |", "|---|---|---|---|---|---|"]
    for mu in (0.1, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 5.0):
        curve = Gaussian(mu)
        rates = " | ".join(f"{float(curve.tpr_at(fpr)):.2%}" for fpr in (0.001, 0.01, 0.1))
        lines.append(f"| {mu:g} | {rates} | {curve.advantage():.1%} | {curve.epsilon(1e-5):.2f} |")
    return "\n".join(lines)


def curve_picture() -> str:
    """The trade-off curve of mu = 1 as a file of its own, in a grey that can be read on light and dark."""
    from gmip import Gaussian

    svg = next(ElementTree.fromstring(str(Gaussian(1.0)._repr_html_())).iter("svg"))
    grey = {"xmlns": "http://www.w3.org/2000/svg", "width": "480", "color": "#737b86", "font-family": "sans-serif"}
    svg.attrib |= grey
    return ElementTree.tostring(svg, encoding="unicode")


def filled(markdown: str) -> str:
    """A page with what stands between its comments `<!-- site.py: NAME -->` and `<!-- end -->` written anew."""
    for mark, made in (("mu", mu_table), ("attackers", attacker_table)):
        begin = f"<!-- site.py: {mark} -->\n"
        if begin in markdown:
            head, rest = markdown.split(begin, 1)
            markdown = f"{head}{begin}{made()}\n<!-- end -->{rest.split('<!-- end -->', 1)[1]}"
    return markdown


def attacker_table() -> str:
    """Who attacks, and who that is in life."""
    from gmip.report.card import IN_LIFE

    lines = ["| sees | for example | with a list of candidates |", "|---|---|---|"]
    for sees in ("gradients", "weights", "predictions"):
        lines.append(f"| {sees} | {IN_LIFE[sees, False]} | {IN_LIFE[sees, True]} |")
    return "\n".join(lines)


def result_schema() -> str:
    """The JSON Schema of result.json."""
    import json

    from gmip.auditing.schema import AuditResult

    schema = AuditResult.model_json_schema(mode="serialization")
    schema["properties"]["checksum"] = {"type": "string", "description": "SHA-256 of all else"}
    return json.dumps({"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}, indent=1) + "\n"


def api_page() -> str:
    """Every public name of gmip, and every attack, with its docstring."""
    import gmip
    from gmip.attacks import attack_table

    homes = {name: getattr(gmip, name).__module__ for name in gmip.__all__ if name != "__version__"}
    lines = ["# Python", "", "`import gmip` is enough for all of these; torch is loaded by what trains or attacks.", ""]
    lines += [f"::: {module}.{name}" for name, module in sorted(homes.items(), key=lambda item: item[0].lower())]
    lines += ["", "## Attacks", "", "What they find: [attacks](../attacks.md).", ""]
    needed = {
        name: "; ".join(attack_table.need_words(attack_table.ATTACKS[name].needs)) for name in attack_table.names()
    }
    lines += ["| attack | needs |", "|---|---|", *(f"| `{name}` | {words} |" for name, words in needed.items()), ""]
    lines += [f"::: {row.home[0]}.{row.home[1]}" for row in attack_table.ATTACKS.values() if row.home]
    return "\n".join(lines) + "\n"


def commands_page() -> str:
    """The help of every command, as the program prints it."""
    import typer.main
    from click import Context

    from gmip.cli import app

    group: Any = typer.main.get_command(app)
    top = Context(group)
    lines = ["# Commands", "", "Written from the program: `gmip COMMAND --help` prints the same.", ""]
    for name in group.list_commands(top):
        command = group.get_command(top, name)
        lines += [f"## gmip {name}", "", (command.help or "").strip(), ""]
        rows = [p.get_help_record(Context(command)) for p in command.params]
        shown = [row for row in rows if row]
        if shown:
            lines += ["| option | meaning |", "|---|---|"]
            lines += [
                f"| `{_cell(option).replace('|', ' or ')}` | {_cell(meaning).replace('|', ' or ')} |"
                for option, meaning in shown
            ] + [""]
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return " ".join(text.split())


if __name__ == "__main__":
    for name in ("concepts.md", "glossary.md"):
        path = ROOT / "docs" / name
        path.write_text(filled(path.read_text(encoding="utf-8")), encoding="utf-8")
    (ROOT / "docs" / "images" / "curve.svg").write_text(curve_picture() + "\n", encoding="utf-8")
