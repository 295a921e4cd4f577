// Live updates, copy buttons, and the key "/" for the search. Everything else works without this file.
"use strict";

// ── live updates: when the server has something new, load this page again and replace the parts marked data-live ──

let source = null;
let loading = false;
let again = false;

function state(text) {
  const mark = document.querySelector(".live-state");
  if (mark) {
    mark.hidden = false;
    mark.lastElementChild.textContent = text;
    mark.dataset.state = text === "live" ? "on" : "off";
  }
}

async function update() {
  if (loading) {
    again = true;
    return;
  }
  loading = true;
  try {
    const response = await fetch(location.href, { headers: { "X-Live": "1" }, credentials: "same-origin" });
    if (!response.ok || response.redirected) return;
    state("live");
    replaceParts(new DOMParser().parseFromString(await response.text(), "text/html"));
  } catch (error) {
    state("not live");
  } finally {
    loading = false;
    if (again) {
      again = false;
      update();
    }
  }
}

function replaceParts(fresh) {
  document.body.dataset.version = fresh.body.dataset.version || "";
  for (const part of document.querySelectorAll("[data-live]")) {
    const next = fresh.querySelector(`[data-live="${CSS.escape(part.dataset.live)}"]`);
    if (!next || next.isEqualNode(part)) continue;
    const focused = part.contains(document.activeElement) ? document.activeElement : null;
    // Do not take a field away from somebody who types.
    if (focused && focused.matches("input, textarea, select")) continue;
    const open = [...part.querySelectorAll("details[open][id]")].map((one) => one.id);
    const address = focused && (focused.id ? `#${CSS.escape(focused.id)}` : focusedLink(focused));
    part.replaceWith(next);
    for (const id of open) {
      const one = document.getElementById(id);
      if (one) one.open = true;
    }
    const found = address && next.querySelector(address);
    if (found) found.focus({ preventScroll: true });
    decorate(next);
  }
  document.dispatchEvent(new CustomEvent("live-update"));
}

function focusedLink(element) {
  const href = element.getAttribute("href");
  return href ? `[href="${CSS.escape(href)}"]` : null;
}

function connect() {
  if (source || document.hidden || !document.querySelector("[data-live]") || !document.body.dataset.version) return;
  source = new EventSource(`/live?since=${encodeURIComponent(document.body.dataset.version)}`);
  source.addEventListener("hello", () => state("live"));
  source.addEventListener("changed", update);
  source.onerror = () => {
    state("not live");
    // The browser tries again by itself, unless it was refused.
    if (source && source.readyState === EventSource.CLOSED) {
      const url = source.url;
      disconnect();
      refusal(url).then(state);
      setTimeout(connect, 15000);
    }
  };
}

// Why the console refused a stream: an EventSource does not tell.
async function refusal(url) {
  const stop = new AbortController();
  try {
    const answer = await fetch(url, { signal: stop.signal, credentials: "same-origin" });
    const isText = (answer.headers.get("content-type") || "").startsWith("text/plain");
    return !answer.ok && isText ? `not live: ${(await answer.text()).trim()}` : "not live";
  } catch (error) {
    return "not live";
  } finally {
    stop.abort();
  }
}

function disconnect() {
  if (source) source.close();
  source = null;
}

// A hidden page does not keep the console busy.
document.addEventListener("visibilitychange", () => (document.hidden ? disconnect() : connect()));
window.addEventListener("pagehide", disconnect);
window.addEventListener("pageshow", connect);

// ── small helps ──

function decorate(root) {
  for (const button of root.querySelectorAll("[data-copy]")) {
    button.hidden = !navigator.clipboard;
    button.onclick = async () => {
      await navigator.clipboard.writeText(button.dataset.copy);
      button.textContent = "Copied";
      setTimeout(() => (button.textContent = "Copy"), 1500);
    };
  }
  for (const time of root.querySelectorAll("time[datetime]")) {
    time.title = new Date(time.getAttribute("datetime")).toLocaleString();
  }
}

document.addEventListener("keydown", (event) => {
  const search = document.getElementById("search");
  if (event.key !== "/" || !search || event.ctrlKey || event.metaKey || event.altKey) return;
  if (document.activeElement && document.activeElement.matches("input, textarea, select")) return;
  event.preventDefault();
  search.focus();
  search.select();
});

decorate(document);
connect();
