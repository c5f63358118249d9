"use strict";
// Renews the page from status.json. All that is shown is set as text: what a node said is never taken for HTML.
const EVERY = 3000; // milliseconds
const byId = (id) => document.getElementById(id);

function made(name, text, kind) {
  const element = document.createElement(name);
  if (text !== undefined) element.textContent = text;
  if (kind) element.className = kind;
  return element;
}

function number(value) {
  if (value === null || value === undefined) return "–";
  return Number.isInteger(value) ? String(value) : String(Number(value.toPrecision(4)));
}

function time(text) {
  if (!text) return "–";
  const at = new Date(text);
  const today = new Date().toDateString() === at.toDateString();
  return today ? at.toLocaleTimeString() : at.toLocaleString();
}

function section(title, ...inside) {
  const element = made("section");
  element.append(made("h2", title), ...inside);
  return element;
}

function numbers(pairs) {
  const list = made("dl", undefined, "numbers");
  for (const [name, value] of pairs) {
    const pair = made("div");
    pair.append(made("dt", name), made("dd", value));
    list.append(pair);
  }
  return list;
}

function bar(label, value, most) {
  const element = made("progress");
  element.max = most;
  element.value = Math.min(value, most);
  element.setAttribute("aria-label", label);
  return element;
}

function table(titles, rows) {
  const whole = made("table"), head = made("thead"), body = made("tbody"), first = made("tr");
  for (const title of titles) {
    const cell = made("th", title);
    cell.scope = "col";
    first.append(cell);
  }
  head.append(first);
  for (const row of rows) {
    const line = made("tr");
    row.forEach((value, place) => {
      const cell = made("td"), inner = typeof value === "object" ? value : made("span", value);
      cell.dataset.title = titles[place];
      cell.append(inner);
      line.append(cell);
    });
    body.append(line);
  }
  whole.append(head, body);
  return whole;
}

function server(now) {
  const run = now.run, parts = [];
  if (run) {
    const about = [["State", run.state], ["Round", `${run.round} of ${run.rounds}`], ["Last news", time(run.updated)]];
    parts.push(section("The run", numbers(about), bar("rounds done", run.round, Math.max(run.rounds, 1)),
      made("p", run.folder, "faint"), ...(run.why ? [made("p", run.why, "bad")] : [])));
  }
  const rows = now.nodes.map((node) => [
    node.name,
    made("span", node.there ? "connected" : "not there", node.there ? "good" : "bad"),
    number(node.round),
    node.epsilon === null ? "–" : `${number(node.epsilon)} of ${number(node.limit)}, at ${time(node.reported)}`,
    made("span", node.said || "–", node.said && node.said !== "answered" ? "bad" : ""),
  ]);
  const titles = ["Node", "Is it there?", "Round", "ε spent, as it reports", "Its last words"];
  parts.push(section("The nodes", rows.length ? table(titles, rows) : made("p", "Nobody may join yet.", "faint")));
  byId("state").textContent = now.up ? `The server is up. Nodes come in at ${now.address}.` : "The server is not running.";
  byId("state").className = now.up ? "good" : "bad";
  return parts;
}

function node(now) {
  const refused = now.refused.reduce((sum, each) => sum + each.times, 0);
  const budget = [["ε spent", number(now.epsilon)], ["ε left", number(now.left)], ["for life", number(now.limit)],
    ["at δ", number(now.delta)]];
  const asked = [["Asked", number(now.asked)], ["Answered", number(now.answered)], ["Refused", number(refused)],
    ["Charged", number(now.charged)]];
  const of = (value, most) => most === null ? number(value) : `${number(value)} of ${number(most)}`;
  const paced = [["ε in 24 hours", of(now.epsilon_today, now.epsilon_per_day)],
    ["Questions in an hour", of(now.questions_last_hour, now.questions_per_hour)]];
  const parts = [
    section("The budget", numbers(budget), bar("epsilon spent", now.epsilon, now.limit)),
    section("The pace", numbers(paced)),
    section("Questions", numbers(asked), made("p", now.since ? `since ${time(now.since)}` : "none so far", "faint")),
  ];
  if (now.refused.length)
    parts.push(section("What was refused", table(["Code", "Times", "Last", "Why"],
      now.refused.map((each) => [each.code, number(each.times), time(each.last), each.why]))));
  if (now.experiments.length)
    parts.push(section("Experiments", table(["Experiment", "Answers", "First", "Last"],
      now.experiments.map((each) => [each.experiment.slice(0, 8), number(each.answers), time(each.first), time(each.last)]))));
  byId("state").textContent = now.left > 0.01 * now.limit ? "The budget is not spent." : "The budget is spent.";
  byId("state").className = now.left > 0.01 * now.limit ? "good" : "bad";
  return parts;
}

async function renew() {
  const renewed = byId("renewed");
  try {
    const now = await (await fetch("status.json", { cache: "no-store" })).json();
    if (now.error) throw new Error(now.error);
    byId("name").textContent = now.name;
    document.title = `${now.name}: sottovoce`;
    byId("main").replaceChildren(...(now.kind === "server" ? server(now) : node(now)));
    renewed.textContent = `Renewed ${new Date().toLocaleTimeString()}, every ${EVERY / 1000} seconds. Nothing of any row is here.`;
    renewed.className = "";
  } catch (error) {
    renewed.textContent = `Not renewed: ${error.message}`;
    renewed.className = "bad";
  }
  setTimeout(renew, EVERY);
}
renew();
