// Wide tables scroll by keys, too, once the theme has wrapped them.
addEventListener('load', () => setTimeout(() => {
  for (const one of document.querySelectorAll('.md-typeset__scrollwrap')) one.tabIndex = 0;
}, 200));
