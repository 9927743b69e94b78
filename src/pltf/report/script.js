"use strict";
(() => {
  const root = document.documentElement;
  const figures = JSON.parse(document.getElementById("figures").textContent);
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const paper = matchMedia("print");
  const touch = matchMedia("(pointer: coarse)");
  const scales = {
    light: [[0, "#f1f4f8"], [0.5, "#6ba3d4"], [1, "#0b3c6f"]],
    dark: [[0, "#222a33"], [0.5, "#3a7ab5"], [1, "#dcefff"]],
  };
  let printing = false;

  const scale = () => (dark.matches && !printing && !paper.matches ? scales.dark : scales.light);
  const narrow = () => root.clientWidth < 500;

  // ---- charts: drawn when they can be seen, for only then they know their width ----
  const places = [...document.querySelectorAll("[data-chart]")];
  const drawn = (place) => place.classList.contains("js-plotly-plot");

  function layoutOf(figure, place) {
    const layout = { ...figure.layout, width: place.clientWidth, height: Number(place.dataset.height) };
    place.dataset.width = place.clientWidth;
    if (touch.matches) {
      layout.dragmode = false;
      for (const axis of ["xaxis", "yaxis"]) layout[axis] = { ...layout[axis], fixedrange: true };
    }
    if (narrow()) for (const axis of ["xaxis", "yaxis"]) layout[axis] = { ...layout[axis], tickfont: { size: 10 } };
    return layout;
  }

  // Width is set outright: plotly's own resizing waits, and paper does not.
  function draw(place) {
    if (drawn(place)) {
      if (place.clientWidth && place.clientWidth !== place.dataset.width * 1) {
        place.dataset.width = place.clientWidth;
        Plotly.relayout(place, { width: place.clientWidth });
      }
      return;
    }
    const figure = figures[place.dataset.chart];
    for (const trace of figure.data) {
      if (trace.type === "heatmap") trace.colorscale = scale();
      if (trace.type === "bar" && narrow()) delete trace.text;
    }
    Plotly.newPlot(place, figure.data, layoutOf(figure, place), {
      displaylogo: false,
      displayModeBar: touch.matches ? false : "hover",
      modeBarButtons: [["toImage", "resetScale2d"]],
      toImageButtonOptions: { filename: place.dataset.chart, scale: 2 },
      showTips: false,
    });
  }

  function paint() {
    for (const place of places.filter(drawn)) {
      if (place.data.some((trace) => trace.type === "heatmap")) Plotly.restyle(place, { colorscale: [scale()] });
    }
  }

  // ---- tabs, as the WAI-ARIA pattern has them ----
  const list = document.querySelector(".tabs");
  const tabs = [...list.querySelectorAll("a")];
  const panelOf = (tab) => document.getElementById(tab.getAttribute("href").slice(1));

  function choose(tab, focus) {
    for (const one of tabs) {
      const chosen = one === tab;
      one.setAttribute("aria-selected", String(chosen));
      one.tabIndex = chosen ? 0 : -1;
      panelOf(one).hidden = !chosen;
    }
    if (focus) tab.focus();
    drawShown();
  }

  const drawShown = () => places.filter((place) => place.clientWidth).forEach(draw);

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
    if (tab && target !== panelOf(tab)) target.scrollIntoView();
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
    panel.tabIndex = 0;
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

  // ---- paper: everything in sequence, in light colours, as wide as the page ----
  function toPaper() {
    if (printing) return;
    printing = true;
    root.classList.add("printing");
    drawShown();
    paint();
  }

  function toScreen() {
    if (!printing) return;
    printing = false;
    root.classList.remove("printing");
    paint();
    choose(tabs.find((tab) => tab.getAttribute("aria-selected") === "true"), false);
  }

  addEventListener("beforeprint", toPaper);
  addEventListener("afterprint", toScreen);
  paper.addEventListener("change", (event) => (event.matches ? toPaper() : toScreen()));
  dark.addEventListener("change", paint);
  addEventListener("hashchange", follow);
  let waiting = 0;
  addEventListener("resize", () => {
    clearTimeout(waiting);
    waiting = setTimeout(drawShown, 100);
  });

  root.classList.add("js");
  follow();
})();
