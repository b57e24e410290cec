// Two changes of how the theme's search runs. It runs in a Worker, to which the page sends {type: 2, data: what was typed}.

// A word that begins with a dash would mean "pages without this word". People search for options as they type them.
const withoutDashes = (message) =>
  message.type === 2 ? { ...message, data: message.data.replace(/(^|\s)-+/g, "$1") } : message;

if (location.protocol === "file:") {
  // Browsers refuse workers for a page that is opened as a file, so the worker's script runs in a hidden frame. (Material for MkDocs
  // would load a script from the network for that.)
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      this.inside = frame.contentWindow;
      this.inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      this.inside.importScripts = async (...urls) => {
        for (const one of urls) {
          await new Promise((resolve, reject) => {
            const script = this.inside.document.createElement("script");
            Object.assign(script, { src: new URL(one, location.href).href, onload: resolve, onerror: reject });
            this.inside.document.body.append(script);
          });
        }
      };
      this.ready = this.inside.importScripts(url);
    }
    postMessage(message) {
      this.ready.then(() => this.inside.dispatchEvent(new MessageEvent("message", { data: withoutDashes(message) })));
    }
    terminate() {
      this.inside.frameElement.remove();
    }
  };
} else {
  window.Worker = class extends window.Worker {
    postMessage(message) {
      super.postMessage(withoutDashes(message));
    }
  };
}
