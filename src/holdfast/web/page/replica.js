// The replica on the overview: state, lag, last moment, errors and requests.

import { chart } from "./chart.js";
import { h } from "./dom.js";
import { ago, bytes, count, duration, exact, iso, plural } from "./format.js";
import { badge, facts, panel } from "./parts.js";

const ROLES = {
  owner: ["shipping", "ok"],
  fenced: ["fenced", "bad"],
  standby: ["standby", ""],
  none: ["not claimed yet", "warn"],
};
const ALARMS = { "replica-fenced": "bad", "replica-failing": "bad", "replica-lag": "warn", "replica-lost": "warn" };
const WORDS = { "replica-failing": "failing", "replica-lag": "behind", "replica-lost": "records lost" };

/** The state in a word, and its kind: ok, warn or bad. */
export function replicaState(replica, alarms) {
  const worst = alarms.find((one) => WORDS[one.alarm]);
  const [word, kind] = ROLES[replica.role] ?? [replica.role, ""];
  if (kind === "bad" || !(worst || replica.error || replica.reason)) return [word, kind];
  return worst ? [WORDS[worst.alarm], ALARMS[worst.alarm]] : ["retrying", "warn"];
}

/** The panel, hidden without a replica: update({replica, alarms}), and its chart. */
export function replicaPanel() {
  const state = h("span");
  const list = facts();
  const lag = chart({ label: "Replica lag", series: [{ id: "replica_lag", label: "lag" }], format: duration, height: 150 });
  const element = h("div.grid2", { hidden: true }, panel("Replica", state, list.element), lag.element);
  return {
    element,
    chart: lag,
    update({ replica, alarms }) {
      element.hidden = !replica;
      if (!replica) return;
      state.replaceChildren(badge(...replicaState(replica, alarms)));
      list.update([
        ["Role", replica.epoch ? `${replica.role}, epoch ${replica.epoch}` : replica.role],
        ["Lag", behind(replica)],
        ["Last moment", moment(replica)],
        ...errors(replica),
        ...(replica.lost_records ? [["Lost", h("b.bad", plural(replica.lost_records, "record"))]] : []),
        ...(replica.repaired ? [["Uploaded again", plural(replica.repaired, "object")]] : []),
        ["Requests", requests(replica)],
        ["Sent", h("span", { title: `${exact(replica.sent_bytes)} B` }, bytes(replica.sent_bytes))],
        ...(replica.url ? [["Bucket", h("code", replica.url)]] : []),
      ]);
    },
  };
}

function behind({ lag_seconds: seconds, lag_records: records, lag_bytes: size }) {
  if (!records && seconds < 0.001) return "none";
  return `${duration(seconds)}, ${plural(records, "record")}, ${bytes(size)}`;
}

function moment({ moment: name, shipped_at: at }) {
  if (at === null) return "none since the start";
  return h("span", { title: iso(at) }, `${name ?? "unchanged"}, ${ago(at)}`);
}

function errors({ error, reason, failing_since: since, last_error: last, last_error_at: when }) {
  if (error ?? reason) {
    const until = since === null ? "" : ` for ${duration(Math.floor((Date.now() - Number(since) / 1e6) / 1000))}`;
    return [["Error", h("span.bad", h("strong", `Failing${until}. `), error ?? reason)]];
  }
  if (when === null) return [["Error", "none"]];
  return [["Error", h("span", { title: last }, `none; the last one ${ago(when)}`)]];
}

function requests({ requests: made, failures }) {
  const failed = Object.values(failures).reduce((sum, one) => sum + Number(one), 0);
  const text = Object.entries(made)
    .map(([kind, number]) => `${count(number)} ${kind}`)
    .join(", ");
  return failed ? h("span", `${text}; `, h("span.bad", `${count(failed)} failed`)) : text;
}
