// Long names of classes and methods in headings and menus break between their words.
document.addEventListener("DOMContentLoaded", () => {
  const places = ".bd-article h1, .bd-article h2, .bd-sidebar-primary a, .bd-toc-nav a";
  const words = /(?<=[a-z])(?=[A-Z])|(?<=\w[._])(?=\w)/;
  for (const element of document.querySelectorAll(places)) {
    const texts = document.createTreeWalker(element, NodeFilter.SHOW_TEXT);
    const nodes = [];
    while (texts.nextNode()) nodes.push(texts.currentNode);
    for (const node of nodes) {
      const parts = node.data.split(words);
      if (parts.length < 2) continue;
      const pieces = parts.flatMap((part, i) =>
        i ? [document.createElement("wbr"), part] : [part],
      );
      node.replaceWith(...pieces);
    }
  }
});
