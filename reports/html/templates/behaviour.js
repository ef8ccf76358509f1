
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
  const target = () => byId(decodeURIComponent(location.hash.slice(1)));
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

  // Filter of the list of cells.
  const filter = byId("filter");
  if (!filter) return;
  const rows = [...byId("cell-list").tBodies[0].rows];
  const texts = rows.map((row) => row.textContent.toLowerCase());
  const apply = () => {
    const text = byId("filter-text").value.trim().toLowerCase();
    const status = byId("filter-status").value;
    let shown = 0;
    rows.forEach((row, index) => {
      row.hidden = !(texts[index].includes(text) && (!status || row.dataset.status === status));
      shown += row.hidden ? 0 : 1;
    });
    byId("filter-count").textContent = `${shown} of ${rows.length} cells`;
  };
  filter.hidden = false;
  filter.addEventListener("submit", (event) => event.preventDefault());
  filter.addEventListener("input", apply);
  apply();
})();
