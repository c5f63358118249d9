"use strict";
// Draws the charts of a report from the JSON in the page, in the colours of the reader's theme.
(function () {
  const INK = {
    light: { text: "#1c2430", quiet: "#5a6472", grid: "#e3e7ec", level: "#5a6472" },
    dark: { text: "#e8ecf1", quiet: "#a9b3c0", grid: "#333c48", level: "#a9b3c0" },
  };
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const narrow = window.matchMedia("(max-width: 40rem)");
  const charts = JSON.parse(document.getElementById("charts").textContent);

  // A name is text: Plotly would read <b> and links in it.
  const text = (value) => value.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
  const faint = (colour) => colour + "2e";
  const colourOf = (line, theme) => (theme === "dark" ? line.style.on_black : line.style.on_white);

  function traces(chart, theme) {
    const drawn = [];
    for (const line of chart.lines) {
      const colour = colourOf(line, theme);
      if (line.low) {
        drawn.push({
          x: line.x.concat(line.x.slice().reverse()),
          y: line.high.concat(line.low.slice().reverse()),
          fill: "toself", fillcolor: faint(colour), line: { width: 0 }, mode: "lines",
          hoverinfo: "skip", showlegend: false, legendgroup: line.name, name: text(line.name),
        });
      }
    }
    const form = chart.percent ? ".2%" : ".4~g";
    for (const line of chart.lines) {
      const colour = colourOf(line, theme);
      drawn.push({
        x: line.x, y: line.y, name: text(line.name), legendgroup: line.name,
        mode: "lines+markers", line: { color: colour, width: 2.5, dash: line.style.dash },
        marker: { color: colour, symbol: line.style.marker, size: 8, maxdisplayed: 8 },
        customdata: line.low ? line.low.map((low, i) => [low, line.high[i]]) : undefined,
        hovertemplate: line.low
          ? `%{y:${form}} (%{customdata[0]:${form}} to %{customdata[1]:${form}})` : `%{y:${form}}`,
      });
    }
    return drawn;
  }

  function layout(chart, theme) {
    const ink = INK[theme];
    const axis = { gridcolor: ink.grid, zeroline: false, linecolor: ink.grid, automargin: true };
    const levels = chart.levels;
    return {
      font: { family: "system-ui, sans-serif", size: 14, color: ink.text },
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      margin: { l: 12, r: 14, t: 8, b: 8 }, height: narrow.matches ? 330 : 360,
      hovermode: "x unified", dragmode: false, hoverlabel: { bgcolor: theme === "dark" ? "#1b222c" : "#ffffff" },
      xaxis: { ...axis, title: { text: text(chart.x), standoff: 8 }, rangemode: "tozero" },
      yaxis: {
        ...axis, title: { text: text(chart.y), standoff: 8 }, tickformat: chart.percent ? ".1~%" : undefined,
        rangemode: chart.zero || (levels.length && !chart.percent) ? "tozero" : "normal",
      },
      legend: { orientation: "h", yanchor: "bottom", y: 1.02, x: 0, xanchor: "left" },
      showlegend: chart.lines.length > 1,
      shapes: levels.map((level) => ({
        type: "line", xref: "paper", x0: 0, x1: 1, y0: level.y, y1: level.y,
        line: { color: ink.level, width: 1.5, dash: "dot" },
      })),
      annotations: levels.map((level) => ({
        xref: "paper", x: 1, xanchor: "right", y: level.y, yanchor: "bottom", showarrow: false,
        text: text(level.name), font: { color: ink.quiet, size: 13 },
      })),
    };
  }

  function draw() {
    const theme = dark.matches ? "dark" : "light";
    for (const chart of charts) {
      Plotly.react(`chart-${chart.id}`, traces(chart, theme), layout(chart, theme), {
        responsive: true, displaylogo: false, displayModeBar: false,
      });
    }
  }

  draw();
  dark.addEventListener("change", draw);
  narrow.addEventListener("change", draw);
  document.documentElement.dataset.drawn = String(charts.length);
})();
