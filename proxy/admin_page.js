// The page for people: asks /stats once a second and draws it. Texts go in as text, never as markup.
"use strict";
(() => {
  const EVERY_MS = 1000, PATIENCE_MS = 5000, KEEP = 120;
  const PHASES = ["queue", "request", "upstream", "response"];
  const PATHS = ["fast", "cut_through", "relay", "framed", "fallback"];
  const STATES = { ready: "good", idle: "", connecting: "busy", draining: "busy", starting: "busy", backoff: "bad", ejected: "bad" };
  const SVG = "http://www.w3.org/2000/svg";
  const by = (id) => document.getElementById(id);
  let before = null; // the last answer and when it came: { stats, at_ms }
  let chosen = decodeURIComponent(location.hash.slice(1)) || null; // name of the route shown in detail
  const kept = new Map(); // name of a series -> its last KEEP values

  // --- making elements ---

  function make(tag, className, text) {
    const element = document.createElement(tag);
    if (className) element.className = className;
    if (text !== undefined) element.textContent = text;
    return element;
  }

  function put(element, text) {
    if (element.textContent !== text) element.textContent = text;
  }

  function badge(word) {
    return make("span", `badge ${STATES[word] || ""}`, word);
  }

  // --- figures as people read them ---

  function short(value) {
    if (!isFinite(value)) return "–";
    const size = Math.abs(value);
    if (size >= 1e9) return (value / 1e9).toFixed(2) + "G";
    if (size >= 1e6) return (value / 1e6).toFixed(2) + "M";
    if (size >= 1e4) return (value / 1e3).toFixed(1) + "k";
    return size >= 100 || Number.isInteger(value) ? value.toFixed(0) : value.toFixed(1);
  }

  function bytes(value) {
    for (const unit of ["B", "KiB", "MiB", "GiB"]) {
      if (value < 1024 || unit === "GiB") return (unit === "B" ? value.toFixed(0) : value.toFixed(1)) + " " + unit;
      value /= 1024;
    }
  }

  function micros(value) {
    if (value >= 1e6) return (value / 1e6).toFixed(2) + " s";
    if (value >= 1e4) return (value / 1e3).toFixed(1) + " ms";
    return value >= 100 ? value.toFixed(0) : value.toFixed(1);
  }

  // One figure of a histogram; what nothing was recorded in has none.
  function time(times, key) {
    return times.count ? micros(times[key]) : "–";
  }

  function duration(seconds) {
    const parts = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]].filter(([length]) => seconds >= length);
    if (parts.length === 0) return "0 s";
    const [length, unit] = parts[0], count = Math.floor(seconds / length);
    const rest = parts[1] ? Math.floor((seconds % length) / parts[1][0]) : 0;
    return `${count} ${unit}` + (rest ? ` ${rest} ${parts[1][1]}` : "");
  }

  // --- what happened since the answer before ---

  function older(path) {
    let value = before && before.stats;
    for (const name of path) value = value && value[name];
    return value;
  }

  function rate(now, then, seconds) {
    return seconds && then !== undefined && now >= then ? (now - then) / seconds : NaN;
  }

  // The mean of what was recorded in between, from two cumulative ones; NaN when nothing was, or after a reset.
  function meanBetween(now, then) {
    if (!then || now.count <= then.count) return NaN;
    return Math.max(0, (now.mean * now.count - then.mean * then.count) / (now.count - then.count));
  }

  function remember(series, value) {
    const values = kept.get(series) || [];
    values.push(value);
    if (values.length > KEEP) values.shift();
    kept.set(series, values);
    return values;
  }

  // --- plots ---

  function line(values, top, className) {
    const path = document.createElementNS(SVG, "path");
    let d = "", pen = "M";
    values.forEach((value, i) => {
      if (!isFinite(value)) { pen = "M"; return; }
      d += `${pen}${(KEEP - values.length + i).toFixed(0)} ${(30 - 28 * value / top).toFixed(2)}`;
      pen = "L";
    });
    path.setAttribute("d", d || "M0 0");
    path.setAttribute("class", `line ${className || ""}`);
    return path;
  }

  function plot(...series) {
    const svg = document.createElementNS(SVG, "svg");
    const top = Math.max(1e-9, ...series.flat().filter(isFinite));
    svg.setAttribute("viewBox", `0 0 ${KEEP} 32`);
    svg.setAttribute("preserveAspectRatio", "none");
    svg.setAttribute("role", "img");
    svg.setAttribute("aria-label", `last ${KEEP} seconds, up to ${short(top)}`);
    svg.append(...series.map((values, i) => line(values, top, i ? "second" : "")));
    return svg;
  }

  function tile(label, figure, ...series) {
    const box = make("div", "tile");
    box.append(make("span", "", label), make("b", "", figure), plot(...series));
    return box;
  }

  // --- tables: rows are made once and then only filled ---

  class Table {
    constructor(id, columns, choose) {
      this.rows = new Map();
      this.columns = columns;
      this.choose = choose;
      const head = make("tr"), body = make("tbody"), top = make("thead");
      for (const column of columns) head.append(make("th", column.className, column.title));
      top.append(head);
      by(id).append(top, body);
      this.body = body;
    }

    row(name) {
      const row = make("tr", this.choose ? "choice" : "");
      row.cells_ = this.columns.map((column) => row.appendChild(make("td", column.className)));
      if (this.choose) {
        row.tabIndex = 0;
        row.addEventListener("click", () => this.choose(name));
        row.addEventListener("keydown", (event) => { if (event.key === "Enter") this.choose(name); });
      }
      this.rows.set(name, row);
      this.body.append(row);
      return row;
    }

    fill(items) {
      for (const [name, row] of this.rows) {
        if (items.has(name)) continue;
        row.remove();
        this.rows.delete(name);
      }
      for (const [name, item] of items) {
        const row = this.rows.get(name) || this.row(name);
        row.classList.toggle("chosen", Boolean(this.choose) && name === chosen);
        this.columns.forEach((column, i) => {
          const value = column.of(item, name);
          if (value instanceof Node) row.cells_[i].replaceChildren(value);
          else put(row.cells_[i], value);
        });
      }
    }
  }

  const failed = (route) => Object.entries(route.status).reduce((sum, [name, n]) => sum + (name === "OK" ? 0 : n), 0);
  const counts = (object) => Object.entries(object).filter(([, n]) => n).map(([name, n]) => `${name} ${short(n)}`).join(", ");

  function choose(name) {
    chosen = chosen === name ? null : name;
    window.history.replaceState(null, "", chosen ? `#${encodeURIComponent(chosen)}` : location.pathname);
    if (before) draw(before.stats, 0);
  }

  const routes = new Table("routes", [
    { title: "route", of: (route, name) => name },
    { title: "", of: (route) => plot(route.rates) },
    { title: "calls/s", of: (route) => short(route.rates[route.rates.length - 1]) },
    { title: "calls", of: (route) => short(route.calls) },
    { title: "active", of: (route) => short(route.active) },
    { title: "not OK", className: "errors", of: (route) => (failed(route) ? short(failed(route)) : "") },
    { title: "path", className: "text", of: (route) => counts(route.path) },
    { title: "overhead p50", of: (route) => time(route.overhead_us, "p50") },
    { title: "p99", of: (route) => time(route.overhead_us, "p99") },
    { title: "upstream p50", of: (route) => time(route.upstream_us, "p50") },
    { title: "p99", of: (route) => time(route.upstream_us, "p99") },
    { title: "total p99", of: (route) => time(route.total_us, "p99") },
    { title: "in", of: (route) => (isFinite(route.in_rate) ? bytes(route.in_rate) : "–") },
    { title: "out", of: (route) => (isFinite(route.out_rate) ? bytes(route.out_rate) : "–") },
  ], choose);

  const upstreams = new Table("upstreams", [
    { title: "endpoint", of: (endpoint) => endpoint.name },
    { title: "state", className: "text", of: (endpoint) => badge(endpoint.state) },
    { title: "wire", className: "text", of: (endpoint) => endpoint.wire },
    { title: "connections", of: (endpoint) => short(endpoint.connections) },
    { title: "streams", of: (endpoint) => short(endpoint.streams) },
    { title: "opened", of: (endpoint) => short(endpoint.opened) },
    { title: "failures", className: "errors", of: (endpoint) => (endpoint.failures ? short(endpoint.failures) : "") },
    { title: "calls", of: (endpoint) => short(endpoint.upstream_us.count) },
    { title: "upstream p50", of: (endpoint) => time(endpoint.upstream_us, "p50") },
    { title: "p99", of: (endpoint) => time(endpoint.upstream_us, "p99") },
    { title: "reads", of: (endpoint) => short(endpoint.reads) },
    { title: "writes", of: (endpoint) => short(endpoint.writes) },
  ]);

  const listeners = new Table("listeners", [
    { title: "listener", of: (listener, name) => name },
    { title: "connections", of: (listener) => short(listener.connections) },
    { title: "streams", of: (listener) => short(listener.streams) },
    { title: "accepted", of: (listener) => short(listener.accepted) },
    { title: "reads", of: (listener) => short(listener.reads) },
    { title: "writes", of: (listener) => short(listener.writes) },
  ]);

  // --- one route in detail: where the microseconds went ---

  function bar(route) {
    const total = PHASES.reduce((sum, phase) => sum + route[`${phase}_us`].mean, 0);
    const box = make("div", "bar");
    for (const phase of PHASES) {
      const part = make("i", phase);
      part.style.width = total ? `${100 * route[`${phase}_us`].mean / total}%` : "0";
      box.append(part);
    }
    return box;
  }

  function timesTable(rows) {
    const table = make("table"), head = make("tr");
    for (const title of ["µs", "calls", "mean", "p50", "p90", "p99", "p99.9", "max"]) head.append(make("th", "", title));
    table.append(head);
    for (const [name, times, className] of rows) {
      const row = make("tr"), first = make("td");
      first.append(make("span", className ? `key ${className}` : "", name));
      row.append(first, make("td", "", short(times.count)));
      for (const key of ["mean", "p50", "p90", "p99", "p999", "max"]) row.append(make("td", "", time(times, key)));
      table.append(row);
    }
    return table;
  }

  function drawDetail(route) {
    const box = by("detail");
    box.hidden = !route;
    if (!route) return;
    const columns = make("div", "columns"), words = make("p", "note");
    const phases = PHASES.map((phase) => [phase, route[`${phase}_us`], phase]);
    const used = PATHS.filter((path) => route.by_path[path].total_us.count > 0);
    columns.append(
      timesTable([["overhead", route.overhead_us], ...phases, ["total", route.total_us]]),
      timesTable(used.flatMap((path) => [[`${path}: overhead`, route.by_path[path].overhead_us],
                                         [`${path}: total`, route.by_path[path].total_us]])));
    const parts = [`status: ${counts(route.status) || "none yet"}`, `retries: ${route.retries}`,
                   `resets: ${route.resets.downstream} by clients, ${route.resets.upstream} by providers`];
    if (counts(route.errors)) parts.push(`ended by the proxy: ${counts(route.errors)}`);
    put(words, parts.join(" · "));
    box.replaceChildren(make("h2", "", `Route ${chosen}`), bar(route), columns, words);
  }

  // --- the whole page ---

  // seconds: since the answer before; 0: the same answer again, nothing is remembered.
  function draw(stats, seconds) {
    const again = seconds === 0 && before && before.stats === stats;
    const note = (series, value) => (again ? kept.get(series) || [] : remember(series, value));
    let all = 0, active = 0, overhead = [0, 0], upstream = [0, 0];
    const rows = new Map();
    for (const [name, route] of Object.entries(stats.routes)) {
      const then = older(["routes", name]) || {};
      const perSecond = rate(route.calls, then.calls, seconds);
      const between = (key) => [meanBetween(route[key], then[key]), then[key] ? route[key].count - then[key].count : 0];
      for (const [sum, [mean, count]] of [[overhead, between("overhead_us")], [upstream, between("upstream_us")]]) {
        if (isFinite(mean)) { sum[0] += mean * count; sum[1] += count; }
      }
      all += isFinite(perSecond) ? perSecond : 0;
      active += route.active;
      rows.set(name, { ...route, rates: note(`calls ${name}`, perSecond),
        in_rate: rate(route.bytes_in, then.bytes_in, seconds), out_rate: rate(route.bytes_out, then.bytes_out, seconds) });
    }
    routes.fill(rows);
    drawDetail(stats.routes[chosen]);

    const endpoints = new Map();
    for (const [upstreamName, { endpoints: list }] of Object.entries(stats.upstreams))
      for (const [address, endpoint] of Object.entries(list))
        endpoints.set(`${upstreamName} ${address}`, { ...endpoint, name: `${upstreamName} · ${address}` });
    upstreams.fill(endpoints);
    listeners.fill(new Map(Object.entries(stats.listeners)));
    if (again) return;

    const cpu = 100 * rate(stats.process.cpu_s, older(["process", "cpu_s"]), seconds);
    const last = (sum) => (sum[1] ? sum[0] / sum[1] : NaN);
    const figure = (value, text) => (isFinite(value) ? text(value) : "–");
    by("tiles").replaceChildren(
      tile("calls/s", short(all), note("calls", seconds ? all : NaN)),
      tile("calls under way", short(active), note("active", active)),
      tile("overhead, mean µs", figure(last(overhead), micros), note("overhead", last(overhead))),
      tile("upstream, mean µs", figure(last(upstream), micros), note("upstream", last(upstream))),
      tile("processor", figure(cpu, (value) => value.toFixed(1) + " %"), note("cpu", cpu)),
      tile("memory", bytes(stats.process.resident_bytes), note("memory", stats.process.resident_bytes)),
      tile(`bodies, of ${bytes(stats.buffers.budget_bytes)}`, bytes(stats.buffers.bytes), note("buffers", stats.buffers.bytes)));

    put(by("version"), stats.version);
    put(by("state"), stats.state);
    by("state").className = `badge ${STATES[stats.state] || ""}`;
    put(by("since"), `up ${duration(stats.uptime_s)} · configuration ${stats.config.generation} · ` +
      `${stats.process.workers} worker${stats.process.workers === 1 ? "" : "s"}`);
    tell(stats.config.error ? `The last reload failed, the running configuration stays:\n${stats.config.error}` : "");
  }

  function tell(trouble) {
    put(by("trouble"), trouble);
    by("trouble").hidden = !trouble;
  }

  async function look() {
    const reply = await fetch("stats", { cache: "no-store", signal: AbortSignal.timeout(PATIENCE_MS) });
    if (!reply.ok) throw new Error(`/stats answers ${reply.status}`);
    const stats = await reply.json(), at_ms = performance.now();
    draw(stats, before ? (at_ms - before.at_ms) / 1000 : NaN);
    before = { stats, at_ms };
  }

  async function run() {
    try {
      if (!document.hidden) await look();
    } catch (error) {
      by("state").className = "badge bad";
      put(by("state"), "no answer");
      tell(`The figures below are old: ${error.message}`);
    }
    setTimeout(run, EVERY_MS);
  }

  by("reset").addEventListener("click", async () => {
    try {
      const reply = await fetch("reset", { method: "POST" });
      if (!reply.ok) throw new Error(`/reset answers ${reply.status}`);
    } catch (error) {
      tell(`Times were not reset: ${error.message}`);
    }
  });
  run();
})();
