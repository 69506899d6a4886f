"use strict";
(() => {
  const config = { responsive: true, displaylogo: false, showTips: false, toImageButtonOptions: { format: "svg" } };

  const contentOf = (place) => JSON.parse(document.getElementById(place.dataset.of).textContent);

  const drawPlot = (place) => {
    const { data, layout } = contentOf(place);
    return Plotly.newPlot(place, data, layout, config);
  };

  const drawChart = (place) => drawGantt(place, contentOf(place), config);

  const drawers = { plot: drawPlot, gantt: drawChart };

  const draw = (place) => {
    if (place.dataset.drawn) return;
    place.dataset.drawn = "yes";
    drawers[place.className](place);
  };

  // A figure is drawn when it comes into view, so that a long page opens at once; before printing all are.
  const places = [...document.querySelectorAll("[data-of]")];
  const watch = new IntersectionObserver(
    (entries) => entries.filter((entry) => entry.isIntersecting).forEach((entry) => draw(entry.target)),
    { rootMargin: "300px" }
  );
  places.forEach((place) => watch.observe(place));
  window.addEventListener("beforeprint", () => places.forEach(draw));
})();
