"use strict";
// Data only become text, attributes and drawings, never markup or code.
(() => {
  performance.mark("start");
  const data = JSON.parse(document.getElementById("data").textContent);
  const $ = (id) => document.getElementById(id);
  const ROWS_PER_PAGE = 50;
  const TYPES = { u1: Uint8Array, u2: Uint16Array, u4: Uint32Array, f4: Float32Array, f8: Float64Array, f2: Uint16Array, i1: Int8Array };

  // ---- arrays

  function unpack(packed) {
    const text = atob(packed.data), bytes = new Uint8Array(text.length);
    for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
    return new TYPES[packed.type](bytes.buffer);
  }

  function half(bits) { // a half-precision number
    const exponent = (bits >> 10) & 31, fraction = bits & 1023, sign = bits & 32768 ? -1 : 1;
    if (exponent === 31) return fraction ? NaN : sign * Infinity;
    return sign * (exponent ? 2 ** (exponent - 15) * (1 + fraction / 1024) : 2 ** -14 * (fraction / 1024));
  }

  const rows = {};
  for (const [name, value] of Object.entries(data)) {
    if (value && typeof value === "object" && value.type && value.data !== undefined) rows[name] = unpack(value);
  }
  const N = rows.position ? rows.position.length : 0;
  const K = data.names.length;
  const idOf = (i) => (data.ids ? data.ids[i] : String(rows.position[i]));
  const isNear = (i) => Math.abs(rows.evidence[i]) <= data.limit && rows.cluster[i] !== rows.competitor[i];
  const shape = (name) => data[name].shape;
  const heading = (code) => (data.noise.includes(code) ? "Noise" : `Cluster ${data.names[code]}`);

  // ---- text and numbers

  const MINUS = "\u2212";
  function plain(value) { // with few enough digits to read
    if (!Number.isFinite(value)) return "";
    const size = Math.abs(value);
    let text;
    if (size !== 0 && (size >= 1e6 || size < 1e-4)) text = value.toExponential(2);
    else if (size >= 1000 || Number.isInteger(value)) text = value.toFixed(0);
    else text = String(Number(value.toPrecision(3)));
    return text.replace("-", MINUS);
  }
  function signed(value, largest) { // with the same digits for all numbers of a column
    if (!Number.isFinite(value)) return "";
    const digits = largest > 0 ? 2 - Math.floor(Math.log10(largest)) : 2;
    const unit = 10 ** Math.max(0, -digits), size = Math.round(Math.abs(value) / unit) * unit; // three digits, as stored
    const text = digits > 6 || digits < -3 ? Math.abs(value).toExponential(1) : digits > 0 ? Math.abs(value).toFixed(digits) : String(size);
    return (Number(text) === 0 ? "" : value < 0 ? MINUS : "+") + text;
  }
  const digits = data.median > 0 ? 3 - Math.floor(Math.log10(data.median)) : 3; // decimals of evidence in the list
  const evidence = (i) => (digits > 6 || digits < -3 ? rows.evidence[i].toExponential(2) : rows.evidence[i].toFixed(Math.max(0, digits))).replace("-", MINUS);
  const many = (n, noun) => `${n.toLocaleString("en")} ${noun}${n === 1 ? "" : "s"}`;

  function numberOf(feature, code) { // as in the data, or rounded to the digits that are shown
    if (code === 65535) return NaN;
    if (feature.known === "singles") return Number(rows.singles[feature.start + code].toPrecision(6));
    if (feature.known === "doubles") return rows.doubles[feature.start + code];
    return (feature.low + code) / 10 ** feature.decimals;
  }
  function valueOf(feature, code) {
    if (feature.categories) return code === 65535 ? "missing" : feature.categories[code];
    const value = numberOf(feature, code);
    if (Number.isNaN(value)) return "missing";
    if (feature.date) return dateOf(value);
    return (feature.rounded && !feature.known ? value.toFixed(feature.decimals) : String(value)).replace("-", MINUS);
  }
  function dateOf(days) { // with the time of day, unless it is midnight
    const text = new Date(Math.round(days * 864e5)).toISOString();
    return text.endsWith("T00:00:00.000Z") ? text.slice(0, 10) : text.slice(0, 19).replace("T", " ");
  }

  // ---- elements

  function make(tag, attributes, ...children) {
    const node = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes || {})) node.setAttribute(name, value);
    node.append(...children);
    return node;
  }
  function draw(tag, attributes, ...children) {
    const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes || {})) node.setAttribute(name, value);
    node.append(...children);
    return node;
  }
  const bdi = (text) => make("bdi", {}, text);
  const breakable = (text) => make("bdi", {}, ...String(text).split(/(?<=[_/.-])/).flatMap((part, at) => (at ? [make("wbr"), part] : [part])));
  function marker(code) {
    const [color, shape] = data.styles[code];
    return draw("svg", { class: `marker c${color}`, viewBox: "-10 -10 20 20", "aria-hidden": "true" }, draw("use", { href: `#shape-${shape}` }));
  }
  function palette() { // the current colors of the page, light or dark
    const style = getComputedStyle(document.documentElement);
    return (name) => style.getPropertyValue(name).trim();
  }
  const named = (code) => [marker(code), bdi(data.names[code])];

  // ---- one row: relevance

  function lines(i) {
    const width = shape("feature")[1], found = [];
    let sum = 0, n = 0;
    for (let j = 0; j < width; j++) {
      const at = i * width + j, relevance = half(rows.relevance[at]) * rows.scale[i], feature = data.features[rows.feature[at]];
      if (!relevance && n) continue;
      const against = isSplit(i) && rows.beside ? half(rows.beside[at]) * rows.scale[i] : undefined;
      found.push({ name: feature.name, value: rows.value ? valueOf(feature, rows.value[at]) : "", relevance, against });
      sum += relevance;
      n++;
    }
    const residual = rows.residual ? rows.residual[i] : 0;
    const all = completed(found, i, sum, data.n_features - n, "feature", residual);
    return isSplit(i) && rows.beside ? besides(all, i, n) : all;
  }

  function besides(found, i, n) { // adds the rest of the contrast with the strongest competitor to the lines after n features
    const unexplained = rows.beside_residual ? rows.beside_residual[i] : 0;
    let left = rows.evidence[i] - unexplained - found.slice(0, n).reduce((sum, line) => sum + line.against, 0);
    for (const line of found.slice(n)) {
      line.against = line.rest ? left : unexplained;
      if (line.rest) left = 0;
    }
    if (unexplained && found.length === n) found.push({ name: "no single feature", value: "", relevance: 0, against: unexplained, other: true });
    return found;
  }

  function completed(found, i, sum, nLeft, noun, residual) { // adds the remaining lines, so that all add up to the evidence
    const bar = data.bar || 0;
    if (nLeft > 0) found.push({ name: `${many(nLeft, `more ${noun}`)}`, value: "", relevance: rows.evidence[i] - residual - sum, other: true, rest: true });
    if (bar) found.push({ name: `the threshold ${data.threshold}`, value: "", relevance: bar, other: true });
    const most = Math.max(Math.abs(rows.evidence[i]), ...found.map((line) => Math.abs(line.relevance)));
    if (Math.abs(residual - bar) > 5e-4 * most) found.push({ name: `no single ${noun}`, value: "", relevance: residual - bar, other: true });
    return found;
  }

  function waterfall(found, evidence, noun, competitor) {
    let at = 0, low = Math.min(0, evidence), high = Math.max(0, evidence);
    for (const line of found) {
      line.from = at;
      at += line.relevance;
      low = Math.min(low, at);
      high = Math.max(high, at);
    }
    const size = high - low || 1, place = (v) => (100 * (v - low)) / size;
    const largest = Math.max(...found.map((line) => Math.abs(line.relevance)), Math.abs(evidence));
    const body = make("tbody");
    const withValues = found.some((line) => line.value !== ""), withContrast = competitor !== undefined;
    const most = Math.max(Math.abs(evidence), ...found.map((line) => Math.abs(line.against || 0)));
    const beside = (value) => (withContrast ? signed(value, most) : null);
    for (const line of found) {
      body.append(tableLine(line.name, withValues ? line.value : null, signed(line.relevance, largest), arrow(place(line.from), place(line.from + line.relevance), place(0)), line.other, beside(line.against)));
    }
    const total = tableLine("Evidence", withValues ? "" : null, signed(evidence, largest), arrow(place(0), place(evidence), place(0), "total"), false, beside(evidence));
    total.className = "sum";
    body.append(total);
    const axis = make("div", { class: "boundary" });
    const zero = make("span", {}, "0");
    zero.style.left = `clamp(.3em, ${place(0)}%, calc(100% - .3em))`;
    axis.append(zero);
    const heads = [make("th", { scope: "col" }, noun), ...(withValues ? [make("th", { scope: "col", class: "number" }, "Value")] : []), make("th", { scope: "col", class: "number" }, "Relevance"), make("td", { class: "fall" }, axis), ...(withContrast ? [make("th", { scope: "col", class: "number" }, "Against ", bdi(data.names[competitor]), " alone")] : [])];
    const isLong = withValues && (withContrast || found.some((line) => line.name.length > 24)); // phones show names on separate lines
    return make("table", { class: `relevance${isLong ? " long" : ""}${withContrast ? " contrasted" : ""}` }, make("thead", {}, make("tr", {}, ...heads)), body);
  }

  function tableLine(name, value, number, drawing, other, beside) {
    const line = make("tr", {}, make("th", { scope: "row", class: other ? "dim" : "" }, breakable(name)));
    if (value !== null) line.append(/^\S{0,12}$/.test(value) ? make("td", { class: "number" }, bdi(value)) : make("td", { class: "number value" }, breakable(value))); // dates do not break
    line.append(make("td", { class: "number" }, number), make("td", { class: "fall" }, drawing));
    if (beside !== null && beside !== undefined) line.append(make("td", { class: "number beside" }, beside));
    return line;
  }

  function arrow(from, to, zero, side) { // starts where the last one ended; the tip shows the direction
    side = side || (to >= from ? "for" : "against");
    const tip = Math.sign(to - from) * Math.min(1.6, Math.abs(to - from) / 2), points = [[from, 3], [to - tip, 3], [to, 9], [to - tip, 15], [from, 15]];
    const outline = points.map((point) => point.map((v) => v.toFixed(2)).join(",")).join(" ");
    const children = [draw("polygon", { class: side, points: outline })];
    if (side === "against") children.push(draw("polygon", { fill: "url(#hatch)", points: outline }));
    children.push(draw("line", { class: "zero", x1: zero, x2: zero, y1: -4, y2: 22 }));
    return draw("svg", { viewBox: "0 0 100 18", preserveAspectRatio: "none", "aria-hidden": "true" }, ...children);
  }

  // ---- one row: why not another cluster

  function contrasts(i) {
    if (!rows.against) return [];
    const m = shape("against")[1], found = [];
    for (let j = 0; j < m; j++) {
      const k = rows.other ? rows.other[i * m + j] : j < rows.cluster[i] ? j : j + 1;
      const line = { k, evidence: half(rows.against[i * m + j]) * (rows.against_scale || rows.scale)[i], features: [] };
      if (rows.contrast_feature) {
        const width = shape("contrast_feature")[2];
        for (let c = 0; c < width; c++) {
          const at = (i * m + j) * width + c;
          line.features.push({ name: data.features[rows.contrast_feature[at]].name, relevance: half(rows.contrast_relevance[at]) * rows.scale[i] });
        }
      }
      found.push(line);
    }
    return found.sort((a, b) => a.evidence - b.evidence);
  }

  function whyNot(i) {
    const found = contrasts(i), own = data.names[rows.cluster[i]];
    if (!found.length) return [];
    const body = make("tbody");
    const low = Math.min(0, ...found.map((line) => line.evidence)), high = Math.max(0, ...found.map((line) => line.evidence));
    const place = (v) => (100 * (v - low)) / (high - low || 1);
    for (const line of found) {
      const first = make("th", { scope: "row" }, ...named(line.k));
      body.append(make("tr", { class: "why" }, first, make("td", { class: "number" }, signed(line.evidence, Math.abs(line.evidence))), make("td", { class: "fall" }, arrow(place(0), place(line.evidence), place(0)))));
      if (line.features.length) {
        const rest = line.evidence - line.features.reduce((sum, each) => sum + each.relevance, 0);
        const cell = make("td", { colspan: 3, class: "contrast-features" }), size = Math.max(Math.abs(line.evidence), ...line.features.map((each) => Math.abs(each.relevance)));
        line.features.filter((each) => each.relevance).forEach((each, c) => cell.append(c ? ", " : "", breakable(each.name), " ", signed(each.relevance, size)));
        cell.append(`, all others ${signed(rest, size)}`);
        body.lastChild.classList.add("first");
        body.append(make("tr", { class: "more" }, cell));
      }
    }
    const heads = [make("th", { scope: "col" }, "Other cluster"), make("th", { scope: "col", class: "number" }, "Evidence"), make("td", { class: "fall" })];
    const note = make("p", { class: "dim" }, "Evidence for ", bdi(own), ` against each other cluster${rows.contrast_feature ? ", with the strongest features" : ""}.`);
    const table = make("table", { class: "contrasts" }, make("thead", {}, make("tr", {}, ...heads)), body);
    return [make("h4", {}, "Why not another cluster?"), note, table];
  }

  // ---- one row as a whole

  function claim(i) {
    const own = rows.cluster[i], other = rows.competitor[i];
    const node = make("p", {}, "In ", ...named(own));
    if (rows.assigned && rows.assigned[i] !== own) node.replaceChildren("Explained for ", ...named(own), "; the model assigns it to ", ...named(rows.assigned[i]));
    if (own === other) node.append(": compared with itself, so there is nothing to explain.");
    else node.append(`: evidence ${plain(rows.evidence[i])}, ${data.contrast ? "against" : "nearest competitor"} `, ...named(other), ".");
    if (isNear(i) && !rank(i).length) node.append(" It is borderline.");
    return node;
  }

  // ---- one row: its story

  const isSplit = (i) => rows.shared !== undefined && rows.evidence[i] >= 0 && rows.cluster[i] !== rows.competitor[i];
  const cluster = (code) => (data.noise.includes(code) ? ["noise"] : ["cluster ", bdi(data.names[code])]);

  function rank(i) { // how clear the case is, compared with the other members
    if (!rows.below) return [];
    const below = rows.below[i] - 1, others = rows.n_members[rows.cluster[i]] - 1;
    if (below < 0 || others < 1) return [];
    const word = isNear(i) ? "Borderline" : below > 0.75 * others ? "Clear" : rows.weak[i] ? "Weak" : "Typical";
    if (others === 1) return [make("p", {}, `${word}: ${below ? "more" : "no more"} evidence than the only other ${data.noun} in `, ...cluster(rows.cluster[i]), ".")];
    const who = `of the other ${many(others, data.noun)} in `;
    if (!below) return [make("p", {}, `${word}: none ${who}`, ...cluster(rows.cluster[i]), " has less evidence.")];
    return [make("p", {}, `${word}: more evidence than ${below === others ? "all" : below.toLocaleString("en")} ${who}`, ...cluster(rows.cluster[i]), ".")];
  }
  function typical(i) { // the value that is the strongest evidence for the cluster, and what is typical of the competitor
    const says = rows.typical_says ? rows.typical_says[i] : 0;
    if (!says) return [];
    const feature = data.features[rows.typical_feature[i]], value = valueOf(feature, rows.typical_value[i]);
    const [mine, theirs] = [0, 1].map((side) => data.typical[rows.typical_means[2 * i + side]].replace(/^-/, MINUS));
    const here = cluster(rows.cluster[i]), there = cluster(rows.competitor[i]);
    if (says & 8) return [make("p", {}, bdi(feature.name), " is ", bdi(value), `, as in ${mine} of the ${data.noun}s of `, ...here, ` and ${theirs} of `, ...there, ".")];
    const side = says & 1 ? (feature.date ? "after" : "above") : feature.date ? "before" : "below";
    const node = make("p", {}, bdi(feature.name), " ", bdi(value), ` is ${side} the ${theirs} typical of `, ...there);
    if (says & 4) node.append(`, and nearer to the ${mine} typical of `, ...here);
    node.append(".");
    return [node];
  }
  function sharing(i) { // the competitors among which the evidence is shared
    if (!isSplit(i)) return [];
    const width = shape("shared")[1], parts = [];
    for (let j = 0; j < width; j++) {
      const percent = rows.shared[i * width + j];
      if (percent) parts.push([j < width - 1 ? bdi(data.names[rows.shared_with[i * (width - 1) + j]]) : "others", ` (${percent}%)`]);
    }
    if (!parts.length) return [];
    const node = make("p", { class: "dim" });
    if (parts.length === 1) node.append("Relevance: the evidence against ", ...cluster(rows.competitor[i]), ".");
    else {
      node.append("Relevance: the evidence, shared among the competitors ");
      parts.forEach((part, at) => node.append(at ? (at === parts.length - 1 ? " and " : ", ") : "", ...part));
      node.append(".");
      if (rows.beside) node.append(" Against ", bdi(data.names[rows.competitor[i]]), " alone: the same evidence, against ", ...cluster(rows.competitor[i]), " alone.");
    }
    return [node];
  }
  const story = (i) => make("div", { class: "story" }, claim(i), ...rank(i), ...typical(i), ...sharing(i));

  const VIEWS = {
    table: (i) => [waterfall(lines(i), rows.evidence[i], "Feature", isSplit(i) && rows.beside ? rows.competitor[i] : undefined)],
    documents: (i) => documentView(i),
    images: (i) => imageView(i),
  };

  let opened = -1;
  function open(i, behavior) {
    opened = i;
    const title = make("h3", { tabindex: "-1" }, `${data.noun[0].toUpperCase()}${data.noun.slice(1)} `, bdi(idOf(i)));
    $("row").replaceChildren(title, story(i), ...VIEWS[data.kind](i), ...whyNot(i));
    for (const line of document.querySelectorAll("#list tbody tr")) line.classList.toggle("selected", Number(line.dataset.row) === i);
    drawMap();
    title.focus({ preventScroll: true });
    const box = $("row").getBoundingClientRect();
    if (box.top < 0 || box.top > innerHeight * 0.6) $("row").scrollIntoView({ block: "start", behavior });
  }

  let places = null;
  function placeOf(position) { // the index on this page of a row of the data
    if (!places) {
      places = new Map();
      for (let i = 0; i < N; i++) places.set(rows.position[i], i);
    }
    return places.get(position);
  }
  function findByName(name) {
    for (let i = 0; i < N; i++) if (idOf(i) === name) return i;
    return undefined;
  }
  function follow(behavior) { // opens the row in the address, given by position or by name
    if (!location.hash.startsWith("#row-")) return;
    let name = location.hash.slice(5);
    try {
      name = decodeURIComponent(name);
    } catch { /* not encoded */ }
    const isPosition = /^\d+$/.test(name), there = isPosition ? placeOf(Number(name)) : undefined, i = there === undefined ? findByName(name) : there;
    if (i === undefined) showNotFound(name, isPosition);
    else if (i !== opened) open(i, behavior);
  }
  function showNotFound(name, isPosition) {
    opened = -1;
    for (const line of document.querySelectorAll("#list tbody tr.selected")) line.classList.remove("selected");
    drawMap();
    $("row").replaceChildren(make("p", {}, `This page has no ${data.noun} ${isPosition ? "at position " : "named "}`, bdi(name), isPosition ? " or with that name." : "."));
    $("row").focus({ preventScroll: true });
    $("row").scrollIntoView({ block: "nearest" });
  }
  const go = (i) => {
    const hash = `#row-${rows.position[i]}`;
    if (location.hash !== hash) location.hash = hash;
    open(i, "auto");
  };

  // ---- the list of rows

  const collator = new Intl.Collator("en", { numeric: true });
  function first(i) { // the strongest feature, or the beginning of a document
    if (data.kind === "documents") return beginning(i);
    if (!rows.feature) return "";
    const at = i * shape("feature")[1], feature = data.features[rows.feature[at]];
    return rows.value ? `${feature.name} = ${valueOf(feature, rows.value[at])}` : feature.name;
  }
  function categoriesOf(i) { // searched, too, in addition to the text in the list
    const found = [];
    for (let j = 0; rows.value && j < shape("feature")[1]; j++) {
      const at = i * shape("feature")[1] + j, feature = data.features[rows.feature[at]];
      if (feature.categories && rows.value[at] !== 65535) found.push(`${feature.name} = ${valueOf(feature, rows.value[at])}`);
    }
    return found.join("\n");
  }
  function strongestCell(i) { // if there is no room, the name is cut, not the value
    const text = first(i);
    if (!rows.value) return [bdi(text)];
    const at = i * shape("feature")[1], feature = data.features[rows.feature[at]];
    return [make("div", { class: "strongest", title: text }, bdi(feature.name), make("span", {}, " = ", bdi(valueOf(feature, rows.value[at]))))];
  }
  const LAST = { table: "Strongest feature", documents: "Text", images: "" }[data.kind];
  const COLUMNS = [
    { name: data.noun[0].toUpperCase() + data.noun.slice(1), key: idOf, cell: null },
    { name: "Cluster", key: (i) => rows.cluster[i], cell: (i) => named(rows.cluster[i]) },
    { name: "Competitor", key: (i) => rows.competitor[i], cell: (i) => named(rows.competitor[i]) },
    { name: "Evidence", key: (i) => rows.evidence[i], cell: (i) => [...(isNear(i) ? [make("span", { class: "borderline-mark", title: "borderline" }, "\u25EF"), " "] : []), evidence(i)], number: true },
  ];
  if (LAST) COLUMNS.push({ name: LAST, key: first, cell: strongestCell, wide: true });

  let order = Array.from({ length: N }, (_, i) => i), page = 0, sorted = -1, down = false, haystack = null;

  function heads() {
    COLUMNS.forEach((column, c) => {
      const button = make("button", { type: "button" }, column.name);
      button.addEventListener("click", () => sort(c));
      document.querySelector("#list thead tr").append(make("th", { scope: "col", class: column.number ? "number" : "", "aria-sort": "none" }, button));
    });
  }
  function sort(c) {
    down = sorted === c ? !down : false;
    sorted = c;
    page = 0;
    document.querySelectorAll("#list thead th").forEach((head, at) => head.setAttribute("aria-sort", at === c ? (down ? "descending" : "ascending") : "none"));
    list();
  }
  function matching() {
    const text = $("search").value.trim().toLowerCase().replace(/\s+/g, " "), only = $("only").value, near = $("near").checked;
    const wanted = data.kind === "documents" ? text.split(" ").filter(Boolean) : text ? [text] : []; // all words of a search must be in a document
    if (wanted.length && !haystack) haystack = Array.from({ length: N }, (_, i) => searched(i));
    const found = [];
    for (let i = 0; i < N; i++) {
      if (only !== "" && rows.cluster[i] !== Number(only)) continue;
      if (near && !isNear(i)) continue;
      if (wanted.length && !wanted.every((word) => haystack[i].includes(word))) continue;
      found.push(i);
    }
    return found;
  }
  function searched(i) {
    const text = data.kind === "documents" ? data.texts[i] : `${first(i)}\n${categoriesOf(i)}`;
    return `${idOf(i)}\n${heading(rows.cluster[i])}\n${text}`.toLowerCase();
  }
  function list() {
    order = matching();
    if (sorted >= 0) {
      const key = COLUMNS[sorted].key, keys = new Map(order.map((i) => [i, key(i)]));
      const compare = typeof keys.get(order[0]) === "string" ? collator.compare : (a, b) => a - b;
      order.sort((a, b) => (down ? -1 : 1) * compare(keys.get(a), keys.get(b)) || a - b);
    }
    show();
  }
  function show() {
    const nPages = Math.max(1, Math.ceil(order.length / ROWS_PER_PAGE)), start = page * ROWS_PER_PAGE;
    const body = document.createDocumentFragment();
    for (const i of order.slice(start, start + ROWS_PER_PAGE)) {
      const button = make("button", { type: "button", class: "open" }, bdi(idOf(i)));
      const line = make("tr", { "data-row": i, class: i === opened ? "selected" : "" }, make("th", { scope: "row", class: "cell" }, button));
      for (const column of COLUMNS.slice(1)) line.append(make("td", { class: column.number ? "number" : column.wide ? "cell wide" : "cell" }, ...column.cell(i)));
      line.addEventListener("click", () => go(i));
      body.append(line);
    }
    document.querySelector("#list tbody").replaceChildren(body);
    $("found").textContent = howMany();
    $("page").textContent = `Page ${page + 1} of ${nPages}`;
    $("back").disabled = page === 0;
    $("next").disabled = page >= nPages - 1;
    $("pages").hidden = nPages === 1;
  }
  function howMany() {
    const text = $("search").value.trim();
    if (!order.length && text) return `No ${data.noun} matches \u201C${text}\u201D${$("only").value !== "" || $("near").checked ? " with the selected filters" : ""}.`;
    return order.length === N ? many(N, data.noun) : `${order.length.toLocaleString("en")} of ${many(N, data.noun)}`;
  }
  function turn(by) {
    page += by;
    show();
  }

  // ---- the map

  const chart = $("chart"), onMap = rows.assigned && !data.labeled ? rows.assigned : rows.cluster;
  let hovered = -1, dots = null, byPlace = null;
  const SHAPES = [...document.querySelectorAll("path[id^=shape-]")].map((path) => new Path2D(path.getAttribute("d")));
  const RADIUS = 8; // of these paths
  function layOut() {
    if (!rows.map) return;
    const width = chart.clientWidth, [w, h] = data.map_size, margin = 26;
    const height = Math.round(Math.min(Math.max((width - 2 * margin) * Math.max(h / (w || 1), 0.25) + 2 * margin, 240), Math.max(300, 0.62 * width), 620));
    const ratio = devicePixelRatio || 1;
    chart.width = width * ratio;
    chart.height = height * ratio;
    chart.style.height = `${height}px`;
    const scale = Math.min((width - 2 * margin) / (w || 1), (height - 2 * margin) / (h || 1)) / 65535;
    const left = (width - scale * w * 65535) / 2, top = (height - scale * h * 65535) / 2;
    dots = new Float32Array(2 * N);
    for (let i = 0; i < N; i++) {
      dots[2 * i] = left + rows.map[2 * i] * scale;
      dots[2 * i + 1] = height - top - rows.map[2 * i + 1] * scale;
    }
    byPlace = null;
  }
  function dot(c, i, r, colors) {
    c.save();
    c.translate(dots[2 * i], dots[2 * i + 1]);
    c.scale(r / RADIUS, r / RADIUS);
    const [color, shape] = data.styles[onMap[i]];
    c.fillStyle = colors.fills[color];
    c.fill(SHAPES[shape]);
    if (isNear(i)) {
      c.lineWidth = (1.6 * RADIUS) / r;
      c.strokeStyle = colors.ink;
      c.stroke(SHAPES[shape]);
    }
    c.restore();
  }
  function drawMap() {
    if (!N || !rows.map || !dots) return;
    const read = palette(), nColors = 1 + Math.max(...data.styles.map(([color]) => color));
    const colors = { ink: read("--ink"), paper: read("--paper"), fills: Array.from({ length: nColors }, (_, c) => read(`--c${c}`)) };
    const c = chart.getContext("2d"), ratio = devicePixelRatio || 1, r = N > 2000 ? 2.6 : N > 400 ? 3.4 : 4.6;
    c.setTransform(ratio, 0, 0, ratio, 0, 0);
    c.clearRect(0, 0, chart.width, chart.height);
    c.globalAlpha = N > 1000 ? 0.75 : 0.9;
    for (let i = 0; i < N; i++) dot(c, i, r, colors);
    c.globalAlpha = 1;
    labels(c, colors);
    for (const i of [opened, hovered]) {
      if (i < 0) continue;
      dot(c, i, r * 1.6, colors);
      c.beginPath();
      c.arc(dots[2 * i], dots[2 * i + 1], r * 2.4, 0, 7);
      c.lineWidth = 2;
      c.strokeStyle = colors.ink;
      c.stroke();
    }
  }
  function labels(c, colors) {
    const sums = Array.from({ length: K }, () => [0, 0, 0]);
    for (let i = 0; i < N; i++) {
      const sum = sums[onMap[i]];
      sum[0] += dots[2 * i];
      sum[1] += dots[2 * i + 1];
      sum[2]++;
    }
    c.font = "600 14px system-ui, sans-serif";
    c.textAlign = "center";
    c.textBaseline = "middle";
    c.lineJoin = "round";
    sums.forEach(([x, y, n], k) => {
      if (!n || K > 40) return;
      const name = data.names[k].length > 18 ? `${data.names[k].slice(0, 17)}\u2026` : data.names[k];
      c.lineWidth = 4;
      c.strokeStyle = colors.paper;
      const above = n < 3 ? 15 : 0; // a name must not cover all points of its cluster
      c.strokeText(name, x / n, y / n - above);
      c.fillStyle = colors.ink;
      c.fillText(name, x / n, y / n - above);
    });
  }
  function nearest(event) {
    const box = chart.getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
    let best = -1, least = 18 ** 2;
    for (let i = 0; i < N; i++) {
      const apart = (dots[2 * i] - x) ** 2 + (dots[2 * i + 1] - y) ** 2;
      if (apart < least) [best, least] = [i, apart];
    }
    return best;
  }
  function hover(i) {
    if (i === hovered) return;
    hovered = i;
    chart.style.cursor = i < 0 ? "" : "pointer";
    const text = i < 0 ? "\u00A0" : `${data.noun[0].toUpperCase()}${data.noun.slice(1)} ${idOf(i)}: ${heading(rows.cluster[i])}, evidence ${plain(rows.evidence[i])} against ${data.names[rows.competitor[i]]}${isNear(i) ? ", borderline" : ""}`;
    $("map-status").textContent = text;
    drawMap();
  }
  function walk(event) {
    if (event.key === "Enter" && hovered >= 0) return go(hovered);
    const step = { ArrowRight: 1, ArrowLeft: -1, ArrowUp: 1, ArrowDown: -1 }[event.key];
    if (!step || !N) return undefined;
    event.preventDefault();
    const axis = event.key === "ArrowUp" || event.key === "ArrowDown" ? 1 : 0;
    if (!byPlace) byPlace = [0, 1].map((a) => Array.from({ length: N }, (_, i) => i).sort((p, q) => rows.map[2 * p + a] - rows.map[2 * q + a]));
    const line = byPlace[axis], at = hovered < 0 ? (step > 0 ? -1 : N) : line.indexOf(hovered);
    return hover(line[Math.min(N - 1, Math.max(0, at + step))]);
  }

  // ---- which clusters compete

  function showPair(button) {
    const g = Number(button.dataset.group), k = Number(button.dataset.pair), own = data.groups[g];
    document.querySelectorAll(".matrix button").forEach((each) => each.setAttribute("aria-pressed", each === button));
    const node = $("pair");
    node.classList.remove("dim");
    node.replaceChildren(...named(own), " against ", ...named(k), `: strongest competitor of ${button.textContent} of its ${data.noun}s`);
    const known = data.pairs;
    if (known && known.evidence[g][k] !== null) node.append(`; mean evidence ${plain(known.evidence[g][k])}`);
    const features = known ? known.features[g][k] : [];
    if (features.length) node.append("; separated by ");
    features.forEach(([feature, relevance], at) => node.append(at ? ", " : "", bdi(known.names[feature]), ` (${signed(relevance, Math.abs(features[0][1]))})`));
    node.append(".");
  }

  // ---- documents

  function beginning(i) {
    return Array.from(data.texts[i].slice(0, 200)).slice(0, 90).join("").replace(/\s+/g, " ");
  }
  function marks(i) {
    const found = [];
    for (let at = rows.ends[i]; at < rows.ends[i + 1]; at++) {
      found.push({ start: rows.start[at], stop: rows.start[at] + rows.length[at], relevance: half(rows.relevance[at]) * rows.scale[i] });
    }
    return found;
  }
  function documentView(i) {
    const text = Array.from(data.texts[i]), found = marks(i), words = new Map(); // positions count code points
    const largest = Math.max(0, ...found.map((mark) => Math.abs(mark.relevance) || 0));
    const box = make("div", { class: "text", dir: "auto" });
    let end = 0;
    for (const mark of found) {
      const word = text.slice(mark.start, mark.stop).join("");
      box.append(text.slice(end, mark.start).join(""), tinted(word, mark.relevance, largest));
      end = mark.stop;
      if (Number.isNaN(mark.relevance)) continue;
      const key = word.toLowerCase(), known = words.get(key) || { name: key, value: "", relevance: 0 };
      known.relevance += mark.relevance;
      words.set(key, known);
    }
    box.append(text.slice(end).join(""));
    const strongest = [...words.values()].sort((a, b) => Math.abs(b.relevance) - Math.abs(a.relevance)), top = strongest.slice(0, 8);
    const sum = top.reduce((total, each) => total + each.relevance, 0), isCut = data.cut.includes(i);
    const residual = rows.residual ? rows.residual[i] : 0, nLeft = strongest.length - top.length;
    const all = completed(top, i, sum, nLeft + (isCut ? 1 : 0), "word", residual);
    const rest = all.find((line) => line.name.includes("more word"));
    if (rest && isCut) rest.name = "all other words";
    const parts = [box, waterfall(all, rows.evidence[i], "Word")];
    if (isCut) parts.splice(1, 0, make("p", { class: "dim" }, "The document continues."));
    return parts;
  }
  function tinted(word, relevance, largest) {
    if (Number.isNaN(relevance)) return make("span", { class: "u", title: "unknown to the model" }, word);
    const strength = largest > 0 ? Math.abs(relevance) / largest : 0;
    if (strength < 0.03) return word;
    const node = make("b", { class: relevance >= 0 ? "p" : "n", title: signed(relevance, largest) }, word);
    node.style.setProperty("--a", strength.toFixed(2));
    return node;
  }

  // ---- images

  function picture(name, i, paint) {
    const [, height, width] = shape(name), canvas = make("canvas", { width, height });
    fill(canvas, i, paint);
    return canvas;
  }
  function fill(canvas, i, paint) {
    const c = canvas.getContext("2d"), image = c.createImageData(canvas.width, canvas.height), size = canvas.width * canvas.height;
    for (let at = 0; at < size; at++) image.data.set(paint(i * size + at), 4 * at);
    c.putImageData(image, 0, 0);
  }
  const photo = (i) => picture("picture", i, shape("picture").length === 4 ? (at) => [rows.picture[3 * at], rows.picture[3 * at + 1], rows.picture[3 * at + 2], 255] : (at) => [rows.picture[at], rows.picture[at], rows.picture[at], 255]);
  function tints() { // from the background to the color for the cluster, or against it
    const read = palette(), hex = read("--paper"), paper = [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
    const [ahead, behind] = ["--for", "--against"].map((name) => read(name).split(" ").map(Number));
    return (at) => {
      const part = rows.heat[at] / 127, far = part >= 0 ? ahead : behind, size = Math.abs(part);
      return [...paper.map((v, c) => v + (far[c] - v) * size), 255];
    };
  }
  function heat(i) {
    const canvas = picture("heat", i, tints());
    canvas.dataset.heat = i;
    return canvas;
  }
  function recolor() {
    drawMap();
    const paint = tints();
    for (const canvas of document.querySelectorAll("canvas[data-heat]")) fill(canvas, Number(canvas.dataset.heat), paint);
  }
  function framed(canvas, text, width) {
    canvas.style.width = `${width}px`;
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", text);
    return canvas;
  }
  function imageView(i) {
    const id = idOf(i), parts = [], width = Math.min(220, Math.max(120, $("row").clientWidth / 2 - 24));
    if (rows.picture) parts.push(make("figure", {}, framed(photo(i), `${data.noun} ${id}`, width), make("figcaption", {}, "input")));
    parts.push(make("figure", {}, framed(heat(i), `heat map of ${data.noun} ${id}`, width), make("figcaption", {}, "blue: for the cluster, orange: against it")));
    const residual = rows.residual ? rows.residual[i] : 0;
    const found = [
      { name: "total for the cluster", value: "", relevance: rows.total_for[i] },
      { name: "total against it", value: "", relevance: rows.total_against[i] },
    ];
    return [make("div", { class: "figures" }, ...parts), waterfall(completed(found, i, 0, 0, "pixel", residual), rows.evidence[i], "Pixels")];
  }
  function thumbnails() {
    for (const box of document.querySelectorAll(".pictures")) {
      for (const position of box.dataset.rows.split(" ").filter(Boolean)) {
        const i = placeOf(Number(position));
        if (i === undefined) continue;
        const link = make("a", { href: `#row-${position}` });
        for (const canvas of rows.picture ? [photo(i), heat(i)] : [heat(i)]) link.append(framed(canvas, `${data.noun} ${idOf(i)}`, 64));
        box.append(link);
      }
    }
  }

  // ---- start

  heads();
  if (N) {
    list();
    if (rows.map) {
      const parts = data.map_explained.map((part) => `${Math.round(100 * part)}%`);
      const scale = data.map_logarithmic ? " The axes are logarithmic on both sides of the median, so distances are not to scale." : "";
      const beyond = data.map_beyond ? ` ${many(data.map_beyond, data.noun)} beyond the map ${data.map_beyond === 1 ? "is" : "are"} drawn at its edge.` : "";
      $("map-note").textContent = `The first two principal components of ${data.map_of}, with ${parts[0]} and ${parts[1]} of the variance. Points that are close together here may differ in the other components.${scale}${beyond}`;
      layOut();
      drawMap();
    }
    if (data.kind === "images") thumbnails();
  }
  $("controls").addEventListener("submit", (event) => event.preventDefault());
  for (const [id, kind] of [["search", "input"], ["only", "change"], ["near", "change"]]) {
    $(id).addEventListener(kind, () => {
      page = 0;
      list();
    });
  }
  $("back").addEventListener("click", () => turn(-1));
  $("next").addEventListener("click", () => turn(1));
  chart.addEventListener("mousemove", (event) => hover(nearest(event)));
  chart.addEventListener("mouseleave", () => hover(-1));
  chart.addEventListener("click", (event) => {
    const i = nearest(event);
    if (i >= 0) go(i);
  });
  chart.addEventListener("keydown", walk);
  for (const button of document.querySelectorAll(".matrix button")) button.addEventListener("click", () => showPair(button));
  addEventListener("hashchange", () => follow("auto"));
  const again = () => {
    layOut();
    recolor();
  };
  let width = chart.clientWidth;
  addEventListener("resize", () => {
    if (chart.clientWidth === width) return;
    width = chart.clientWidth;
    again();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", recolor);
  addEventListener("beforeprint", () => {
    document.documentElement.classList.add("printing"); // print on white
    for (const each of document.querySelectorAll("details:not(.how)")) each.open = true;
    again();
  });
  addEventListener("afterprint", () => {
    document.documentElement.classList.remove("printing");
    again();
  });
  follow("instant");
})();
