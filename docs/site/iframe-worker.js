// Changes how the theme's search runs. The page sends {type: 2, data: what was typed} to a Worker, which answers {type: 3, data: {items}}.
(() => {
  // Browsers refuse workers for a page that is opened as a file. This is one whose script runs in a hidden frame. (Material for MkDocs
  // would load a script from the network for that.)
  class FrameWorker extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      const inside = (this.inside = frame.contentWindow);
      inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      inside.importScripts = async (...urls) => {
        for (const one of urls) {
          await new Promise((resolve, reject) => {
            const script = inside.document.createElement("script");
            Object.assign(script, { src: new URL(one, location.href).href, onload: resolve, onerror: reject });
            inside.document.body.append(script);
          });
        }
      };
      this.ready = inside.importScripts(url);
    }
    postMessage(data) {
      this.ready.then(() => this.inside.dispatchEvent(new MessageEvent("message", { data })));
    }
  }
  const Inner = location.protocol === "file:" ? FrameWorker : window.Worker;

  // Finds pages that have all words, and after them pages that have any. The theme by itself finds any, so that "tensor cores" leads to
  // TensorBoard; and it takes a word that begins with a dash, as options do, for "pages without this word". Small words are left out,
  // because each is the beginning of others, which are found too: "in" would find "inference", as "GPU" finds "GPUs".
  const small = new Set(
    `a all an and are as at be by can do does for from how i if in into is it me my no not of on or out so than that the their
    then there these this to too use was we what when where which who why will with you your`.split(/\s+/),
  );
  const enough = 6; // so many pages with all words need no others
  const page_of = (group) => group[0].location.split("#")[0];
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.asked = []; // of each query that has no answer yet: {any: a query to ask after it, first: what to show before its answer}
      this.inner = new Inner(url);
      this.inner.addEventListener("message", ({ data }) => this.receive(data));
    }
    postMessage(message) {
      if (message.type !== 2) return this.inner.postMessage(message);
      const typed = message.data.split(/[\s\-.,=()+]+/).filter((word) => word.length > 1);
      const large = typed.filter((word) => !small.has(word.toLowerCase()));
      const words = large.length > 0 ? large : typed;
      // Whoever types the search's own language gets it.
      if (words.length === 0 || /["~^*:]|(^|\s)\+\S/.test(message.data)) return this.ask(message.data, {});
      this.ask(words.map((word) => `+${word}*`).join(" "), words.length > 1 ? { any: words.join(" ") } : {});
    }
    ask(query, asked) {
      this.asked.push(asked);
      this.inner.postMessage({ type: 2, data: query });
    }
    receive(message) {
      if (message.type === 3) {
        const { any, first } = this.asked.shift();
        const items = message.data.items;
        if (any && items.length < enough && this.asked.length === 0) return this.ask(any, { first: items });
        if (first) {
          const had = new Set(first.map(page_of));
          message.data.items = [...first, ...items.filter((group) => !had.has(page_of(group)))];
        }
      }
      this.dispatchEvent(new MessageEvent("message", { data: message }));
    }
  };
})();
