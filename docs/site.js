// Wide tables are scrolled by keyboard, too: the theme wraps them after the page is there.
const focusable = () => document.querySelectorAll(".md-typeset__scrollwrap").forEach((e) => (e.tabIndex = 0));
focusable();
new MutationObserver(focusable).observe(document.querySelector(".md-content"), { childList: true, subtree: true });
