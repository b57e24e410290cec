// The search runs in a worker, which browsers refuse for a page that is opened as a file. There, this runs the worker's script in
// a hidden frame. (Material for MkDocs would load a script from the network for that.)
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      const inside = frame.contentWindow;
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
      this.inside = inside;
      this.ready = inside.importScripts(url);
    }
    postMessage(data) {
      this.ready.then(() => this.inside.dispatchEvent(new MessageEvent("message", { data })));
    }
    terminate() {
      this.inside.frameElement.remove();
    }
  };
}
