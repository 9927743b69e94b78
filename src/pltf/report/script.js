"use strict";
(() => {
  const root = document.documentElement;
  const figures = JSON.parse(document.getElementById("figures").textContent);
  const phone = matchMedia("(max-width: 600px)");

  // ---- what charts say under the pointer ----
  const tip = document.getElementById("tip");
  const mark = Object.assign(document.createElement("div"), { className: "mark" });

  function number(x) {
    if (x === null) return "∞";
    if (x && Math.abs(x) < 1e-4) return x.toExponential(1);
    return x.toLocaleString("en", { maximumSignificantDigits: 3 });
  }

  function value(data, n, unit) {
    const text = number(data.mean[n]) + unit;
    return data.low ? `${text} (90 %: ${number(data.low[n])} to ${number(data.high[n])}${unit})` : text;
  }

  // The points of a chart: where they lie, in percent from the left and from the bottom, and what they say.
  function pointsOf(data) {
    if (!data.curve) return data.points || [];
    const scale = figures.scales[data.curve];
    return scale.x.map((x, n) => [x, (100 * data.mean[n]) / data.top, `${scale.names[n]}\n${value(data, n, " %")}`]);
  }

  function nearest(data, box, x, y) {
    const points = (data.shown ??= pointsOf(data));
    const flat = data.curve || data.by === "x" ? 0.001 : 1;
    let best = null;
    let least = flat < 1 ? Infinity : 40 * 40;
    for (const point of points) {
      const distance =
        ((point[0] * box.width) / 100 - x) ** 2 + flat * (((100 - point[1]) * box.height) / 100 - y) ** 2;
      if (distance < least) [best, least] = [point, distance];
    }
    return best && { text: best[2], left: best[0], top: 100 - best[1] };
  }

  function cell(data, box, x, y) {
    const [rows, columns] = [data.rows.length, data.columns.length];
    const row = Math.min(rows - 1, Math.max(0, Math.floor((y / box.height) * rows)));
    const column = Math.min(columns - 1, Math.max(0, Math.floor((x / box.width) * columns)));
    const text = `${data.down}: ${data.rows[row]}\n${data.across}: ${data.columns[column]}`;
    return {
      text: `${text}\n${value(data, row * columns + column, "")}`,
      left: (100 * column) / columns,
      top: (100 * row) / rows,
      width: 100 / columns,
      height: 100 / rows,
    };
  }

  function show(plot, data, event) {
    const box = plot.getBoundingClientRect();
    const found = (data.rows ? cell : nearest)(data, box, event.clientX - box.left, event.clientY - box.top);
    if (!found) return hide();
    mark.classList.toggle("dot", !data.rows);
    for (const side of ["left", "top", "width", "height"]) mark.style[side] = side in found ? `${found[side]}%` : "";
    plot.append(mark);
    tip.textContent = found.text;
    tip.hidden = false;
    const x = box.left + (box.width * (found.left + (found.width || 0) / 2)) / 100;
    const y = box.top + (box.height * found.top) / 100;
    const room = root.clientWidth - tip.offsetWidth - 8;
    tip.style.left = `${Math.max(8, Math.min(room, x - tip.offsetWidth / 2))}px`;
    tip.style.top = `${y - tip.offsetHeight - 12 < 4 ? y + 18 : y - tip.offsetHeight - 12}px`;
  }

  function hide() {
    tip.hidden = true;
    mark.remove();
  }

  for (const chart of document.querySelectorAll("[data-chart]")) {
    const plot = chart.querySelector(".plot");
    const data = figures[chart.dataset.chart];
    for (const kind of ["pointermove", "pointerdown"]) plot.addEventListener(kind, (event) => show(plot, data, event));
    plot.addEventListener("pointerleave", hide);
  }
  addEventListener("scroll", hide, { passive: true });

  // ---- components fold on a phone ----
  const components = [...document.querySelectorAll("details.component")];

  function fold() {
    components.forEach((one, n) => (one.open = !phone.matches || n === 0));
  }

  // ---- tabs, by the WAI-ARIA pattern ----
  const list = document.querySelector(".tabs");
  const tabs = [...list.querySelectorAll("a")];
  const panelOf = (tab) => document.getElementById(tab.getAttribute("href").slice(1));

  function choose(tab, focus) {
    hide();
    for (const one of tabs) {
      const chosen = one === tab;
      one.setAttribute("aria-selected", String(chosen));
      one.tabIndex = chosen ? 0 : -1;
      panelOf(one).hidden = !chosen;
    }
    if (focus) tab.focus();
  }

  function remember(tab) {
    try {
      history.replaceState(null, "", tab.getAttribute("href"));
    } catch {
      /* some browsers refuse it for files */
    }
  }

  function follow() {
    const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    const tab = target && tabs.find((one) => panelOf(one).contains(target));
    choose(tab || tabs[0], false);
    if (!tab) return;
    if (target === panelOf(tab)) return target.blur(); // the browser has put the focus on the whole tab
    if (target.matches("details")) target.open = true;
    target.scrollIntoView();
  }

  list.setAttribute("role", "tablist");
  for (const tab of tabs) {
    const panel = panelOf(tab);
    tab.id = `tab-${panel.id}`;
    tab.setAttribute("role", "tab");
    tab.setAttribute("aria-controls", panel.id);
    panel.setAttribute("role", "tabpanel");
    panel.removeAttribute("aria-label");
    panel.setAttribute("aria-labelledby", tab.id);
    // not before the browser has followed a link to the tab, or it would put the focus on all of it
    addEventListener("load", () => setTimeout(() => (panel.tabIndex = 0)));
    tab.addEventListener("click", (event) => {
      event.preventDefault();
      choose(tab, true);
      remember(tab);
    });
  }
  list.addEventListener("keydown", (event) => {
    const at = tabs.indexOf(document.activeElement);
    const to = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: tabs.length - 1 }[event.key];
    if (event.key === " ") event.preventDefault();
    if (to === undefined || at < 0) return;
    event.preventDefault();
    const tab = tabs[(to + tabs.length) % tabs.length];
    choose(tab, true);
    remember(tab);
  });

  // ---- paper: everything is unfolded, the style sheet does the rest ----
  let folded = null;

  function toPaper() {
    folded ??= components.filter((one) => !one.open);
    for (const one of folded) one.open = true;
  }

  function toScreen() {
    for (const one of folded || []) one.open = false;
    folded = null;
  }

  addEventListener("beforeprint", toPaper);
  addEventListener("afterprint", toScreen);
  matchMedia("print").addEventListener("change", (event) => (event.matches ? toPaper() : toScreen()));
  phone.addEventListener("change", () => folded === null && fold());
  addEventListener("hashchange", follow);

  root.classList.add("js");
  fold();
  follow();
})();
