"use strict";
// The Gantt chart: plotly draws bars and axes; which bar the pointer is on is looked up here, as a bar of ten
// thousand has no element of its own.
const drawGantt = (place, content, config) => {
  const palette = JSON.parse(place.dataset.colours);
  const HOUR = 3600, UNIT = content.unit, MOST_TICKS = 40;
  const state = { hidden: new Set(), text: "", by: "queue" };
  const make = (kind, text, into) => {
    const one = document.createElement(kind);
    if (text) one.textContent = text;
    into.appendChild(one);
    return one;
  };

  const bar = make("div", "", place);
  bar.className = "controls";
  const byLabel = make("label", "Colour by ", bar);
  const by = make("select", "", byLabel);
  for (const name of ["queue", "gang"]) make("option", name, by).value = name;
  const textLabel = make("label", "Gang, pod or node ", bar);
  const text = make("input", "", textLabel);
  text.type = "search";
  text.placeholder = "part of a name";
  const queues = make("fieldset", "", bar);
  make("legend", "Queues", queues);
  content.queues.forEach((name, number) => {
    const label = make("label", "", queues);
    const box = make("input", "", label);
    box.type = "checkbox";
    box.checked = true;
    const swatch = make("span", "", label);
    swatch.className = "swatch";
    swatch.style.background = palette[number % palette.length];
    make("span", name, label);
    box.addEventListener("change", () => {
      if (box.checked) state.hidden.delete(number); else state.hidden.add(number);
      drawAll();
    });
  });
  const count = make("output", "", bar);
  const panes = make("div", "", place);
  panes.className = "panes";
  panes.style.gridTemplateColumns = `repeat(${Math.min(2, content.charts.length)}, 1fr)`;
  const tip = make("div", "", place);
  tip.className = "tip";
  tip.hidden = true;
  tip.setAttribute("role", "tooltip");

  const hash = (word) => {
    let sum = 7;
    for (const letter of word) sum = (sum * 31 + letter.codePointAt(0)) >>> 0;
    return sum;
  };

  const views = content.charts.map((chart) => {
    const pane = make("div", "", panes);
    const title = make("h4", chart.label, pane);
    title.hidden = content.charts.length < 2;
    const plot = make("div", "", pane);
    plot.className = "chart";
    const byNode = chart.nodes.map(() => []);
    for (const one of chart.bars) byNode[chart.node[one[0]]].push(one);
    const gangs = chart.job.map((code) => hash(chart.texts[code]));
    return { chart, plot, byNode, gangs };
  });

  const shown = (view, stay) => {
    const { chart } = view;
    if (state.hidden.has(chart.queue[stay])) return false;
    if (!state.text) return true;
    const names = [chart.texts[chart.job[stay]], chart.texts[chart.pod[stay]], chart.nodes[chart.node[stay]]];
    return names.some((name) => name.toLowerCase().includes(state.text));
  };

  const traces = (view) => {
    const { chart } = view;
    const groups = new Map();
    let visible = 0, last = -1;
    for (const [stay, low, high] of chart.bars) {
      if (!shown(view, stay)) continue;
      if (stay !== last) visible += 1;
      last = stay;
      const key = (state.by === "queue" ? chart.queue[stay] : view.gangs[stay]) % palette.length;
      if (!groups.has(key)) groups.set(key, { x: [], y: [] });
      const group = groups.get(key), row = chart.node[stay], lanes = chart.lanes[row];
      const top = row + 0.06 + (0.88 * (low + 0.04)) / lanes, bottom = row + 0.06 + (0.88 * (high - 0.04)) / lanes;
      const from = chart.start[stay] / UNIT, to = chart.until[stay] / UNIT;
      group.x.push(from, to, to, from, from, null);
      group.y.push(top, top, bottom, bottom, top, null);
    }
    view.visible = visible;
    const down = { x: [], y: [] };
    for (const [row, start, end] of chart.down) {
      const from = start / UNIT, to = end / UNIT;
      down.x.push(from, to, to, from, from, null);
      down.y.push(row + 0.06, row + 0.06, row + 0.94, row + 0.94, row + 0.06, null);
    }
    const trace = (points, colour) => ({
      type: "scatter", mode: "lines", fill: "toself", fillcolor: colour, line: { width: 0, color: colour, simplify: false },
      hoverinfo: "skip", showlegend: false, ...points,
    });
    const found = [...groups.entries()].sort((a, b) => a[0] - b[0]).map(([key, points]) => trace(points, palette[key]));
    return [...found, { ...trace(down, "#1f2933"), fillpattern: { shape: "x", size: 5 } }];
  };

  const ticks = (nodes, low, high) => {
    const first = Math.max(0, Math.floor(Math.min(low, high)));
    const last = Math.min(nodes.length - 1, Math.ceil(Math.max(low, high)));
    const step = Math.max(1, Math.ceil((last - first + 1) / MOST_TICKS));
    const rows = [];
    for (let row = first; row <= last; row += step) rows.push(row);
    const safe = (name) => name.replace(/&/g, "&amp;").replace(/</g, "&lt;");
    return { tickvals: rows.map((row) => row + 0.5), ticktext: rows.map((row) => safe(nodes[row])) };
  };

  const layoutOf = (view) => {
    const { chart } = view, rows = chart.nodes.length;
    const own = view.plot.layout;
    const x = own ? own.xaxis.range : [0, chart.end / UNIT];
    const y = own ? own.yaxis.range : [rows, 0];
    const axis = { showline: true, linecolor: "#7b8794", gridcolor: "#e4e7eb", zeroline: false, ticks: "outside" };
    return {
      height: Math.min(760, Math.max(260, 90 + 26 * rows)),
      margin: { l: 90, r: 16, t: 30, b: 50 },
      font: { family: "system-ui, 'DejaVu Sans', sans-serif", size: 12, color: "#1f2933" },
      dragmode: "zoom",
      xaxis: { ...axis, title: { text: content.time }, range: x },
      yaxis: { ...axis, automargin: true, range: y, tickmode: "array", ...ticks(chart.nodes, ...y) },
    };
  };

  let linking = false;
  const relink = (view, change) => {
    if (linking) return;
    linking = true;
    const updates = views.map((other) => {
      const update = {};
      if (other !== view && Object.keys(change).some((key) => key.startsWith("xaxis"))) {
        update["xaxis.range"] = [...view.plot.layout.xaxis.range];
      }
      if ("xaxis.autorange" in change) update["xaxis.range"] = [0, other.chart.end / UNIT];
      let rows = other.plot.layout.yaxis.range;
      if ("yaxis.autorange" in change && other === view) update["yaxis.range"] = rows = [other.chart.nodes.length, 0];
      const found = ticks(other.chart.nodes, ...rows);
      update["yaxis.tickvals"] = found.tickvals;
      update["yaxis.ticktext"] = found.ticktext;
      return Plotly.relayout(other.plot, update);
    });
    Promise.all(updates).finally(() => { linking = false; });
  };

  const duration = (seconds) => {
    if (seconds < 120) return `${seconds.toFixed(1)} s`;
    return seconds < 2 * HOUR ? `${(seconds / 60).toFixed(1)} min` : `${(seconds / HOUR).toFixed(2)} h`;
  };

  const under = (view, event) => {
    const { chart, plot, byNode } = view;
    const { xaxis, yaxis } = plot._fullLayout, box = plot.getBoundingClientRect();
    const at = xaxis.p2d(event.clientX - box.left - xaxis._offset) * UNIT;
    const y = yaxis.p2d(event.clientY - box.top - yaxis._offset), row = Math.floor(y);
    if (!byNode[row]) return -1;
    const lane = ((y - row - 0.06) / 0.88) * chart.lanes[row];
    for (const [stay, low, high] of byNode[row]) {
      const inside = chart.start[stay] <= at && at < chart.until[stay] && low <= lane && lane < high;
      if (inside && shown(view, stay)) return stay;
    }
    return -1;
  };

  const tell = (view, stay, event) => {
    const { chart } = view, word = (column) => chart.texts[chart[column][stay]];
    tip.textContent = "";
    make("strong", `gang ${word("job")}`, tip);
    const gpus = chart.gpus[stay], held = word("devices");
    const devices = held ? `, ${held.includes(" ") ? "GPUs" : "GPU"} ${held}` : "";
    const lines = [
      `pod ${word("pod")}, queue ${content.queues[chart.queue[stay]]}`,
      `on ${chart.nodes[chart.node[stay]]}${devices} (${gpus} ${gpus === 1 ? "GPU" : "GPUs"} in all)`,
      `from ${duration(chart.start[stay])} to ${duration(chart.until[stay])}, ${word("ended") || "still there at the end"}`,
      `why here: ${word("why")}`,
      `waited ${duration(chart.waited[stay])}${word("waited_for") ? `, for: ${word("waited_for")}` : ""}`,
    ];
    for (const line of lines) make("div", line, tip);
    tip.hidden = false;
    const box = place.getBoundingClientRect();
    const left = event.clientX - box.left + 14;
    tip.style.left = `${Math.max(0, Math.min(left, box.width - tip.offsetWidth - 4))}px`;
    tip.style.top = `${event.clientY - box.top + 16}px`;
  };

  const drawAll = () => {
    const drawn = views.map((view) => Plotly.react(view.plot, traces(view), layoutOf(view), config));
    const pods = views.map((view) => view.visible.toLocaleString("en")).join(" and ");
    count.textContent = `${pods} stays of pods shown`;
    return Promise.all(drawn);
  };

  by.addEventListener("change", () => { state.by = by.value; drawAll(); });
  text.addEventListener("input", () => { state.text = text.value.trim().toLowerCase(); drawAll(); });
  return drawAll().then(() => {
    for (const view of views) {
      view.plot.on("plotly_relayout", (change) => relink(view, change));
      view.plot.addEventListener("mousemove", (event) => {
        const stay = under(view, event);
        if (stay < 0) tip.hidden = true; else tell(view, stay, event);
      });
      view.plot.addEventListener("mouseleave", () => { tip.hidden = true; });
    }
    place.dataset.ready = "yes";
  });
};
