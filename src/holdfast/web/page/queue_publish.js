// Tab of a queue: a form to publish messages.

import { post } from "./api.js";
import { doing } from "./dialog.js";
import { h } from "./dom.js";
import { json, plural } from "./format.js";
import { fields } from "./form.js";

const FORMS = [
  ["text", "Text"],
  ["json", "JSON (validated)"],
  ["base64", "Base64"],
];

export function publishTab({ at, name, refresh }) {
  return (body) => {
    const form = fields([
      { name: "payload", label: "Payload", kind: "area", rows: 8, span: true },
      { name: "form", label: "Payload type", kind: "choice", options: FORMS, value: "text" },
      { name: "copies", label: "Copies", kind: "whole", value: "1" },
      { name: "key", label: "Key" },
      { name: "priority", label: "Priority", kind: "whole", hint: "Higher priorities are delivered first." },
      { name: "delay", label: "Delay, seconds", kind: "number" },
      { name: "ttl", label: "Time to live, seconds", kind: "number" },
      { name: "dedup", label: "Deduplication id", hint: "A second message with the same id is not stored." },
      {
        name: "headers",
        label: "Headers",
        kind: "pairs",
        rows: 3,
        span: true,
        placeholder: "name: value",
        hint: "One header per line, as name: value; or a JSON object.",
      },
    ]);
    const button = h("button.primary", { type: "submit" }, "Publish");
    async function submit(event) {
      event.preventDefault();
      const values = form.read();
      if (!values) return;
      const { form: kind, copies = 1, payload = "", ...rest } = values;
      // Header values of a log are text.
      if (rest.headers)
        rest.headers = Object.fromEntries(
          Object.entries(rest.headers).map(([name, value]) => [
            name,
            typeof value === "object" ? json(value) : String(value),
          ]),
        );
      await doing(
        button,
        () => {
          if (kind === "json") JSON.parse(payload);
          const message =
            kind === "base64" ? { payload_base64: payload.replace(/\s/g, ""), ...rest } : { payload, ...rest };
          return post(at("/messages"), {
            messages: Array.from({ length: Math.max(1, Math.min(1000, copies)) }, () => message),
          });
        },
        ({ ids, duplicates }) =>
          `${plural(ids.length, "message")} published to ${name}${duplicates ? `, ${duplicates} of them duplicates` : ""}.`,
      );
      refresh();
    }
    body.append(
      h(
        "form.panel.stack",
        { onsubmit: submit, novalidate: true, "aria-label": "Publish a message" },
        form.element,
        h("div.actions", button),
      ),
    );
  };
}
