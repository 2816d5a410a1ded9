// Spark pipelines, a dialog to start them, and their last runs.

import { enc, get, post } from "./api.js";
import { ask, dialog, doing } from "./dialog.js";
import { h, refill, renew } from "./dom.js";
import { ago, count, duration, iso, ms, plain, time } from "./format.js";
import { fields } from "./form.js";
import { cells, head, stateBadge } from "./parts.js";
import { pairsView } from "./payload.js";
import { rights } from "./rights.js";
import { table } from "./table.js";

/** The field of the form for one option; unchanged options are not sent. */
function fieldOf(option) {
  const { name, help: hint, required, words = [], default: given } = option;
  const label = name.replaceAll("_", " ");
  if (words.length) return { name, label, hint, kind: "choice", options: words, value: given ?? words[0] };
  if (option.kind === "true|false") return { name, label, hint, kind: "check", value: /^true$/i.test(String(given)) };
  const kind = option.many ? "list" : option.kind === "N" ? "number" : "text";
  return {
    name,
    label,
    hint,
    required,
    kind,
    placeholder: given === null || given === undefined ? undefined : plain(given),
  };
}

/** Free text, if the server could not load the list of options. */
const ANY = {
  name: "any",
  label: "Options",
  kind: "pairs",
  rows: 5,
  span: true,
  placeholder: "name: value",
  hint: "One option per line, as name: value; `holdfast pipeline list` shows them.",
};

/** A pipeline with its options; the server needs some seconds after its start to load them. */
async function described(name) {
  for (let tries = 0; ; tries += 1) {
    const answer = await get("/pipelines");
    const found = answer.pipelines.find((one) => one.name === name);
    if (found.options.length || !answer.options_pending || tries > 60) return found;
    await new Promise((resolve) => setTimeout(resolve, 500));
  }
}

function showRun(run) {
  const offsets = run.offsets ?? [];
  const about = [
    ["State", run.state],
    ["Started", time(run.started_at)],
    ["Duration", run.ended_at ? duration((ms(run.ended_at) - ms(run.started_at)) / 1000) : "still running"],
  ];
  const rows = (run.rows ?? []).slice(0, 200);
  const names = Object.keys(rows[0] ?? {});
  dialog({
    title: `${run.pipeline}: ${run.title ?? run.state}`,
    wide: true,
    body: h(
      "div.stack",
      run.error && h("p.notice.bad", run.error),
      h(
        "dl.facts",
        about.map(([label, value]) => [h("dt", label), h("dd", value)]),
      ),
      h("section", h("h3", "Options"), pairsView(run.options)),
      h("section", h("h3", "Results"), pairsView(run.facts)),
      rows.length
        ? h(
            "div.scroll",
            h(
              "table",
              h(
                "thead",
                h(
                  "tr",
                  names.map((name) => h("th", { scope: "col" }, name)),
                ),
              ),
              h(
                "tbody",
                rows.map((row) =>
                  h(
                    "tr",
                    names.map((name) => h("td", plain(row[name]))),
                  ),
                ),
              ),
            ),
          )
        : null,
      h(
        "section",
        h("h3", "Offsets"),
        offsets.length
          ? h(
              "div.scroll",
              h(
                "table",
                h(
                  "thead",
                  h(
                    "tr",
                    ["Log", "Batch", "Offset", "End", "Lag"].map((text) => h("th", { scope: "col" }, text)),
                  ),
                ),
                h(
                  "tbody",
                  offsets.map((one) =>
                    h(
                      "tr",
                      h("td", plain(one.log).replace("\x1f", " / ")),
                      h("td", plain(one.partition ?? one.batch)),
                      h("td.num", plain(one.offset)),
                      h("td.num", plain(one.end)),
                      h("td.num", plain(one.lag)),
                    ),
                  ),
                ),
              ),
            )
          : h("p.quiet", "None."),
      ),
    ),
  });
}

export function page(view) {
  view.title("Pipelines");
  const begun = [];
  const may = rights();
  const shown = h("div.grid3");
  const runs = table({
    label: "Runs",
    key: (row) => row.id,
    open: (row) => look(row),
    empty: "No runs yet.",
    columns: [
      {
        id: "pipeline",
        label: "Pipeline",
        main: true,
        cell: (row) => ({
          mark: `${row.id}`,
          node: h("button.link", { type: "button", onclick: () => look(row) }, row.pipeline),
        }),
      },
      {
        id: "state",
        label: "State",
        cell: (row) => ({
          mark: `${row.state}${row.ok}`,
          node: row.state === "done" && row.ok === false ? stateBadge("bad") : stateBadge(row.state),
        }),
      },
      { id: "title", label: "Result", wide: true, cell: (row) => row.error || row.title || "–" },
      {
        id: "lag",
        label: "Lag",
        num: true,
        cell: (row) =>
          row.offsets?.some((one) => one.lag !== null)
            ? cells.count(row.offsets.reduce((sum, one) => sum + Number(one.lag ?? 0), 0))
            : "–",
      },
      {
        id: "took",
        label: "Duration",
        num: true,
        cell: (row) => (row.ended_at ? duration((ms(row.ended_at) - ms(row.started_at)) / 1000) : "–"),
      },
      {
        id: "started",
        label: "Started",
        num: true,
        cell: (row) => ({ text: ago(row.started_at), title: iso(row.started_at) }),
      },
    ],
  });
  const look = async (row) => showRun(await get(`/pipelines/runs/${enc(row.id)}`).catch(() => row));
  async function start(name, button) {
    const pipeline = await doing(button, () => described(name));
    if (!pipeline) return;
    const form = fields(pipeline.options.length ? pipeline.options.map(fieldOf) : [ANY]);
    const run = await ask({
      title: `Run ${pipeline.name}`,
      wide: true,
      text: pipeline.description,
      fields: form,
      yes: "Start run",
      work: ({ any, ...values }) => post(`/pipelines/${enc(pipeline.name)}/runs`, { options: { ...any, ...values } }),
      said: (started) => `${started.pipeline} started.`,
    });
    // The process records the run after some seconds: until then it is known here only.
    if (run) begun.push(run);
    polling.now();
  }
  view.root.append(
    head("Spark pipelines"),
    may.element,
    shown,
    h("section.panel.flush", h("header", h("h2", "Last runs")), runs.element),
  );
  const polling = view.poll(async (signal) => {
    const answer = await get("/pipelines", null, signal);
    renew(
      shown,
      answer.pipelines.map((one) => one.name),
      () =>
        answer.pipelines.map((one) => {
          const button = may.guard(
            h("button", { type: "button", onclick: () => start(one.name, button) }, "Run…"),
            "operate",
          );
          button.setAttribute("aria-label", `Run ${one.name}`);
          return h(
            "section.panel",
            { "aria-label": one.name },
            h("header", h("h2", one.name), button),
            h("p.quiet", one.description),
          );
        }),
    );
    if (!answer.pipelines.length)
      refill(shown, h("p.empty", answer.reason ?? "Spark is not installed here: pip install 'holdfast[spark]'"));
    await may.refresh(signal);
    const noted = new Set(answer.runs.map((one) => one.id));
    runs.update([...begun.filter((one) => !noted.has(one.id)), ...answer.runs]);
    const busy = answer.runs.filter((one) => one.state === "running").length;
    document.title = `${busy ? `(${count(busy)}) ` : ""}Pipelines · Holdfast`;
  });
}
