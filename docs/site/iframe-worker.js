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

  // Finds pages that have all words, or if there is none, any of them. The theme by itself finds any, so that "tensor cores" leads to
  // TensorBoard; and it takes a word that begins with a dash, as options do, for "pages without this word".
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.inner = new Inner(url);
      this.inner.addEventListener("message", ({ data }) => this.receive(data));
    }
    postMessage(message) {
      this.any = null;
      const words = message.type === 2 ? message.data.split(/[\s\-.,=()]+/).filter((word) => word.length > 1) : [];
      if (words.length === 0 || /["+~^*:]/.test(message.data)) return this.inner.postMessage(message);
      this.any = words.join(" ");
      this.inner.postMessage({ type: 2, data: words.map((word) => `+${word}`).join(" ") });
    }
    receive(message) {
      const any = this.any;
      this.any = null;
      if (message.type === 3 && any && message.data.items.length === 0) {
        this.inner.postMessage({ type: 2, data: any });
      } else {
        this.dispatchEvent(new MessageEvent("message", { data: message }));
      }
    }
  };
})();
