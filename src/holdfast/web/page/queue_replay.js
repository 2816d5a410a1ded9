// Tab of a queue: replay from a time or a position, with a preview and a confirmation.

import { post } from "./api.js";
import { confirm, doing } from "./dialog.js";
import { h, refill } from "./dom.js";
import { count, exact, plural } from "./format.js";
import { fields, localValue } from "./form.js";
import { figures, panel } from "./parts.js";
import { messageColumns, showMessage } from "./queue_messages.js";
import { table } from "./table.js";

export function replayTab({ at, name, refresh }) {
  return (body) => {
    const form = fields([
      {
        name: "from",
        label: "From",
        kind: "choice",
        options: [
          ["time", "a time"],
          ["position", "a position"],
          ["start", "the start of the log"],
          ["end", "the end of the log (skips all waiting messages)"],
        ],
        value: "time",
      },
      { name: "time", label: "Time", kind: "datetime", value: localValue(Date.now() - 3600000) },
      { name: "position", label: "Position in the log", kind: "whole" },
    ]);
    const button = h("button.primary", { type: "submit" }, "Preview");
    const result = h("div.stack", { "aria-live": "polite" });
    const showFields = () => {
      const from = form.input("from").value;
      form.box("time").hidden = from !== "time";
      form.box("position").hidden = from !== "position";
      refill(result);
    };
    form.input("from").addEventListener("change", showFields);
    function target() {
      const values = form.read();
      if (!values) return null;
      if (values.from === "time") return values.time ? { time: values.time } : null;
      if (values.from === "position") return values.position === undefined ? null : { to: values.position };
      return { to: values.from };
    }
    async function preview(event) {
      event.preventDefault();
      const where = target();
      if (!where) return;
      const answer = await doing(button, () => post(at("/seek"), { ...where, dry_run: true }));
      if (answer) show(where, answer);
    }
    function show(where, answer) {
      const counts = figures();
      counts.update([
        ["Position", count(answer.position), exact(answer.position)],
        ["Will be delivered", count(answer.delivered), exact(answer.delivered)],
        ["Waiting now", count(answer.waiting_now), exact(answer.waiting_now)],
        ["Dropped from the queue", count(answer.dropped), exact(answer.dropped), answer.dropped ? "warn" : ""],
        [
          "Log",
          `${count(answer.log_start)} to ${count(answer.log_end)}`,
          `${exact(answer.log_start)} to ${exact(answer.log_end)}`,
        ],
      ]);
      const sample = table({
        label: "First messages of the replay",
        columns: messageColumns(),
        key: (row) => row.id,
        open: (row) => showMessage(row),
        empty: "There are no messages from this position on.",
      });
      sample.update(answer.sample);
      const go = h("button.primary", { type: "button", onclick: () => run(where, answer) }, "Replay from here…");
      refill(
        result,
        counts.element,
        h("section.panel.flush", h("header", h("h2", "First messages"), go), sample.element),
      );
    }
    async function run(where, answer) {
      const done = await confirm({
        title: `Replay ${name}`,
        text: `This moves ${name} to position ${exact(answer.position)}. ${plural(answer.delivered, "message")} will be delivered; ${plural(answer.dropped, "waiting message")} will be dropped from the queue. Leases are revoked, and attempts are reset.`,
        yes: "Replay",
        danger: true,
        work: () => post(at("/seek"), { ...where, dry_run: false }),
        said: (given) =>
          `${name} is at position ${exact(given.position)}; ${plural(given.delivered, "message")} to deliver.`,
      });
      if (!done) return;
      refill(
        result,
        h("p.notice.ok", { role: "status" }, `Done: ${plural(done.delivered, "message")} will be delivered.`),
      );
      refresh();
    }
    body.append(
      panel(
        "Target position",
        null,
        h(
          "form.stack",
          { onsubmit: preview, novalidate: true, "aria-label": "Replay" },
          form.element,
          h("div.actions", button),
        ),
      ),
      result,
    );
    showFields();
  };
}
