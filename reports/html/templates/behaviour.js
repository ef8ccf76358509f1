
"use strict";
(() => {
  const byId = (id) => document.getElementById(id);
  const root = document.documentElement;

  // Theme: system, light, dark. A file opened from disk may be denied storage.
  const themes = ["system", "light", "dark"];
  const store = {
    read() { try { return localStorage.getItem("graphgate-theme"); } catch { return null; } },
    write(name) { try { localStorage.setItem("graphgate-theme", name); } catch { /* not kept */ } },
  };
  const show = (name) => {
    if (name === "system") delete root.dataset.theme; else root.dataset.theme = name;
    byId("theme-name").textContent = name;
  };
  let theme = themes.includes(store.read()) ? store.read() : "system";
  show(theme);
  byId("theme").hidden = false;
  byId("theme").addEventListener("click", () => {
    theme = themes[(themes.indexOf(theme) + 1) % themes.length];
    show(theme);
    store.write(theme);
  });

  // Pages: the style sheet shows the target; here the focus follows, and Escape goes back.
  let origin = null;
  // A page is inert text until it is opened: ten thousand of them would keep a browser busy.
  const unfolded = (page) => {
    const text = page?.querySelector(":scope > noscript");
    if (text) page.innerHTML = text.textContent;
    return page;
  };
  const target = () => unfolded(byId(decodeURIComponent(location.hash.slice(1))));
  target();
  addEventListener("hashchange", (event) => {
    const page = target();
    if (page?.matches("article.cell")) {
      page.focus();
      scrollTo(0, 0);
    } else if (page?.id === "overview") {
      (origin ?? page).focus();
    }
  });
  addEventListener("click", (event) => {
    const link = event.target.closest?.("#overview a[href^='#cell-']");
    if (link) origin = link;
  });
  addEventListener("keydown", (event) => {
    if (event.key === "Escape" && target()?.matches("article.cell")) location.hash = "#overview";
  });

  // Matrix: arrow keys move between its links, row by row.
  for (const matrix of document.querySelectorAll(".matrix")) {
    matrix.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      const links = [...matrix.querySelectorAll("a")];
      const at = links.indexOf(document.activeElement);
      if (!step || at < 0) return;
      event.preventDefault();
      links[Math.min(Math.max(at + step, 0), links.length - 1)].focus();
    });
  }

  // List of cells: all are searched, and a part is shown; more are lines of inert text.
  const filter = byId("filter");
  if (!filter) return;
  const part = 500;
  const body = byId("cell-list").tBodies[0];
  const entities = { "&lt;": "<", "&gt;": ">", "&#39;": "'", "&#34;": '"', "&amp;": "&" };
  const read = (line) => ({
    line,
    status: line.match(/data-status="(\w+)"/)[1],
    text: line.replace(/<[^>]*>/g, " ").replace(/&[^;]*;/g, (one) => entities[one] ?? one).toLowerCase(),
  });
  const all = body.innerHTML + (byId("more-cells")?.textContent ?? "");
  const rows = all.match(/<tr data-status.*?<\/tr>/gs)?.map(read) ?? [];
  const upTo = (found, limit) => found.slice(0, limit).map((row) => row.line).join("");
  let limit = part;
  let shown = upTo(rows, part);
  const apply = () => {
    const text = byId("filter-text").value.trim().toLowerCase();
    const status = byId("filter-status").value;
    const found = rows.filter((row) => row.text.includes(text) && (!status || row.status === status));
    const lines = upTo(found, limit);
    if (lines !== shown) body.innerHTML = shown = lines;
    byId("filter-count").textContent = `${found.length} of ${rows.length} cells`;
    byId("more").hidden = found.length <= limit;
    byId("more").textContent = `Show ${Math.min(part, found.length - limit)} more`;
  };
  byId("more").addEventListener("click", () => { limit += part; apply(); });
  filter.hidden = false;
  filter.addEventListener("submit", (event) => event.preventDefault());
  filter.addEventListener("input", () => { limit = part; apply(); });
  apply();
})();
