from __future__ import annotations

import base64
import hashlib
import re
from html.parser import HTMLParser


class Page(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.found, self.ids, self.references, self.styled = [], [], [], []
        self.feed(text)

    def handle_starttag(self, name, attributes):
        given = dict(attributes)
        self.found.append(name)
        self.ids += [given["id"]] if "id" in given else []
        self.styled += [name] if "style" in given else []
        self.references += [v[1:] for k, v in attributes if k in ("href", "xlink:href") and v and v.startswith("#")]
        self.references += [r for _, v in attributes for r in re.findall(r"url\(#(.*?)\)", v or "")]


def test_the_page_needs_nothing_else(folder):
    text = (folder / "index.html").read_text()
    page = Page(text)
    assert len(page.ids) == len(set(page.ids)) and set(page.references) <= set(page.ids)
    assert page.styled == [] and page.found.count("style") == 1 and "script" not in page.found
    assert page.found.count("svg") == 2
    (style,) = re.findall("<style>(.*?)</style>", text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert f"style-src &#x27;sha256-{digest}&#x27;" in text or f"style-src 'sha256-{digest}'" in text
    assert not re.findall(r'(?:src|href)="(?!#|data:)', text)


def test_the_page_says_what_was_claimed_and_measured(folder):
    text = (folder / "index.html").read_text()
    for words in ("They grow", "&lt;b&gt;yes&lt;/b&gt;", "Really.", "Squares grow.", "A toy &lt;experiment&gt;"):
        assert words in text
    assert "python -m toy &lt;&amp;&gt;" in text and "Of 1 claims of the paper 1 agree" in text
    assert "squares &amp; &quot;more&quot;" in text and "4 cells" in text
