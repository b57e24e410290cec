#include "yoke/web/page_assets.h"

namespace yoke::web {

// Blue and orange can be told apart with every common form of colour blindness, and no colour is the only sign of
// anything: states have words and shapes, use is an area, and memory is a line.
const std::string_view kPageStyle = R"css(
:root{color-scheme:light dark;--page:#f4f6f8;--card:#fff;--text:#1a1f24;--muted:#57616b;--edge:#d3d9df;--track:#e3e8ec;
--use:#0068a8;--band:#9cc7e6;--memory:#b84a00;--bad:#a8163b;--badcard:#fdeef1;--good:#00684a}
@media (prefers-color-scheme:dark){:root{--page:#0d1116;--card:#161c23;--text:#e8edf2;--muted:#9aa6b2;--edge:#2e3842;
--track:#2a333d;--use:#4aa8e8;--band:#1d4e73;--memory:#f0a04b;--bad:#ff8fa3;--badcard:#2e171d;--good:#4cc9a0}}
*{box-sizing:border-box}
html{font:clamp(14px,calc(8px + .55vw),22px)/1.4 system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif;
background:var(--page);color:var(--text);-webkit-text-size-adjust:100%}
body{margin:0 auto;padding:1rem clamp(.75rem,2vw,2.5rem)}
h1{font-size:1.5rem;margin:0;overflow-wrap:anywhere}
h2{font-size:1.1rem;margin:1.75rem 0 .6rem}
h3{font-size:1rem;line-height:1.25;margin:0;font-weight:600;overflow-wrap:anywhere;min-width:0;display:-webkit-box;
-webkit-box-orient:vertical;-webkit-line-clamp:2;overflow:hidden}
p{margin:.3rem 0}
code{font-family:ui-monospace,"DejaVu Sans Mono",monospace;font-size:.92em}
a{color:var(--use)}
:focus-visible{outline:2px solid var(--use);outline-offset:2px}
.muted{color:var(--muted)}
.bad{color:var(--bad)}
header{display:flex;flex-wrap:wrap;align-items:baseline;gap:.2rem 1rem}
header p{margin:0}
.counts{display:flex;flex-wrap:wrap;gap:.4rem 2rem;margin:.7rem 0 1rem;padding:0;list-style:none}
.counts b{font-size:1.9rem;line-height:1.1;margin-right:.35rem;font-variant-numeric:tabular-nums}
.cards{display:grid;gap:.75rem;grid-template-columns:repeat(auto-fill,minmax(min(100%,19rem),1fr))}
.card{background:var(--card);border:1px solid var(--edge);border-left:.3rem solid var(--edge);border-radius:.4rem;
padding:.6rem .8rem;min-width:0}
.card.busy{border-left-color:var(--use)}
.card.free{border-left-color:var(--good)}
.card.claimed{border-left-color:var(--memory)}
.card.trouble{border-color:var(--bad);background:var(--badcard)}
.title{display:flex;gap:.5rem;align-items:baseline;justify-content:space-between}
.state{white-space:nowrap;font-size:.9rem}
.busy .state{color:var(--use)}.free .state{color:var(--good)}
.claimed .state{color:var(--memory)}.trouble .state{color:var(--bad);font-weight:600}
.meter{display:grid;grid-template-columns:4.2em 1fr 7.6em;gap:.5rem;align-items:center;margin:.15rem 0;font-size:.9rem}
.meter>:last-child{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
.bar{width:100%;height:.55rem;border-radius:.2rem;display:block}
.track{fill:var(--track)}.use{fill:var(--use)}.memory{fill:var(--memory)}
.facts{font-size:.9rem;font-variant-numeric:tabular-nums;overflow-wrap:anywhere}
.graph{width:100%;height:3rem;display:block;margin:.4rem 0;background:var(--page);border-radius:.2rem}
.graph .line{fill:none;stroke:var(--memory);stroke-width:2;vector-effect:non-scaling-stroke}
.graph .mean{fill:none;stroke:var(--use);stroke-width:1.2;vector-effect:non-scaling-stroke}
.graph .band{fill:var(--band)}
.graph .tick{stroke:var(--edge);vector-effect:non-scaling-stroke}
.scroll{overflow-x:auto;background:var(--card);border:1px solid var(--edge);border-radius:.4rem}
table{border-collapse:collapse;width:100%;font-size:.92rem}
th,td{padding:.3rem .8rem;text-align:left;vertical-align:top;border-top:1px solid var(--edge);overflow-wrap:break-word}
thead th{border-top:0;color:var(--muted);font-weight:600;white-space:nowrap}
.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
.long{min-width:12rem;width:100%;overflow-wrap:anywhere}
.nowrap{white-space:nowrap}
.long span{display:-webkit-box;-webkit-box-orient:vertical;-webkit-line-clamp:2;overflow:hidden}
details{background:var(--card);border:1px solid var(--edge);border-radius:.4rem;margin:.4rem 0}
details .scroll{border:0;border-top:1px solid var(--edge);border-radius:0}
summary{padding:.45rem .8rem;cursor:pointer;overflow-wrap:anywhere}
.days{display:grid;gap:.75rem 1.5rem;grid-template-columns:repeat(auto-fill,minmax(min(100%,26rem),1fr))}
.days figure{margin:0;min-width:0}
.days figcaption{font-size:.9rem;display:flex;justify-content:space-between;gap:1rem}
.days .graph{background:var(--card);border:1px solid var(--edge)}
.days figcaption>:last-child{white-space:nowrap}
.days figcaption>:first-child{overflow:hidden;text-overflow:ellipsis;white-space:nowrap}
.axis{display:flex;justify-content:space-between;font-size:.8rem;color:var(--muted)}
.key{display:inline-block;width:1.1em;height:.7em;border-radius:.15em;margin:0 .3em 0 .9em}
.key:first-child{margin-left:0}
.key.use{background:var(--use)}.key.memory{background:var(--memory);height:.2em;vertical-align:.2em}
.key.band{background:var(--band)}
footer{margin-top:2rem;font-size:.9rem}
#stale{position:sticky;top:0;background:var(--bad);color:var(--page);padding:.4rem .8rem;border-radius:.4rem}
#stale:empty{display:none}
@media (max-width:40rem){.wide{display:none}.long{min-width:7rem}th,td{padding:.3rem .4rem}.counts{gap:.4rem 1.2rem}}
@media print{.scroll{overflow:visible}}
)css";

// The server makes the HTML in one place. The script fetches its parts and changes what differs, so that a reader keeps
// focus, selection and scrolling. A fetched document is inert: no script of it would run.
const std::string_view kPageScript = R"js(
"use strict";
(() => {
  const stale = document.getElementById("stale");
  function morph(old, next) {
    if (old.nodeType !== next.nodeType || old.nodeName !== next.nodeName) return old.replaceWith(next);
    if (old.nodeType !== Node.ELEMENT_NODE) {
      if (old.data !== next.data) old.data = next.data;
      return;
    }
    for (const {name} of [...old.attributes]) if (!next.hasAttribute(name)) old.removeAttribute(name);
    for (const {name, value} of next.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
    const before = [...old.childNodes], after = [...next.childNodes];
    after.forEach((child, i) => i < before.length ? morph(before[i], child) : old.append(child));
    before.slice(after.length).forEach((child) => child.remove());
  }
  async function update(id) {
    const response = await fetch(id + ".html", {cache: "no-store", signal: AbortSignal.timeout(15000)});
    if (!response.ok) throw new Error("status " + response.status);
    const next = new DOMParser().parseFromString(await response.text(), "text/html").getElementById(id);
    const old = document.getElementById(id);
    const open = new Map([...old.querySelectorAll("details")].map((one) => [one.dataset.key, one.open]));
    for (const one of next.querySelectorAll("details")) {
      if (open.has(one.dataset.key)) one.open = open.get(one.dataset.key);
    }
    morph(old, next);
    if (id === "live") document.title = old.dataset.title;
  }
  let answered = new Date();
  async function repeat(id, pause) {
    for (;;) {
      await new Promise((resolve) => setTimeout(resolve, pause));
      if (document.hidden) continue;
      try {
        await update(id);
        answered = new Date();
        stale.textContent = "";
      } catch (error) {
        stale.textContent = "The server has not answered since " + answered.toLocaleTimeString() +
          "; this page is as old. Trying again.";
      }
    }
  }
  repeat("live", 2000);
  repeat("day", 60000);
})();
)js";

}  // namespace yoke::web
