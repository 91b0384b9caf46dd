// A chart over time, drawn by uPlot in the page's colours.
import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { amount } from "./format";

export interface ChartLine { name: string; class: string; values: number[]; fill?: boolean; step?: boolean }

// color reads a class's colour from the style sheet, which knows light and dark.
function color(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim() || "#888";
}

// ticks of the time axis: hours, days of the month, or days since the beginning of a simulation.
const ticks = (times: number[], simulated?: boolean): uPlot.Axis.Values => {
  if (simulated) return (_, at) => at.map((t) => `${Math.round((t / 86_400) * 10) / 10} d`);
  return (times.at(-1) ?? 0) - (times[0] ?? 0) > 2 * 86_400 ? "{D} {MMM}" : "{HH}:{mm}";
};

export function Chart(p: { title: string; times: number[]; lines: ChartLine[]; simulated?: boolean }) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot>();
  const data: uPlot.AlignedData = [p.times, ...p.lines.map((l) => l.values)];
  useEffect(() => {
    const at = box.current;
    if (!at) return;
    const make = () => {
      plot.current?.destroy();
      const axis = { stroke: color("dim"), grid: { stroke: color("rule"), width: 1 }, ticks: { show: false }, font: "11px system-ui" };
      plot.current = new uPlot({
        width: at.clientWidth, height: 170, legend: { show: false }, cursor: { y: false, points: { show: false } }, padding: [8, 8, 0, 0],
        scales: { y: { range: (_, __, max) => [0, Math.max(1, max * 1.1)] } },
        axes: [{ ...axis, values: ticks(p.times, p.simulated) }, { ...axis, size: 44, values: (_, ticks) => ticks.map((v) => amount(v)) }],
        series: [{}, ...p.lines.map((l) => ({
          label: l.name, stroke: color(l.class), width: l.fill ? 1.75 : 1.5, points: { show: false }, ...(l.fill ? { fill: color(l.class) + "26" } : {}),
          ...(l.step ? { dash: [4, 3], paths: uPlot.paths.stepped!({ align: 1 }) } : {}),
        }))],
      }, data, at);
    };
    make();
    const dark = matchMedia("(prefers-color-scheme: dark)");
    const resized = new ResizeObserver(() => plot.current?.setSize({ width: at.clientWidth, height: 170 }));
    resized.observe(at);
    dark.addEventListener("change", make);
    return () => {
      dark.removeEventListener("change", make);
      resized.disconnect();
      plot.current?.destroy();
      plot.current = undefined;
    };
  }, [p.lines.length, (p.times.at(-1) ?? 0) - (p.times[0] ?? 0) > 2 * 86_400]);
  useEffect(() => plot.current?.setData(data), [p.times.length, p.times.at(-1)]);
  const last = p.lines.map((l) => `${l.name} ${amount(l.values.at(-1) ?? 0)}`).join(", ");
  return (
    <figure class="chart">
      <figcaption><strong>{p.title}</strong>{p.lines.map((l) => <span key={l.name}><i class={`key ${l.class}`} />{l.name} <b>{amount(l.values.at(-1) ?? 0)}</b></span>)}</figcaption>
      <div ref={box} role="img" aria-label={`${p.title} over ${p.times.length} samples; now ${last}`} />
    </figure>
  );
}
