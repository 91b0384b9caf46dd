// Numbers and times as people read them.
const collator = new Intl.Collator("en", { numeric: true });
export const byName = (a: string, b: string): number => collator.compare(a, b);

export function amount(n: number): string {
  if (!Number.isFinite(n)) return "–";
  const r = Math.round(n * 100) / 100;
  return r >= 1000 ? r.toLocaleString("en") : String(r);
}

export function bytes(n: number): string {
  for (const unit of ["", "Ki", "Mi", "Gi", "Ti"]) {
    if (n < 1024 || unit === "Ti") return `${Math.round(n * 10) / 10}${unit}`;
    n /= 1024;
  }
  return "";
}

// resource's amount in its own unit.
export function inUnit(resource: string, n: number): string {
  return resource === "memory" ? bytes(n) : amount(n);
}

export function mib(n: number): string {
  return n >= 1024 ? `${Math.round((n / 1024) * 10) / 10} GiB` : `${n} MiB`;
}

export function percent(part: number, whole: number): string {
  return whole > 0 ? `${Math.round((part / whole) * 100)} %` : "–";
}

export function span(seconds: number): string {
  const s = Math.max(0, Math.round(seconds));
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min`;
  if (s < 86_400) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
  return `${Math.floor(s / 86_400)} d ${Math.floor((s % 86_400) / 3600)} h`;
}

export const now = (): number => Date.now() / 1000;
export const since = (at: number): string => span(now() - at);

export function clock(at: Date): string {
  const today = new Date().toDateString() === at.toDateString();
  const time = at.toLocaleTimeString("en-GB");
  return today ? time : `${at.toLocaleDateString("en-GB", { day: "numeric", month: "short" })} ${time}`;
}

export function starts(text: string | undefined): string {
  if (!text) return "not known";
  const in_ = new Date(text).getTime() / 1000 - now();
  return in_ <= 30 ? "any moment" : `in about ${span(in_)}`;
}

// cardsIn an amount of quota: whole cards, or percent of one.
export function cardsIn(resource: string, n: number): number {
  if (resource === "nvidia.com/gpu") return n;
  return resource.endsWith("gpu-core") ? n / 100 : 0;
}

export const plural = (n: number, what: string): string => `${amount(n)} ${what}${n === 1 ? "" : "s"}`;

// words that show a reason of the API: "WaitingForQuota" becomes "waiting for quota".
export const words = (reason: string): string => reason.replace(/([a-z])([A-Z])/g, "$1 $2").toLowerCase();
