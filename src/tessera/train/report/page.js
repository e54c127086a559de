"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const NS = "http://www.w3.org/2000/svg";

function add(parent, tag, attributes, text) {
  const node = document.createElementNS(NS, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  if (text !== undefined) node.textContent = text;
  parent.append(node);
  return node;
}

function mark(parent, tag, attributes, title) {
  const node = add(parent, tag, {...attributes, "data-mark": ""});
  if (title) add(node, "title", {}, title);
  return node;
}

const percent = (share) => Number((100 * share).toFixed(1)) + "%";
const short = (value) => Number(value.toPrecision(3)).toString();
const powers = ["p", "n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
function withUnit(value, unit) {
  const step = Math.max(-4, Math.min(6, Math.floor(Math.log10(value) / 3 + 1e-9)));
  return short(value / 10 ** (3 * step)) + " " + powers[step + 4] + unit;
}

// Linear or logarithmic, from data to pixels.
function scale(low, high, from, to, log) {
  const f = log ? Math.log10 : (x) => x;
  const span = f(high) - f(low) || 1;
  return (x) => from + (to - from) * (f(x) - f(low)) / span;
}
function logRange(values) {
  const low = 10 ** Math.floor(Math.log10(Math.min(...values)) + 1e-9);
  const high = 10 ** Math.ceil(Math.log10(Math.max(...values)) - 1e-9);
  return [low, high > low ? high : 10 * low];
}
function logTicks([low, high], most) {
  const ticks = [];
  const decades = Math.round(Math.log10(high / low));
  const step = Math.max(1, Math.ceil(decades / most));
  for (let i = 0; i <= decades; i += step) ticks.push(low * 10 ** i);
  return ticks;
}

// A frame with grid, ticks and axis labels; returns the two scales.
function frame(svg, width, height, x, y) {
  const box = {left: 64, right: width - 26, top: 14, bottom: height - 44};
  const px = scale(...x.range, box.left, box.right, x.log);
  const py = scale(...y.range, box.bottom, box.top, y.log);
  for (const tick of x.ticks) {
    add(svg, "line", {class: "grid", x1: px(tick), x2: px(tick), y1: box.top, y2: box.bottom});
    add(svg, "text", {x: px(tick), y: box.bottom + 17, "text-anchor": "middle"}, x.format(tick));
  }
  for (const tick of y.ticks) {
    add(svg, "line", {class: "grid", x1: box.left, x2: box.right, y1: py(tick), y2: py(tick)});
    add(svg, "text", {x: box.left - 7, y: py(tick) + 4, "text-anchor": "end"}, y.format(tick));
  }
  add(svg, "text", {x: (box.left + box.right) / 2, y: height - 6, "text-anchor": "middle"}, x.label);
  const middle = (box.top + box.bottom) / 2;
  add(svg, "text", {x: 12, y: middle, "text-anchor": "middle",
                    transform: `rotate(-90 12 ${middle})`}, y.label);
  return {px, py, box};
}

function start(figure, width, height) {
  return add(figure, "svg", {viewBox: `0 0 ${width} ${height}`, role: "img"});
}

function drawCurves(figure, width) {
  const height = Math.min(380, 0.7 * width + 60);
  const svg = start(figure, width, height);
  const all = Object.values(data.curves).flat();
  const low = Math.min(0.9, Math.floor(Math.min(...all) * 10) / 10);
  const ticks = [];
  const step = low < 0.5 ? 0.2 : low < 0.8 ? 0.1 : 0.05;
  for (let i = 0; 1 - i * step >= low - 1e-9; ++i) ticks.push(1 - i * step);
  const {px, py, box} = frame(svg, width, height,
    {range: [0, 1], ticks: [0, 0.25, 0.5, 0.75, 1], format: percent, label: "share of problems"},
    {range: [low, 1], ticks, format: percent, label: "efficiency, at most"});
  Object.entries(data.curves).forEach(([name, values], place) => {
    const n = Math.max(values.length - 1, 1);
    const points = values.map((v, i) => `${px(i / n).toFixed(1)},${py(v).toFixed(1)}`).join(" ");
    mark(svg, "polyline", {class: "curve", points, style: `stroke: var(--${name})`}, name);
    const y = box.bottom - 16 - 20 * (2 - place);
    add(svg, "line", {x1: box.right - 90, x2: box.right - 70, y1: y - 4, y2: y - 4, class: "curve",
                      style: `stroke: var(--${name})`});
    add(svg, "text", {x: box.right - 64, y, class: "strong"}, name);
  });
}

function drawHeat(figure, width) {
  if (data.heat.length === 0) return;
  const [rowName, columnName] = data.axes;
  const rows = data.heat.map((c) => c[0]);
  const columns = data.heat.map((c) => c[1]);
  const [r0, r1] = [Math.min(...rows), Math.max(...rows)];
  const [c0, c1] = [Math.min(...columns), Math.max(...columns)];
  const left = 64, top = 8;
  const cell = Math.min(56, (width - left - 12) / (c1 - c0 + 1));
  const tall = Math.min(cell, 34);
  const bottom = top + tall * (r1 - r0 + 1);
  const svg = start(figure, width, bottom + 84);
  const least = Math.min(0.95, ...data.heat.map((c) => c[2]));
  const colour = (v) => {
    const share = Math.round(100 * (v - least) / (1 - least));
    return `color-mix(in oklab, var(--high) ${share}%, var(--low))`;
  };
  const octave = (name, log) => `${name} ${2 ** log} to ${2 ** (log + 1) - 1}`;
  for (const [row, column, median, count, min] of data.heat) {
    const x = left + cell * (column - c0), y = top + tall * (r1 - row);
    mark(svg, "rect", {x, y, width: cell - 1, height: tall - 1, style: `fill: ${colour(median)}`},
         `${octave(rowName, row)}, ${octave(columnName, column)}: ` +
         `median ${percent(median)}, min ${percent(min)}, ${count} problems`);
    if (cell < 34) continue;
    const dark = median - least > 0.5 * (1 - least);
    add(svg, "text", {x: x + cell / 2, y: y + tall / 2 + 4, "text-anchor": "middle",
                      style: `fill: var(--${dark ? "page" : "ink"}); pointer-events: none`},
        (100 * median).toFixed(0));
  }
  const every = cell < 26 ? 2 : 1;
  for (let n = c0; n <= c1; n += every) {
    add(svg, "text", {x: left + cell * (n - c0 + 0.5), y: bottom + 15, "text-anchor": "middle"}, n);
  }
  for (let m = r0; m <= r1; ++m) {
    add(svg, "text", {x: left - 8, y: top + tall * (r1 - m + 0.5) + 4, "text-anchor": "end"}, m);
  }
  const middle = left + cell * (c1 - c0 + 1) / 2;
  add(svg, "text", {x: middle, y: bottom + 34, "text-anchor": "middle"}, "log2 " + columnName);
  const y = (top + bottom) / 2;
  add(svg, "text", {x: 14, y, "text-anchor": "middle", transform: `rotate(-90 14 ${y})`},
      "log2 " + rowName);
  const steps = 24;
  for (let i = 0; i < steps; ++i) {
    add(svg, "rect", {x: left + 6 * i, y: bottom + 48, width: 6, height: 12,
                      style: `fill: ${colour(least + (1 - least) * i / (steps - 1))}`});
  }
  add(svg, "text", {x: left, y: bottom + 76}, percent(least));
  add(svg, "text", {x: left + 6 * steps, y: bottom + 76, "text-anchor": "end"}, "100%");
}

function drawImportance(figure, width) {
  const left = Math.min(230, 0.45 * width);
  const svg = start(figure, width, 20 * data.importance.length + 8);
  const most = Math.max(...data.importance.map((f) => f[1]), 1e-12);
  data.importance.forEach(([name, gain], i) => {
    const y = 20 * i + 4;
    const letters = Math.floor((left - 8) / 7.3);
    const shown = name.length > letters ? name.slice(0, letters - 1) + "\u2026" : name;
    add(svg, "text", {x: left - 8, y: y + 12, "text-anchor": "end", class: "strong"}, shown);
    mark(svg, "rect", {class: "bar", x: left, y, height: 15, rx: 2,
                       width: Math.max(1, (width - left - 58) * gain / most)}, name);
    add(svg, "text", {x: left + (width - left - 58) * gain / most + 6, y: y + 12},
        (100 * gain).toFixed(1) + "%");
  });
}

function drawCalibration(figure, width) {
  if (data.calibration.length === 0) return;
  const height = Math.min(440, 0.8 * width + 50);
  const svg = start(figure, width, height);
  const range = logRange(data.calibration.flat());
  const axis = (label) => ({range, log: true, ticks: logTicks(range, width < 500 ? 4 : 8),
                            format: (v) => withUnit(v, "s"), label});
  const {px, py} = frame(svg, width, height, axis("predicted"), axis("measured"));
  for (const [predicted, measured] of data.calibration) {
    mark(svg, "circle", {class: "dot", cx: px(predicted).toFixed(1), cy: py(measured).toFixed(1),
                         r: 2});
  }
  add(svg, "line", {class: "even", x1: px(range[0]), y1: py(range[0]), x2: px(range[1]),
                    y2: py(range[1])});
}

function drawRoofline(figure, width) {
  const {points, roofs} = data.roofline;
  if (points.length === 0) return;
  const height = Math.min(440, 0.75 * width + 60);
  const svg = start(figure, width, height);
  const x = logRange(points.map((p) => p[0]).concat(roofs.map((r) => r[1] / r[2])));
  const y = logRange(points.map((p) => p[1]).concat(roofs.map((r) => r[1])));
  const {px, py, box} = frame(svg, width, height,
    {range: x, log: true, ticks: logTicks(x, 6), format: short, label: "operations per byte"},
    {range: y, log: true, ticks: logTicks(y, 6), format: (v) => withUnit(v, ""),
     label: "operations per second"});
  for (const [intensity, flops, problem] of points) {
    mark(svg, "circle", {class: "dot", cx: px(intensity).toFixed(1), cy: py(flops).toFixed(1), r: 3},
         `${problem}: ${withUnit(flops, "flop/s")}`);
  }
  for (const [name, flops, bytes] of roofs) {
    const foot = Math.max(x[0], y[0] / bytes), ridge = flops / bytes;
    mark(svg, "polyline", {class: "roof", points: [[foot, foot * bytes], [ridge, flops],
      [x[1], flops]].map((p) => `${px(p[0])},${py(p[1])}`).join(" ")}, name);
    add(svg, "text", {x: box.right - 6, y: py(flops) - 7, "text-anchor": "end", class: "strong"},
        `${name}: ${withUnit(flops, "flop/s")}, ${withUnit(bytes, "B/s")}`);
  }
}

const charts = {curves: drawCurves, heat: drawHeat, importance: drawImportance,
                calibration: drawCalibration, roofline: drawRoofline};
function drawAll() {
  for (const figure of document.querySelectorAll("figure")) {
    figure.replaceChildren();
    charts[figure.dataset.chart](figure, Math.max(320, Math.min(figure.clientWidth, 920)));
  }
}
drawAll();
let waiting;
addEventListener("resize", () => { clearTimeout(waiting); waiting = setTimeout(drawAll, 150); });
