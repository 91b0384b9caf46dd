// A queue's colour: by its place among all names, so that few queues never share one.
import { byName } from "./format";
import { derive, live } from "./store";

export const hues = 12;

const places = derive(() => live.members.queues, () => {
  const names = [...live.records.queues.keys()].sort(byName);
  return new Map(names.map((name, i) => [name, i % hues]));
});

export function hueOf(queue: string | undefined): number {
  if (!queue) return -1;
  const known = places().get(queue);
  if (known !== undefined) return known;
  let h = 0;
  for (const c of queue) h = (h * 31 + c.charCodeAt(0)) >>> 0;
  return h % hues;
}

// classes of CSS, as the policy allows no styles from scripts' text.
export const queueClass = (queue: string | undefined): string => (queue ? `q${hueOf(queue)}` : "q-none");
export const heatClass = (percent: number | undefined): string =>
  percent === undefined ? "h-none" : `h${Math.min(5, Math.floor(percent / 17))}`;
