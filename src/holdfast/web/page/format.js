// Formats of numbers, sizes and times: short; the exact value belongs into a title.

const whole = new Intl.NumberFormat("en-GB");

/** 12.4 k; up to 9,999 in full. */
export function count(value) {
  if (value === null || value === undefined) return "–";
  const number = Number(value);
  if (Math.abs(number) < 10000) return Number.isInteger(number) ? whole.format(number) : number.toFixed(1);
  for (const [unit, size] of [
    ["G", 1e9],
    ["M", 1e6],
    ["k", 1e3],
  ]) {
    if (Math.abs(number) >= size * 0.9995) return `${digits(number / size)} ${unit}`;
  }
  return String(number);
}

/** The number with all its digits. */
export function exact(value) {
  if (value === null || value === undefined) return "";
  return typeof value === "bigint" || Number.isInteger(value) ? whole.format(value) : String(value);
}

function digits(number) {
  return Math.abs(number) >= 99.95 ? number.toFixed(0) : number.toFixed(1);
}

/** Messages a second. */
export function rate(value) {
  if (value === null || value === undefined) return "–";
  const number = Number(value);
  if (number === 0) return "0/s";
  if (number < 0.05) return "<0.1/s";
  return `${number < 10 ? number.toFixed(1) : count(Math.round(number))}/s`;
}

/** Bytes in binary units. */
export function bytes(value) {
  if (value === null || value === undefined) return "–";
  const number = Number(value);
  if (number < 1024) return `${number} B`;
  let rest = number;
  for (const unit of ["KiB", "MiB", "GiB", "TiB"]) {
    rest /= 1024;
    if (rest < 1023.95 || unit === "TiB") return `${digits(rest)} ${unit}`;
  }
  return "";
}

/** A duration: 250 ms, 12 s, 3 min 4 s, 2 h 10 min, 4 d 3 h. */
export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  const total = Math.abs(Number(seconds));
  const sign = Number(seconds) < 0 ? "−" : "";
  if (total === 0) return "0 s";
  if (total < 0.001) return `${sign}<1 ms`;
  if (total < 1) return `${sign}${Math.round(total * 1000)} ms`;
  if (total < 10) return `${sign}${total.toFixed(1).replace(/\.0$/, "")} s`;
  const parts = [
    ["d", 86400],
    ["h", 3600],
    ["min", 60],
    ["s", 1],
  ];
  const at = parts.findIndex(([, size]) => total >= size);
  const [unit, size] = parts[at];
  const big = Math.floor(total / size);
  if (at === parts.length - 1) return `${sign}${big} s`;
  const [small, part] = parts[at + 1];
  const rest = Math.floor((total - big * size) / part);
  return `${sign}${big} ${unit}${rest && big < 20 ? ` ${rest} ${small}` : ""}`;
}

/** A duration in its largest unit only, for narrow columns. */
export function rough(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  const total = Number(seconds);
  const [unit, size] =
    [
      ["d", 86400],
      ["h", 3600],
      ["min", 60],
    ].find(([, each]) => total >= each) ?? [];
  if (!unit) return duration(total < 1 ? total : Math.floor(total));
  const many = total / size;
  return `${many < 9.95 ? many.toFixed(1).replace(/\.0$/, "") : Math.round(many)} ${unit}`;
}

/** Milliseconds of a time in nanoseconds, which may be too large for a plain number. */
export function ms(nanoseconds) {
  return nanoseconds === null || nanoseconds === undefined ? null : Number(nanoseconds) / 1e6;
}

/** Seconds from a time until now; negative for the future. */
export function since(nanoseconds) {
  return nanoseconds === null || nanoseconds === undefined ? null : (Date.now() - ms(nanoseconds)) / 1000;
}

/** A time relative to now: 3 s ago, in 5 min. */
export function ago(nanoseconds) {
  const seconds = since(nanoseconds);
  if (seconds === null) return "–";
  if (Math.abs(seconds) < 1) return "now";
  return seconds > 0 ? `${duration(Math.floor(seconds))} ago` : `in ${duration(Math.ceil(-seconds))}`;
}

const pad = (number, length = 2) => String(number).padStart(length, "0");

/** Local time, to the second, or to the minute. */
export function clock(milliseconds, { day = true, seconds = true } = {}) {
  if (milliseconds === null || milliseconds === undefined) return "–";
  const at = new Date(milliseconds);
  const time = `${pad(at.getHours())}:${pad(at.getMinutes())}${seconds ? `:${pad(at.getSeconds())}` : ""}`;
  return day ? `${at.getFullYear()}-${pad(at.getMonth() + 1)}-${pad(at.getDate())} ${time}` : time;
}

/** A time in nanoseconds as local time. */
export function time(nanoseconds) {
  return clock(ms(nanoseconds));
}

/** The exact time in UTC, for titles. */
export function iso(nanoseconds) {
  const at = ms(nanoseconds);
  return at === null || !Number.isFinite(at) || Math.abs(at) > 8.64e15 ? "" : new Date(at).toISOString();
}

const NAME_MAX = 56;
/** A very long name without its middle; the whole name belongs into a title. */
export function short(name) {
  const characters = [...name];
  if (characters.length <= NAME_MAX) return name;
  return `${characters.slice(0, NAME_MAX - 20).join("")}…${characters.slice(-19).join("")}`;
}

/** The virtual host and the name of an object, from its name in the store. */
export function fromStore(stored) {
  const at = stored.lastIndexOf("\x1f");
  return at < 0 ? { vhost: "/", name: stored } : { vhost: stored.slice(0, at), name: stored.slice(at + 1) };
}

/** One or many. */
export function plural(number, one, many = `${one}s`) {
  return `${count(number)} ${Number(number) === 1 ? one : many}`;
}

/** Any value of JSON on one line. */
export function plain(value) {
  if (value === null || value === undefined) return "–";
  if (typeof value === "string") return value;
  if (isBytes(value)) return `base64:${value.base64}`;
  if (typeof value === "boolean") return value ? "yes" : "no";
  return typeof value === "object" ? json(value) : String(value);
}

/** Whether a value is bytes that are not text. */
export function isBytes(value) {
  return (
    value !== null && typeof value === "object" && typeof value.base64 === "string" && Object.keys(value).length === 1
  );
}

/** JSON with whole numbers of any size. */
export function json(value, indent) {
  const raw = JSON.rawJSON ?? ((text) => Number(text));
  return JSON.stringify(value, (_, each) => (typeof each === "bigint" ? raw(String(each)) : each), indent);
}

/** Parse JSON; whole numbers beyond 2^53 (the versions of tables are) stay exact. */
export function parse(text) {
  return JSON.parse(text, (_, value, context) =>
    typeof value === "number" && !Number.isSafeInteger(value) && /^-?\d+$/.test(context?.source ?? "")
      ? BigInt(context.source)
      : value,
  );
}
