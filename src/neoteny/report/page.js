const figures = JSON.parse(document.getElementById("figures").textContent);
const dark = window.matchMedia("(prefers-color-scheme: dark)");
const config = { displaylogo: false, displayModeBar: false, responsive: true };

function painted(figure) {
  const css = getComputedStyle(document.documentElement);
  const colour = (name) => css.getPropertyValue(name).trim();
  const own = JSON.parse(JSON.stringify(figure).replaceAll('"color":"ink"', `"color":${JSON.stringify(colour("--ink"))}`));
  const axis = { gridcolor: colour("--rule"), zerolinecolor: colour("--rule"), linecolor: colour("--rule") };
  Object.assign(own.layout, {
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    dragmode: false,
    font: { family: getComputedStyle(document.body).fontFamily, size: 12.5, color: colour("--ink") },
    hoverlabel: { bgcolor: colour("--card"), bordercolor: colour("--rule"), font: { color: colour("--ink") } },
  });
  for (const name of ["xaxis", "yaxis"]) Object.assign(own.layout[name], axis);
  return own;
}

function draw(plot) {
  const own = painted(figures[plot.dataset.figure]);
  const shown = plot.data ? plot.data.map((trace) => trace.visible) : [];
  own.data.forEach((trace, i) => { if (shown[i] !== undefined) trace.visible = shown[i]; });
  Plotly.react(plot, own.data, own.layout, config);
}

const drawn = () => [...document.querySelectorAll(".plot")].filter((plot) => !plot.closest("details:not([open])"));
drawn().forEach(draw);
dark.addEventListener("change", () => drawn().forEach(draw));
document.querySelectorAll("details").forEach((fold) => {
  fold.addEventListener("toggle", () => { if (fold.open) fold.querySelectorAll(".plot").forEach(draw); });
});
