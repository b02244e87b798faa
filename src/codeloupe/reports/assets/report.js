"use strict";
(() => {
  const root = document.documentElement;
  const byId = (id) => document.getElementById(id);
  const cards = Array.from(document.querySelectorAll("article.finding"));
  const groups = Array.from(document.querySelectorAll("[data-group]"));
  const choices = Array.from(document.querySelectorAll("button.choice"));
  const search = byId("search");
  const panel = byId("filters");
  const dialog = byId("keys");
  const folds = groups.map((group) => group.querySelector("details")).filter(Boolean);
  const chosen = { severity: new Set(), file: new Set(), expert: new Set(), standing: new Set() };
  const words = new Map();
  const FEW = 50;
  let wasFiltered = false;
  let current = null;

  root.classList.add("scripted");

  // Storage is closed to pages opened from some places; the theme then lasts as long as the page.
  const remembered = (value) => {
    try {
      if (value === undefined) return localStorage.getItem("codeloupe-theme");
      localStorage.setItem("codeloupe-theme", value);
    } catch {
      return null;
    }
    return value;
  };

  const isDark = () =>
    root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;

  const switchTheme = () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    remembered(root.dataset.theme);
  };

  const textOf = (card) => {
    if (!words.has(card)) words.set(card, `${card.dataset.file} ${card.textContent}`.toLowerCase());
    return words.get(card);
  };

  // The counts of the filters are those of open findings, so they choose among these until a status is chosen.
  const counts = (card) => (chosen.standing.size ? chosen.standing.has(card.dataset.standing) : ["open", "needs a person"].includes(card.dataset.standing));
  const isChosen = () => Object.values(chosen).some((values) => values.size > 0);

  const matches = (card, sought) =>
    (!isChosen() || counts(card)) &&
    Object.entries(chosen).every(([kind, values]) => values.size === 0 || values.has(card.dataset[kind])) &&
    sought.every((word) => textOf(card).includes(word));

  const unfold = (isOpen) => {
    for (const fold of folds) fold.open = isOpen;
    nameFolds();
  };

  const nameFolds = () => {
    const button = byId("unfold");
    if (button) button.textContent = folds.every((fold) => fold.open) ? "Fold all files" : "Open all files";
  };

  const switchFolds = () => unfold(!folds.every((fold) => fold.open));

  const filter = () => {
    const sought = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const isFiltered = sought.length > 0 || isChosen();
    const total = cards.filter(counts).length;
    let count = 0;
    let visible = 0;
    for (const card of cards) {
      card.hidden = !matches(card, sought);
      visible += card.hidden ? 0 : 1;
      count += card.hidden || !counts(card) ? 0 : 1;
    }
    if (isFiltered !== wasFiltered || visible <= FEW) unfold(isFiltered && visible <= FEW);
    wasFiltered = isFiltered;
    for (const group of groups) group.hidden = !group.querySelector("article.finding:not([hidden])");
    byId("shown").textContent = `${count} of ${total}`;
    byId("clear").hidden = !isFiltered;
    byId("open-filters").textContent = isFiltered ? `Filter: ${count} of ${total}` : "Filter";
    byId("nothing-left").hidden = visible > 0 || cards.length === 0;
    if (current && current.hidden) mark(null);
  };

  const toggle = (choice) => {
    const values = chosen[choice.dataset.kind];
    const isPressed = !values.delete(choice.dataset.value);
    if (isPressed) values.add(choice.dataset.value);
    choice.setAttribute("aria-pressed", String(isPressed));
    filter();
  };

  const clear = () => {
    search.value = "";
    for (const values of Object.values(chosen)) values.clear();
    for (const choice of choices) choice.setAttribute("aria-pressed", "false");
    filter();
  };

  const mark = (card) => {
    if (current) current.classList.remove("current");
    current = card;
    if (!card) return;
    card.classList.add("current");
    const fold = card.closest("details");
    if (fold) fold.open = true;
    card.focus({ preventScroll: true });
    const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
    card.scrollIntoView({ block: "start", behavior: calm ? "auto" : "smooth" });
  };

  const step = (by) => {
    const visible = cards.filter((card) => !card.hidden);
    if (!visible.length) return;
    const at = visible.indexOf(current);
    const next = at < 0 ? (by > 0 ? 0 : visible.length - 1) : at + by;
    mark(visible[Math.min(Math.max(next, 0), visible.length - 1)]);
  };

  const showFilters = (isOpen) => {
    panel.classList.toggle("open", isOpen);
    byId("open-filters").setAttribute("aria-expanded", String(isOpen));
  };

  const showKeys = () => (dialog.open ? dialog.close() : dialog.showModal());

  const goToAnchor = () => {
    const card = cards.find((one) => `#${one.id}` === location.hash);
    if (!card) return;
    if (card.hidden) clear();
    mark(card);
  };

  const copied = async (text) => {
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch {
      // Pages from some places may not use the clipboard this way.
      const area = document.createElement("textarea");
      area.value = text;
      document.body.append(area);
      area.select();
      const isDone = document.execCommand("copy");
      area.remove();
      return isDone;
    }
  };

  const copy = async (button) => {
    const source = button.parentElement.querySelector(".path, pre.new");
    const said = (await copied(source.textContent)) ? "Copied" : "Not copied";
    button.focus();
    button.textContent = said;
    byId("said").textContent = said;
    setTimeout(() => {
      button.textContent = "Copy";
      byId("said").textContent = "";
    }, 1500);
  };

  const severities = ["critical", "high", "medium", "low"];
  const keys = {
    j: () => step(1),
    k: () => step(-1),
    "/": () => {
      showFilters(true);
      search.focus();
      search.select();
    },
    x: clear,
    o: switchFolds,
    t: switchTheme,
    "?": showKeys,
  };
  severities.forEach((severity, index) => {
    keys[index + 1] = () => {
      const choice = choices.find((one) => one.dataset.kind === "severity" && one.dataset.value === severity);
      if (choice) toggle(choice);
    };
  });

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target === search) {
      if (event.key === "Escape") {
        clear();
        search.blur();
      } else if (event.key === "Enter") {
        search.blur();
        step(1);
      }
      return;
    }
    if (dialog.open && event.key !== "?") return;
    if (Object.hasOwn(keys, event.key)) {
      event.preventDefault();
      keys[event.key]();
    }
  });

  const theme = remembered();
  if (theme === "light" || theme === "dark") root.dataset.theme = theme;
  for (const choice of choices) choice.addEventListener("click", () => toggle(choice));
  for (const card of cards) {
    card.addEventListener("click", () => {
      if (current) current.classList.remove("current");
      current = card;
      card.classList.add("current");
    });
  }
  document.addEventListener("click", (event) => {
    const button = event.target.closest("button.copy");
    if (button) copy(button);
  });
  for (const fold of folds) fold.addEventListener("toggle", nameFolds);
  addEventListener("beforeprint", () => unfold(true));
  if (byId("unfold")) byId("unfold").addEventListener("click", switchFolds);
  search.addEventListener("input", filter);
  byId("clear").addEventListener("click", clear);
  byId("theme").addEventListener("click", switchTheme);
  byId("help").addEventListener("click", showKeys);
  byId("close-help").addEventListener("click", () => dialog.close());
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
  byId("open-filters").addEventListener("click", () => showFilters(!panel.classList.contains("open")));
  byId("open-filters").hidden = panel.hidden;
  addEventListener("hashchange", goToAnchor);
  goToAnchor();
})();
