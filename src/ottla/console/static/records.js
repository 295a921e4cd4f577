// Follow new records: rows that the server has rendered are put on top of the table, and old ones leave it.
"use strict";

(() => {
  const MOST = 200;
  const line = document.querySelector("[data-tail]");
  const rows = document.getElementById("rows");
  if (!line || !rows) return;
  let stream = null;
  let last = "";
  let seen = 0;

  function say(text, state) {
    line.firstElementChild.textContent = text;
    line.dataset.state = state;
  }

  function count() {
    say(seen ? `Following: ${seen.toLocaleString()} new` : "Following: new records appear here", "on");
  }

  function add(event) {
    last = event.lastEventId;
    const parsed = new DOMParser().parseFromString(`<table><tbody>${event.data}</tbody></table>`, "text/html");
    const fresh = [...parsed.querySelectorAll("tbody > tr")];
    for (const row of fresh.reverse()) {
      row.classList.add("new");
      rows.prepend(document.adoptNode(row));
    }
    decorate(rows);
    seen += fresh.filter((row) => row.classList.contains("record")).length;
    while (rows.children.length > MOST) rows.lastElementChild.remove();
    count();
  }

  function start() {
    if (stream || document.hidden) return;
    const separator = line.dataset.tail.includes("?") ? "&" : "?";
    stream = new EventSource(line.dataset.tail + (last ? `${separator}at=${encodeURIComponent(last)}` : ""));
    stream.addEventListener("hello", count);
    stream.addEventListener("records", add);
    stream.addEventListener("problem", (event) => say(event.data, "off"));
    stream.onerror = () => {
      say("The console does not answer. Trying again …", "off");
      // The console refused, perhaps because too many pages follow topics. It tells why.
      if (stream && stream.readyState === EventSource.CLOSED) {
        const url = stream.url;
        stop();
        refusal(url).then((text) => say(`Not following${text.replace("not live", "")}. Trying again …`, "off"));
        setTimeout(start, 15000);
      }
    };
  }

  function stop() {
    if (stream) stream.close();
    stream = null;
  }

  // A hidden page does not keep the console busy; it goes on where it stopped.
  document.addEventListener("visibilitychange", () => (document.hidden ? stop() : start()));
  window.addEventListener("pagehide", stop);
  window.addEventListener("pageshow", start);
  start();
})();
