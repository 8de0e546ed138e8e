// Numbers in words.

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

export const count = (value) => (value < 100_000 ? whole.format(value) : short.format(value));
export const rate = (value) => (value < 10 && value > 0 ? value.toFixed(1) : count(value));
export const percent = (value) => `${(value * 100).toFixed(value > 0 && value < 0.1 ? 1 : 0)} %`;

const PREFIXES = ["", "Ki", "Mi", "Gi"];

export function bytes(value) {
  const step = Math.min(PREFIXES.length - 1, Math.floor(Math.log2(Math.max(1, value)) / 10));
  return `${count(value / 1024 ** step)} ${PREFIXES[step]}B`;
}

export function duration(seconds) {
  const parts = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
  const first = Math.max(0, parts.findIndex(([size]) => seconds >= size));
  const [size, unit] = parts[seconds < 1 ? 3 : first];
  const text = `${Math.floor(seconds / size)} ${unit}`;
  const next = parts[first + 1];
  const rest = next && first < 2 ? Math.floor((seconds % size) / next[0]) : 0;
  return rest ? `${text} ${rest} ${next[1]}` : text;
}

// The value below which a share of what was counted lies: since an earlier count, or of all.
export function quantile(histogram, earlier, share) {
  const total = histogram.count - (earlier?.count ?? 0);
  const from = total > 0 ? earlier?.buckets ?? {} : {};
  const all = total > 0 ? total : histogram.count;
  if (!all) return null;
  const edges = Object.keys(histogram.buckets).sort((a, b) => edge(a) - edge(b));
  let [low, below] = [0, 0];
  for (const name of edges) {
    const upTo = histogram.buckets[name] - (from[name] ?? 0);
    if (upTo >= share * all) {
      const high = edge(name);
      return high === Infinity ? low : low + ((high - low) * (share * all - below)) / (upTo - below);
    }
    [low, below] = [edge(name), upTo];
  }
  return low;
}

// JSON's keys have an order of their own where they look like numbers.
const edge = (name) => (name === "+Inf" ? Infinity : Number(name));
